// Which tokens may come next, as packed bits.
#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cursor.h"
#include "trie.h"

namespace sapwood {

// Allowed tokens after which one of `ways` must come; some longer token covers a part of each as well.
struct Committed {
    std::vector<int> tokens;
    std::vector<std::string> ways;
};

class Masks {
public:
    Masks(Json& json, const Vocabulary& vocabulary) : json_(json), vocabulary_(vocabulary) {}

    // Tokens without EOS. The words stay valid until the next call.
    const std::vector<std::uint32_t>& at(const Cursor& cursor);
    // Whether a token longer than `tail` that begins with it may come.
    bool extends(const Cursor& cursor, const std::string& tail);
    // The tokens that decide what follows them, so that only one way to cut it into tokens is the tokenizer's.
    std::vector<Committed> committed(const Cursor& cursor);
    int forced_byte(const Cursor& cursor);  // -1: none or several may come

private:
    // Of the nodes [first, last), which a cursor stands in front of.
    void find_committed(const Trie& trie, int first, int last, const Cursor& cursor, std::vector<Committed>& out);
    void find_committed_inside(const Cursor& cursor, std::vector<Committed>& out);
    void add_committed(const Trie& trie, int node, const Cursor& cursor, std::vector<Committed>& out);
    bool in_list(const Cursor& cursor);
    std::bitset<256> list_bytes(const Cursor& cursor);
    std::vector<int> few_bytes(const Cursor& cursor, std::size_t most);
    bool add_way(Cursor cursor, int byte, std::vector<std::string>& out);
    std::string forced_after(Cursor& cursor, int byte);
    // Tokens that stay within a text, and where they leave it; for all places alike.
    struct Inside {
        std::vector<std::uint32_t> words;
        struct Exit {
            int node;          // of the trie: a quote or a backslash
            int state, chars;  // before it; characters since the cursor
        };
        std::vector<Exit> exits;
        std::vector<std::pair<int, int>> by_chars;  // (characters, token), ascending
        bool ends_anywhere = true;                  // the text may end after each of its characters
    };
    static std::uint64_t next_number();
    static constexpr std::size_t kMostWays = 8;  // that are looked at to tell how a tokenizer would cut
    static constexpr std::size_t kMaxCachedBytes = 8 << 20;

    void compute(const Cursor& cursor, std::uint32_t* words);
    bool compute_text(const Cursor& cursor, std::uint32_t* words);
    bool compute_free(const Cursor& cursor, std::uint32_t* words);
    void compute_inside(const Cursor& cursor, std::uint32_t* words);
    bool compute_counted(const Cursor& cursor, std::uint32_t* words);
    void copy_within(const std::vector<std::uint32_t>& all, const std::vector<std::pair<int, int>>& by_chars, int room,
                     std::uint32_t* words);
    void add_exits(const Cursor& cursor, const Inside& inside, std::uint32_t* words);
    void add_free_exits(const Cursor& cursor, int room, std::uint32_t* words);
    void follow_list(const Cursor& cursor, bool only_list, std::uint32_t* words);
    // Where the nodes of the vocabulary's tree lead to inside a text; of the last one that the thread looked at.
    struct Visited {
        std::uint64_t place = 0;          // 0: none
        std::vector<int> states;          // [node]; -1: the text can't go on so
        std::vector<std::uint8_t> chars;  // [node], since the place
        std::vector<Inside::Exit> exits;
    };
    // A table over states of a text's product, and the characters up to them where they count. -1: nothing is known yet.
    template <class T>
    struct ByState {
        int width;  // of a state's row
        std::vector<T> values;

        T& at(int state, int chars) {
            std::size_t index = static_cast<std::size_t>(state) * width + (width > 1 ? chars : 0);
            if (index >= values.size()) values.resize(index + 64 * width, T{-1});
            return values[index];
        }
    };
    template <class T>
    ByState<T> by_state(const Cursor& cursor) {
        return {cursor.text().counted > 0 ? vocabulary_.longest_chars + 2 : 1, {}};
    }
    struct ExactLive;
    ExactLive exact_live(const Cursor& cursor);
    // `Live` tells of a state of the text's product, and the characters up to it, whether the text may go on.
    template <class Live>
    void scan(const Cursor& cursor, Live live, Visited* seen, Inside& out);
    template <class Live, class Found>
    void visit(const Cursor& cursor, Live live, Visited* seen, std::vector<Inside::Exit>& exits, Found found);
    void visit_exactly(const Cursor& cursor);
    static Visited& visited();
    std::uint64_t place_of(const Cursor& cursor) { return mix(number_, json_.hash(cursor)) | 1; }
    // Walks the subtree below `root` with the cursor standing at it.
    template <class Found>
    bool walk(const Trie& trie, int root, const Cursor& cursor, Found found);
    void add(const Trie& trie, int root, const Cursor& cursor, std::uint32_t* words);
    void redo(int node, const Cursor& cursor, std::uint32_t* words);

    Json& json_;
    const Vocabulary& vocabulary_;
    const std::uint64_t number_ = next_number();  // of these masks, among all of the process
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> cache_;
    std::unordered_map<std::uint64_t, Inside> inside_;
};

}  // namespace sapwood
