#include "trie.h"

#include <algorithm>
#include <map>

#include "utf8.h"

namespace sapwood {

Trie::Trie(std::vector<std::pair<std::string, int>> entries) {
    std::erase_if(entries, [](const auto& entry) { return entry.first.size() > 250; });
    std::sort(entries.begin(), entries.end());
    std::vector<int> path{0};  // open nodes, root first
    bytes.push_back(0), depths.push_back(0), end.push_back(0), first_token.push_back(0);
    std::string open;
    for (const auto& [text, token] : entries) {
        std::size_t common = 0;
        while (common < open.size() && common < text.size() && open[common] == text[common]) ++common;
        while (path.size() > common + 1) {
            end[path.back()] = size();
            path.pop_back();
        }
        open.resize(common);
        while (open.size() < text.size()) {
            path.push_back(size());
            bytes.push_back(static_cast<std::uint8_t>(text[open.size()]));
            depths.push_back(static_cast<std::uint8_t>(open.size() + 1));
            end.push_back(0);
            first_token.push_back(static_cast<int>(tokens.size()));
            open.push_back(text[open.size()]);
        }
        tokens.push_back(token);
    }
    for (int node : path) end[node] = size();
    first_token.push_back(static_cast<int>(tokens.size()));
}

int Trie::child(int node, std::uint8_t byte) const {
    for (int at = node + 1; at < end[node]; at = end[at])
        if (bytes[at] == byte) return at;
    return -1;
}

Vocabulary::Vocabulary(std::vector<std::string> all, int vocab_size, std::vector<int> eos)
    : tokens(std::move(all)), eos(std::move(eos)), vocab_size(vocab_size) {
    tokens.resize(std::min<std::size_t>(tokens.size(), vocab_size));
    std::erase_if(this->eos, [&](int id) { return id < 0 || id >= vocab_size; });
    for (int id : this->eos)
        if (id < static_cast<int>(tokens.size())) tokens[id].clear();
    std::vector<std::pair<std::string, int>> entries;
    for (std::size_t id = 0; id < tokens.size(); ++id) {
        if (tokens[id].empty()) continue;
        entries.emplace_back(tokens[id], static_cast<int>(id));
        longest_bytes = std::max(longest_bytes, static_cast<int>(tokens[id].size()));
        longest_chars = std::max<int>(longest_chars, std::count_if(tokens[id].begin(), tokens[id].end(),
                                                                   [](char c) { return (c & 0xC0) != 0x80; }));
    }
    trie = Trie(std::move(entries));
    find_free();
}

// One walk over the tree, following UTF-8: `need` continuation bytes, the first of them within [low, high].
void Vocabulary::find_free() {
    struct Step {
        int need, low, high, chars;
        std::string text;
    };
    std::vector<Step> stack(256);
    stack[0] = {0, 0x80, 0xBF, 0, ""};
    free.inside.assign(num_words(), 0);
    std::map<int, std::vector<std::pair<std::string, int>>> suffixes;
    std::vector<std::pair<std::string, int>> all;
    for (int node = 1; node < trie.size();) {
        int depth = trie.depths[node], b = trie.bytes[node];
        const Step& before = stack[depth - 1];
        Step next{0, 0x80, 0xBF, before.chars, before.text + static_cast<char>(b)};
        bool fits;
        if (before.need) {
            fits = b >= before.low && b <= before.high;
            next.need = before.need - 1;
        } else if (b == '"' || b == '\\') {
            free.exits.push_back({node, before.chars, before.text});
            for (const int* token = trie.tokens_begin(node); token != trie.subtree_end(node); ++token) {
                std::string suffix = tokens[*token].substr(depth - 1);
                suffixes[before.chars].emplace_back(suffix, *token);
                all.emplace_back(std::move(suffix), *token);
            }
            fits = false;
        } else {
            fits = b >= 0x20 && utf8_length(b) > 0;
            next.need = fits ? utf8_length(b) - 1 : 0;
            ++next.chars;
            if (b == 0xE0) next.low = 0xA0;
            if (b == 0xED) next.high = 0x9F;
            if (b == 0xF0) next.low = 0x90;
            if (b == 0xF4) next.high = 0x8F;
        }
        if (!fits) {
            node = trie.end[node];
            continue;
        }
        for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token) {
            set_bit(free.inside.data(), *token);
            free.by_chars.emplace_back(next.chars, *token);
        }
        stack[depth] = std::move(next);
        ++node;
    }
    std::sort(free.by_chars.begin(), free.by_chars.end());
    for (auto& [chars, entries] : suffixes) {
        if (static_cast<int>(free.suffixes.size()) <= chars) free.suffixes.resize(chars + 1);
        free.suffixes[chars] = std::make_unique<Trie>(std::move(entries));
    }
    free.all_suffixes = Trie(std::move(all));
}

}  // namespace sapwood
