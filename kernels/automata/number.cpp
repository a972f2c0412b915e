#include "number.h"

#include <algorithm>
#include <optional>

namespace sapwood {
namespace {

constexpr std::size_t kMaxWays = 64;
const Decimal kOne{false, "1", 0};

bool digit(char c) { return c >= '0' && c <= '9'; }

void raise_lo(Interval& way, const Decimal& lo, bool open) {
    auto order = way.has_lo ? compare(lo, way.lo) : std::strong_ordering::greater;
    if (order > 0 || (order == 0 && open)) way.has_lo = true, way.lo = lo, way.lo_open = open;
}

void lower_hi(Interval& way, const Decimal& hi, bool open) {
    auto order = way.has_hi ? compare(hi, way.hi) : std::strong_ordering::less;
    if (order < 0 || (order == 0 && open)) way.has_hi = true, way.hi = hi, way.hi_open = open;
}

std::optional<Interval> both(const Interval& a, const Interval& b) {
    Interval out = a;
    if (b.has_lo) raise_lo(out, b.lo, b.lo_open);
    if (b.has_hi) lower_hi(out, b.hi, b.hi_open);
    out.integer |= b.integer;
    out.spelled |= b.spelled;
    out.opaque |= b.opaque;
    if (a.step.zero() || b.step.zero()) {
        out.step = a.step.zero() ? b.step : a.step;
    } else {
        out.step = common_multiple(a.step, b.step);
        if (out.step.zero()) out.opaque = true;
    }
    if (b.listed && a.listed) out.opaque = true;
    if (b.listed) out.listed = b.listed;
    if (out.has_lo && out.has_hi) {
        auto order = compare(out.lo, out.hi);
        if (order > 0 || (order == 0 && (out.lo_open || out.hi_open))) return std::nullopt;
    }
    return out;
}

// Whether [lo, hi] or [lo, hi) has a number that `want` allows.
bool meets(const Interval& want, const Decimal& lo, bool lo_open, const Decimal& hi, bool hi_open) {
    Interval range;
    range.has_lo = range.has_hi = true;
    range.lo = lo, range.lo_open = lo_open, range.hi = hi, range.hi_open = hi_open;
    auto met = both(want, range);
    if (!met) return false;
    Decimal step = met->step;
    if (met->integer) step = step.zero() ? kOne : common_multiple(step, kOne);
    if (step.zero()) return true;
    if (compare(met->lo, met->hi) == 0) return multiple_of(met->lo, step);
    return has_multiple(met->lo, met->lo_open, met->hi, met->hi_open, step);
}

Decimal shifted(Decimal value, long exponent) {
    if (!value.zero()) value.exponent += exponent;
    return value;
}

// The digits of a number, whatever its point, plus one.
Decimal successor(std::string_view text) {
    std::string digits(text);
    std::erase(digits, '.');
    auto at = digits.rbegin();
    for (; at != digits.rend() && *at == '9'; ++at) *at = '0';
    if (at != digits.rend()) ++*at;
    else digits.insert(digits.begin(), '1');
    return parse_decimal(digits);
}

}  // namespace

bool fits_a_double(std::string_view text) { return fits_a_double(parse_decimal(text)); }

bool fits_a_double(const Decimal& value) {
    static const Decimal largest = parse_decimal("1.7976931348623157e308"),
                         smallest = parse_decimal("2.2250738585072014e-308");
    Decimal size = value;
    size.negative = false;
    return value.zero() || (compare(size, largest) <= 0 && compare(size, smallest) >= 0);
}

bool step_digits(Digits& at, char c) {
    switch (at) {
        case Digits::Start:
            if (c == '-') return at = Digits::Minus, true;
            [[fallthrough]];
        case Digits::Minus:
            if (!digit(c)) return false;
            at = c == '0' ? Digits::Zero : Digits::Whole;
            return true;
        case Digits::Whole:
            if (digit(c)) return true;
            [[fallthrough]];
        case Digits::Zero:
            if (c == '.') return at = Digits::Point, true;
            break;
        case Digits::Point: at = Digits::Fraction; return digit(c);
        case Digits::Fraction:
            if (digit(c)) return true;
            break;
        case Digits::E:
            if (c == '+' || c == '-') return at = Digits::Sign, true;
            [[fallthrough]];
        case Digits::Sign:
        case Digits::Exponent: at = Digits::Exponent; return digit(c);
    }
    if (c != 'e' && c != 'E') return false;
    at = Digits::E;
    return true;
}

NumberSpec::NumberSpec(Schema& schema, const Plan& plan) : schema_(schema), plan_(plan) {
    if (plan.roots->must) collect(plan.verdicts[0], true, ways_);
    if (ways_.size() > kMaxWays) any_ = true;
}

// The disjunctive normal form of a node of the plan.
void NumberSpec::collect(int id, bool positive, std::vector<Interval>& ways) const {
    const PlanNode& node = plan_.nodes[id];
    schema_.budget.tick();
    switch (node.how) {
        case Combine::Yes:
        case Combine::No:
            if ((node.how == Combine::Yes) == positive) ways.emplace_back();
            return;
        case Combine::Atom: ways.push_back(of_atom(schema_.node(plan_.atoms[node.atom]), positive)); return;
        case Combine::Not: return collect(node.children[0], !positive, ways);
        case Combine::One:
            if (!positive) {
                ways.emplace_back().opaque = true;
                return;
            }
            [[fallthrough]];
        case Combine::All:
        case Combine::Any:
            if ((node.how != Combine::All) == positive) {
                for (int child : node.children) {
                    collect(child, positive, ways);
                    if (ways.size() > kMaxWays) return;
                }
                return;
            }
            std::vector<Interval> product(1);
            for (int child : node.children) {
                std::vector<Interval> ways_of_child, next;
                collect(child, positive, ways_of_child);
                for (const Interval& a : product)
                    for (const Interval& b : ways_of_child) {
                        if (auto met = both(a, b)) next.push_back(*met);
                        if (next.size() > kMaxWays) break;
                    }
                product = std::move(next);
            }
            ways.insert(ways.end(), product.begin(), product.end());
    }
}

Interval NumberSpec::of_atom(const Node& node, bool positive) const {
    Interval way;
    switch (node.what) {
        case Assert::Integer:
            way.integer = positive;
            way.spelled = positive && (node.count > 0 || schema_.layout.compact);
            way.opaque = !positive;
            break;
        case Assert::Minimum:
        case Assert::AboveMinimum: {
            bool open = node.what == Assert::AboveMinimum;
            if (positive) raise_lo(way, node.numbers[0], open);
            else lower_hi(way, node.numbers[0], !open);
            break;
        }
        case Assert::Maximum:
        case Assert::BelowMaximum: {
            bool open = node.what == Assert::BelowMaximum;
            if (positive) lower_hi(way, node.numbers[0], open);
            else raise_lo(way, node.numbers[0], !open);
            break;
        }
        case Assert::MultipleOf:
            if (positive) way.step = node.numbers[0];
            else way.opaque = true;
            break;
        default:
            if (positive) way.listed = &node;
            else way.opaque = true;
    }
    return way;
}

bool NumberSpec::listed_reachable(const Interval& want, std::string_view text) const {
    for (const std::string& spelling : want.listed->spellings) {
        bool begins = std::string_view(spelling).substr(0, text.size()) == text;
        if (begins && (!plan_.roots->must || may_close(spelling))) return true;  // else each node has its own verdict
    }
    return false;
}

// A mantissa and the beginning of an exponent, or none yet.
bool NumberSpec::exponent_reachable(const Interval& want, std::string_view text) const {
    constexpr std::size_t kLongest = 5;  // e-123
    std::size_t e = text.find_first_of("eE");
    if (e == std::string_view::npos && text.size() + kLongest > kMaxSize) return false;
    Decimal mantissa = parse_decimal(text.substr(0, e));
    std::string_view tail = e == std::string_view::npos ? "" : text.substr(e + 1);
    bool signed_ = !tail.empty() && !digit(tail[0]);
    std::string typed(tail.substr(signed_));
    for (int sign : {1, -1}) {
        if ((signed_ && (tail[0] == '-') != (sign < 0)) || (!signed_ && !typed.empty() && sign < 0)) continue;
        for (int exponent = 0; exponent <= 400; ++exponent) {
            std::string digits = std::to_string(exponent);
            bool fits = false;
            for (int zeros = 0; zeros < 3 && !fits; ++zeros) {
                fits = digits.size() <= 3 && digits.compare(0, typed.size(), typed) == 0;
                digits.insert(digits.begin(), '0');
            }
            if (!fits) continue;
            Decimal value = shifted(mantissa, sign * exponent);
            schema_.budget.tick();
            if (fits_a_double(value) && meets(want, value, false, value, false)) return true;
        }
    }
    return false;
}

// Whether some continuation of `text` lies in `want`.
bool NumberSpec::reachable(const Interval& want, std::string_view text, Digits at) const {
    if (want.listed) return listed_reachable(want, text);
    bool plain = want.spelled;
    if (at >= Digits::E) return !plain && (want.free() || exponent_reachable(want, text));
    if (plain && at >= Digits::Point) return false;
    if (want.free()) return true;
    if (at == Digits::Start) return meets(want, {true, "1", 400}, false, {false, "1", 400}, false);
    bool negative = text[0] == '-';
    auto span = [&](Decimal low, bool low_open, Decimal high, bool high_open) {
        if (!negative) return meets(want, low, low_open, high, high_open);
        low.negative = !low.zero(), high.negative = !high.zero();
        return meets(want, high, high_open, low, low_open);
    };
    if (at == Digits::Minus) return span({}, false, {false, "1", 400}, false);
    Decimal value = parse_decimal(text.substr(negative));
    if (complete(at) && span(value, false, value, false)) return true;
    Decimal above = successor(text.substr(negative));  // in units of the last place
    long places = at >= Digits::Point ? static_cast<long>(text.size() - text.find('.') - 1) : 0;
    if (want.integer && at >= Digits::Point) {
        if (value.integer() && span(value, false, value, false)) return true;
    } else if (!want.integer) {
        if (span(value, false, shifted(above, -places), true)) return true;
    }
    if (at == Digits::Whole) {
        for (int more = 1; more + text.size() <= kMaxSize; ++more)
            if (span(shifted(value, more), false, shifted(above, more), true)) return true;
    }
    return !plain && exponent_reachable(want, text);
}

void NumberSpec::atoms(std::string_view text, Digits at, bool closed, std::vector<Tri>& out) const {
    out.assign(plan_.atoms.size(), Tri::Maybe);
    schema_.budget.tick(out.size() + plan_.nodes.size() / 4);
    Decimal value = closed ? parse_decimal(text) : Decimal{};
    for (std::size_t i = 0; i < out.size(); ++i) {
        const Node& node = schema_.node(plan_.atoms[i]);
        if (!closed) {
            if (!reachable(of_atom(node, true), text, at)) out[i] = Tri::No;
            else if (Interval not_so = of_atom(node, false); !not_so.opaque && !reachable(not_so, text, at))
                out[i] = Tri::Yes;
            continue;
        }
        bool holds = true;
        switch (node.what) {
            case Assert::Integer:
                holds = value.integer() && (node.count == 0 || text.find_first_of(".eE") == text.npos);
                break;
            case Assert::Minimum: holds = compare(value, node.numbers[0]) >= 0; break;
            case Assert::AboveMinimum: holds = compare(value, node.numbers[0]) > 0; break;
            case Assert::Maximum: holds = compare(value, node.numbers[0]) <= 0; break;
            case Assert::BelowMaximum: holds = compare(value, node.numbers[0]) < 0; break;
            case Assert::MultipleOf: holds = multiple_of(value, node.numbers[0]); break;
            default:
                holds = std::any_of(node.numbers.begin(), node.numbers.end(),
                                    [&](const Decimal& number) { return compare(value, number) == 0; });
        }
        out[i] = definite(holds);
    }
}

bool NumberSpec::may_close(std::string_view text) const {
    if (plan_.atoms.empty()) return true;
    std::vector<Tri> values, verdict;
    atoms(text, Digits::Whole, true, values);
    plan_.evaluate(values, verdict);
    return verdict[0] == Tri::Yes;
}

bool NumberSpec::may_go_on(std::string_view text, Digits at) const {
    if (any_) return true;
    return std::any_of(ways_.begin(), ways_.end(), [&](const Interval& way) { return reachable(way, text, at); });
}

long NumberSpec::num_values() const {
    if (any_) return Roots::kMany;
    long total = 0;
    for (const Interval& way : ways_) {
        if (way.listed) {
            total += static_cast<long>(way.listed->numbers.size());
        } else if (way.integer && way.has_lo && way.has_hi && way.lo.digits.size() + way.lo.exponent < 9 &&
                   way.hi.digits.size() + way.hi.exponent < 9) {
            auto whole = [](const Decimal& d) { return std::stol("0" + d.digits) * (d.negative ? -1 : 1); };
            if (!way.lo.integer() || !way.hi.integer()) return Roots::kMany;
            long lo = whole(way.lo), hi = whole(way.hi);
            for (long i = 0; i < way.lo.exponent; ++i) lo *= 10;
            for (long i = 0; i < way.hi.exponent; ++i) hi *= 10;
            total += std::max(0l, hi - way.hi_open - lo - way.lo_open + 1);
        } else {
            return Roots::kMany;
        }
    }
    return total;
}

}  // namespace sapwood
