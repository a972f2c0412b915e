// The tokens of a vocabulary as a tree of bytes, laid out so that a walk goes through memory once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sapwood {

// Nodes in preorder; a node's subtree is [node, end[node]). Node 0 is the root.
struct Trie {
    Trie() = default;
    explicit Trie(std::vector<std::pair<std::string, int>> entries);

    int size() const { return static_cast<int>(bytes.size()); }
    const int* tokens_begin(int node) const { return tokens.data() + first_token[node]; }
    const int* tokens_end(int node) const { return tokens.data() + first_token[node + 1]; }
    // Tokens of the whole subtree lie side by side.
    const int* subtree_end(int node) const { return tokens.data() + first_token[end[node]]; }
    int child(int node, std::uint8_t byte) const;  // -1: none

    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> depths;  // tokens are cut at 255 bytes: longer ones are never allowed
    std::vector<int> end, first_token, tokens;
};

// How tokens lie inside a JSON text that nothing constrains, starting between two characters.
struct FreeText {
    struct Exit {
        int node;              // of the trie: a quote or a backslash
        int chars;             // characters before it
        std::string interior;  // these characters
    };
    std::vector<std::uint32_t> inside;          // tokens without a quote, backslash or control byte
    std::vector<std::pair<int, int>> by_chars;  // (characters, token) of these, ascending
    std::vector<Exit> exits;
    std::vector<std::unique_ptr<Trie>> suffixes;  // [characters before]: what follows them, from the exit on
    Trie all_suffixes;                            // whatever precedes
};

struct Vocabulary {
    Vocabulary(std::vector<std::string> tokens, int vocab_size, std::vector<int> eos);

    Vocabulary(const Vocabulary&) = delete;

    int num_words() const { return (vocab_size + 31) / 32; }

    std::vector<std::string> tokens;
    std::vector<int> eos;
    int vocab_size;
    int longest_chars = 0, longest_bytes = 0;
    Trie trie;
    FreeText free;

private:
    void find_free();
};

inline void set_bit(std::uint32_t* words, int id) { words[id >> 5] |= 1u << (id & 31); }
inline void clear_bit(std::uint32_t* words, int id) { words[id >> 5] &= ~(1u << (id & 31)); }

}  // namespace sapwood
