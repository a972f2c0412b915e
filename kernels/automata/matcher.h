// A grammar for one vocabulary, and the matchers that follow texts under it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mask.h"

namespace sapwood {

class Grammar {
public:
    Grammar(std::shared_ptr<Schema> schema, int root, bool raw, std::shared_ptr<Vocabulary> vocabulary);
    Grammar(const Grammar&) = delete;

    std::shared_ptr<Schema> schema;
    std::shared_ptr<Vocabulary> vocabulary;
    Json json;
    Masks masks;
};

class Matcher {
public:
    explicit Matcher(std::shared_ptr<Grammar> grammar);

    void fill_mask(std::uint32_t* words);
    // False, and nothing changed, if the token is not allowed.
    bool advance(int id);
    bool advance_bytes(const std::string& bytes);  // as if they were one token
    void rollback(int n);
    std::string forced(int most);
    std::vector<int> allowed_bytes();
    std::vector<Committed> committed();
    bool in_text() const;  // or a key
    // A byte on a short way to the end of the text or key that is being written, for samples; -1: unknown.
    int toward_end();
    // Whether, after `bytes`, a token longer than `tail` that begins with it may come.
    bool extends(const std::string& bytes, const std::string& tail);
    bool may_end();
    bool is_done();
    int size() const { return static_cast<int>(cursors_.size()) - 1; }
    std::string text_from(int token) const;  // bytes of the tokens from this one on
    std::uint64_t place();                   // equal for equal futures

private:
    // One call may not hold up everybody else's step.
    static constexpr double kSecondsPerCall = 2.0;
    void start_clock();
    int toward_known_key(const Cursor& c);
    int toward_text_end(const Cursor& c);
    std::shared_ptr<Grammar> grammar_;
    std::vector<Cursor> cursors_;  // after each token
    std::vector<int> ends_;        // bytes after each token
    std::string text_;
    int ended_ = 0;  // EOS tokens
};

}  // namespace sapwood
