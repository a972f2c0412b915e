// A container that is being written: immutable, so that a walk through the tokens can branch at every byte.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "object.h"

namespace sapwood {

// A pointer that counts. A grammar is followed by one thread at a time.
template <class T>
class Shared {
public:
    Shared() = default;
    explicit Shared(T* p) : p_(p) {
        if (p_) ++p_->references;
    }
    Shared(const Shared& o) : Shared(o.p_) {}
    Shared(Shared&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
    Shared& operator=(Shared o) noexcept { return std::swap(p_, o.p_), *this; }
    ~Shared() {
        if (p_ && --p_->references == 0) delete p_;
    }
    T* operator->() const { return p_; }
    T& operator*() const { return *p_; }
    T* get() const { return p_; }
    explicit operator bool() const { return p_ != nullptr; }

private:
    T* p_ = nullptr;
};

// An assertion of the frame waits for a verdict on the open child.
struct Link {
    const Ask* ask;
    int verdict;            // index among the child's verdicts
    std::vector<int> ways;  // likewise, for ask->ways
};

// A key that the schema does not name: where its spelling lies in the text, for those who have the text.
struct OtherKey {
    std::uint64_t digest;
    std::uint32_t begin, end;
};

struct Frame {
    Frame() = default;
    Frame(const Frame& o);  // without what was found out

    int references = 0;
    Shared<Frame> parent;
    const Plan* plan = nullptr;
    int count = 0;                    // keys or items, with the open one
    int position = 0;                 // in a fixed order: keys before this one are no longer possible
    bool tracked = false;             // some enclosing array compares its items
    std::vector<Tri> fixed;           // by atom: Maybe while it may still hold
    std::vector<int> tallies;         // by atom: items that Contains counted
    std::vector<std::uint64_t> seen;  // keys, a bit each
    std::vector<OtherKey> others;
    std::vector<std::vector<int>> clauses;  // each needs a condition of the plan that holds
    std::vector<std::uint64_t> items;       // digests, where they have to differ
    std::uint64_t digest = 0;               // of the content so far
    std::uint64_t key_digest = 0;
    const Roots* child = nullptr;  // of the open key or item
    std::vector<Link> links;       // none: the child must satisfy its roots
    std::uint64_t hash = 0;        // of all this and the parents
    // What was found out about keys that may come next; -1: not known.
    struct Keys {
        std::vector<std::int8_t> known;  // [key]
        std::vector<Shared<Frame>> frames;
        std::int8_t other = -1;
        std::map<Outcome*, bool> other_allowed;
        KnownLive other_live;
    };
    mutable std::unique_ptr<Keys> keys;
    // Whether the open child may have these verdicts, as far as it was asked.
    static constexpr std::size_t kMostAnswers = 256;
    mutable std::map<std::vector<Tri>, bool> answers;

    bool has_seen(int key) const { return seen[key / 64] >> (key % 64) & 1; }
};

using FramePtr = Shared<Frame>;

FramePtr open_container(const Plan& plan, FramePtr parent);

// Whether the frame's roots, and those of its parents, may still hold.
bool admissible(Schema& schema, const Frame& frame);
// Whether a child of `parent` (null: the whole text) may have these verdicts.
bool consult(Schema& schema, const Frame* parent, const Roots* roots, const std::vector<Tri>& verdicts);

// The frame with a key open, null if the key may not come. `other`: a key that is not known.
FramePtr open_key(Schema& schema, const Frame& frame, int key);
FramePtr open_other_key(Schema& schema, const Frame& frame, Outcome& outcome, OtherKey other);
// Whether a key that is not known may come, and begin so.
bool other_key_live(Schema& schema, const Frame& frame, const TextState& at);
FramePtr open_item(Schema& schema, const Frame& frame);

// The frame after its open child got these verdicts; null if that may not be.
FramePtr close_child(Schema& schema, const Frame& frame, const std::vector<Tri>& verdicts, std::uint64_t child_digest);

// The verdicts on the container if it ends here.
void close_container(Schema& schema, const Frame& frame, std::vector<Tri>& verdicts);

// Digests of texts, so that keys and items can be compared without keeping them (Fowler, Noll, Vo).
constexpr std::uint64_t kTextSeed = 0xCBF29CE484222325ull;
inline std::uint64_t extend_digest(std::uint64_t digest, std::uint8_t byte) {
    return (digest ^ byte) * 0x100000001B3ull;
}

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t h = (a ^ 0x9E3779B97F4A7C15ull) * 0xFF51AFD7ED558CCDull;
    h ^= h >> 29;
    h = (h + b) * 0xC4CEB9FE1A85EC53ull;
    return h ^ h >> 32;
}

}  // namespace sapwood
