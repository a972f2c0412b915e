// Numbers under a plan: whether what is written of one can still become a number that satisfies it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema.h"

namespace sapwood {

// Where a number is in its syntax.
enum class Digits : std::uint8_t { Start, Minus, Zero, Whole, Point, Fraction, E, Sign, Exponent };

inline bool complete(Digits at) {
    return at == Digits::Zero || at == Digits::Whole || at == Digits::Fraction || at == Digits::Exponent;
}
// Moves on by a character; false if JSON has none such here.
bool step_digits(Digits& at, char c);

// Whether a number with an exponent is neither infinite nor zero to those who read it as a double.
bool fits_a_double(std::string_view text);
bool fits_a_double(const Decimal& value);

// A conjunction of what is asked of a number.
struct Interval {
    bool has_lo = false, lo_open = false, has_hi = false, hi_open = false;
    bool integer = false, spelled = false;  // spelled: written without a fraction or exponent
    Decimal lo, hi, step;                   // step zero: any
    const Node* listed = nullptr;           // one of these
    bool opaque = false;                    // asks for something that only the whole number tells
    bool free() const { return !has_lo && !has_hi && !integer && step.zero() && !listed; }
};

struct NumberSpec {
    static constexpr std::size_t kMaxSize = 64;  // characters; a model must not write digits for ever

    static constexpr std::size_t kMaxExponent = 3;  // digits

    NumberSpec(Schema& schema, const Plan& plan);
    void atoms(std::string_view text, Digits at, bool closed, std::vector<Tri>& out) const;

    // Below: for `must` roots.
    bool may_close(std::string_view text) const;
    bool may_go_on(std::string_view text, Digits at) const;
    bool satisfiable() const { return may_go_on("", Digits::Start); }
    long num_values() const;

private:
    bool reachable(const Interval& want, std::string_view text, Digits at) const;
    bool listed_reachable(const Interval& want, std::string_view text) const;
    bool exponent_reachable(const Interval& want, std::string_view text) const;
    void collect(int node, bool positive, std::vector<Interval>& ways) const;
    Interval of_atom(const Node& node, bool positive) const;

    Schema& schema_;
    const Plan& plan_;
    std::vector<Interval> ways_;  // satisfied if one of them is
    bool any_ = false;            // too many ways to list
};

}  // namespace sapwood
