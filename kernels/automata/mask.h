// Which tokens may come next, as packed bits.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cursor.h"
#include "trie.h"

namespace sapwood {

class Masks {
public:
    Masks(Json& json, const Vocabulary& vocabulary) : json_(json), vocabulary_(vocabulary) {}

    // Tokens without EOS. The words stay valid until the next call.
    const std::vector<std::uint32_t>& at(const Cursor& cursor);
    // Whether a token longer than `tail` that begins with it may come.
    bool extends(const Cursor& cursor, const std::string& tail);

private:
    // Tokens that stay within a text, and where they leave it; for all places alike.
    struct Inside {
        std::vector<std::uint32_t> words;
        std::vector<std::pair<int, TextState>> exits;  // trie nodes of quotes and backslashes
    };
    static constexpr std::size_t kMaxCached = 1500;

    void compute(const Cursor& cursor, std::uint32_t* words);
    bool compute_text(const Cursor& cursor, std::uint32_t* words);
    bool compute_free(const Cursor& cursor, std::uint32_t* words);
    void compute_inside(const Cursor& cursor, std::uint32_t* words);
    void add_free_exits(const Cursor& cursor, int room, std::uint32_t* words);
    void follow_list(const Cursor& cursor, bool only_list, std::uint32_t* words);
    void scan(const Cursor& cursor, Inside& out);
    // Walks the subtree below `root` with the cursor standing at it.
    template <class Found>
    bool walk(const Trie& trie, int root, const Cursor& cursor, Found found);
    void add(const Trie& trie, int root, const Cursor& cursor, std::uint32_t* words);
    void redo(int node, const Cursor& cursor, std::uint32_t* words);

    Json& json_;
    const Vocabulary& vocabulary_;
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> cache_;
    std::unordered_map<std::uint64_t, Inside> inside_;
};

}  // namespace sapwood
