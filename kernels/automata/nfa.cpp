#include "nfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

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

    // Alternatives share their common endings, so that a large class stays small.
    int set(const CodePoints& points, int next) {
        std::vector<Sequence> sequences;
        for (auto [lo, hi] : points) utf8_sequences(lo, hi, sequences);
        std::map<std::tuple<std::uint8_t, std::uint8_t, int>, int> shared;
        std::vector<int> ways;
        for (const Sequence& sequence : sequences) {
            int at = next;
            for (auto range = sequence.rbegin(); range != sequence.rend(); ++range) {
                auto [found, fresh] = shared.try_emplace({range->lo, range->hi, at}, -1);
                if (fresh) found->second = emit({Op::Byte, range->lo, range->hi, at});
                at = found->second;
            }
            ways.push_back(at);
        }
        if (ways.empty()) return emit({Op::Byte, 1, 0, next});  // the empty class: no byte
        int way = ways.back();
        for (std::size_t i = ways.size() - 1; i-- > 0;) way = split(ways[i], way);
        return way;
    }

    const RegexTree& tree_;
    Budget& budget_;
    std::shared_ptr<Nfa> nfa_;
};

}  // namespace

std::shared_ptr<Nfa> build_nfa(const RegexTree& tree, int root, Span span, Budget& budget) {
    return Builder(tree, budget).build(root, span);
}

}  // namespace sapwood
