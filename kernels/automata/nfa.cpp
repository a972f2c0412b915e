#include "nfa.h"

#include <algorithm>
#include <array>
#include <map>

#include "utf8.h"

namespace sapwood {
namespace {

struct ByteRange {
    std::uint8_t lo, hi;
};

using Sequence = std::vector<ByteRange>;

// Splits a range of code points until every piece is a product of byte ranges (Russ Cox, "Regular expression matching
// with UTF-8").
void utf8_sequences(std::uint32_t lo, std::uint32_t hi, std::vector<Sequence>& out) {
    if (lo > hi) return;
    if (lo < 0xD800 && hi > 0xDFFF) {
        utf8_sequences(lo, 0xD7FF, out);
        return utf8_sequences(0xE000, hi, out);
    }
    lo = (lo >= 0xD800 && lo <= 0xDFFF) ? 0xE000 : lo;
    hi = (hi >= 0xD800 && hi <= 0xDFFF) ? 0xD7FF : hi;
    if (lo > hi) return;
    for (std::uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu})
        if (lo <= last && last < hi) {
            utf8_sequences(lo, last, out);
            return utf8_sequences(last + 1, hi, out);
        }
    if (hi >= 0x80)
        for (int i = 1; i < 4; ++i) {
            std::uint32_t low = (1u << 6 * i) - 1;
            if ((lo & ~low) == (hi & ~low)) continue;
            if (lo & low) {
                utf8_sequences(lo, lo | low, out);
                return utf8_sequences((lo | low) + 1, hi, out);
            }
            if ((hi & low) != low) {
                utf8_sequences(lo, (hi & ~low) - 1, out);
                return utf8_sequences(hi & ~low, hi, out);
            }
        }
    std::uint8_t first[4], last[4];
    int length = encode_utf8(lo, first);
    encode_utf8(hi, last);
    Sequence sequence;
    for (int i = 0; i < length; ++i) sequence.push_back({first[i], last[i]});
    out.push_back(std::move(sequence));
}

class Builder {
public:
    Builder(const RegexTree& tree, Budget& budget) : tree_(tree), budget_(budget), nfa_(std::make_shared<Nfa>()) {}

    std::shared_ptr<Nfa> build(int root, Span span) {
        int match = emit({Op::Match});
        nfa_->start = node(root, match);
        nfa_->sticky = span == Span::Search || span == Span::Prefix;
        if (span == Span::Search || span == Span::Suffix) nfa_->start = star(any(), nfa_->start);
        return nfa_;
    }

private:
    int emit(Inst inst) {
        budget_.charge_bytes(sizeof(Inst));
        nfa_->insts.push_back(inst);
        return static_cast<int>(nfa_->insts.size()) - 1;
    }

    int split(int first, int second) { return emit({Op::Split, 0, 0, first, second}); }

    static const CodePoints& any() {
        static const CodePoints all{{0, 0x10FFFF}};
        return all;
    }

    int star(const CodePoints& points, int next) {
        int loop = split(-1, next);
        nfa_->insts[loop].next = set(points, loop);
        return loop;
    }

    // Builds backwards: the automaton of a node in front of `next`.
    int node(int index, int next) {
        const RegexNode& n = tree_[index];
        switch (n.kind) {
            case Regex::Set: return set(n.set, next);
            case Regex::Cat:
                for (auto child = n.children.rbegin(); child != n.children.rend(); ++child) next = node(*child, next);
                return next;
            case Regex::Alt: {
                int way = -1;
                for (auto child = n.children.rbegin(); child != n.children.rend(); ++child) {
                    int branch = node(*child, next);
                    way = way < 0 ? branch : split(branch, way);
                }
                return way;
            }
            case Regex::Repeat: return repeat(n, next);
            case Regex::Begin: return emit({Op::Begin, 0, 0, next});
            case Regex::End: return emit({Op::End, 0, 0, next});
            case Regex::Look: return look(n, next);
        }
        return next;
    }

    int repeat(const RegexNode& n, int next) {
        if (n.max < 0) {
            int loop = split(-1, next);
            int body = node(n.children[0], loop);
            nfa_->insts[loop].next = body;
            next = loop;
        } else {
            int after = next;
            for (int i = n.min; i < n.max; ++i) next = split(node(n.children[0], next), after);
        }
        for (int i = 0; i < n.min; ++i) next = node(n.children[0], next);
        return next;
    }

    int look(const RegexNode& n, int next) {
        auto body = Builder(tree_, budget_).build(n.children[0], n.behind ? Span::Suffix : Span::Prefix);
        nfa_->looks.push_back({body, n.behind, n.negative});
        return emit({Op::Look, 0, 0, next, static_cast<int>(nfa_->looks.size()) - 1});
    }

    // A class of many characters is one thread: its rows are found once, its instructions are repeated.
    int set(const CodePoints& points, int next) {
        std::vector<Sequence> sequences;
        for (auto [lo, hi] : points) utf8_sequences(lo, hi, sequences);
        if (sequences.empty()) return emit({Op::Byte, 1, 0, next});  // the empty class: no byte
        if (sequences.size() == 1) {
            for (auto range = sequences[0].rbegin(); range != sequences[0].rend(); ++range)
                next = emit({Op::Byte, range->lo, range->hi, next});
            return next;
        }
        auto found = classes_.find(points);
        if (found == classes_.end()) {
            int begin = static_cast<int>(nfa_->rows.size());
            std::map<SetRow, int> known;
            int first = row(sequences, 0, known);
            found = classes_.emplace(points, Class{begin, static_cast<int>(nfa_->rows.size()), first}).first;
        }
        auto [begin, end, first] = found->second;
        int base = static_cast<int>(nfa_->insts.size());
        for (int at = begin; at < end; ++at) emit({Op::Set, 0, 0, next, at});
        return base + first - begin;
    }

    // The row of what follows the first `depth` bytes of sequences that begin alike. Equal rows of a class are one.
    int row(const std::vector<Sequence>& sequences, std::size_t depth, std::map<SetRow, int>& known) {
        SetRow out;
        out.to.fill(SetRow::kNone);
        std::array<bool, 257> border{};
        for (const Sequence& s : sequences) border[s[depth].lo] = border[s[depth].hi + 1] = true;
        for (int byte = 0, to = SetRow::kNone; byte < 256; ++byte) {
            if (border[byte]) {
                std::vector<Sequence> rest;
                for (const Sequence& s : sequences)
                    if (s[depth].lo <= byte && byte <= s[depth].hi) rest.push_back(s);
                if (rest.empty()) to = SetRow::kNone;
                else to = rest[0].size() == depth + 1 ? SetRow::kWhole : row(rest, depth + 1, known);
            }
            out.to[byte] = static_cast<std::int16_t>(to);
        }
        auto [found, fresh] = known.try_emplace(out, static_cast<int>(nfa_->rows.size()));
        if (fresh) {
            budget_.charge_bytes(sizeof(SetRow));
            if (found->second > INT16_MAX) throw OverBudget("the pattern has too many classes of characters");
            nfa_->rows.push_back(out);
        }
        return found->second;
    }

    struct Class {
        int begin, end, first;  // its rows, and where it starts
    };
    std::map<CodePoints, Class> classes_;
    const RegexTree& tree_;
    Budget& budget_;
    std::shared_ptr<Nfa> nfa_;
};

}  // namespace

std::shared_ptr<Nfa> build_nfa(const RegexTree& tree, int root, Span span, Budget& budget) {
    return Builder(tree, budget).build(root, span);
}

}  // namespace sapwood
