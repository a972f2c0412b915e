#include "matcher.h"

#include <algorithm>
#include <stdexcept>

namespace sapwood {

Grammar::Grammar(std::shared_ptr<Schema> schema_, int root, bool raw, std::shared_ptr<Vocabulary> vocabulary_)
    : schema(std::move(schema_)), vocabulary(std::move(vocabulary_)),
      json(*schema, schema->roots({root}, true), raw), masks(json, *vocabulary) {}

Matcher::Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {
    cursors_.push_back(grammar_->json.start());
    ends_.push_back(0);
}

void Matcher::fill_mask(std::uint32_t* words) {
    const Vocabulary& vocabulary = *grammar_->vocabulary;
    if (ended_) {
        std::fill(words, words + vocabulary.num_words(), 0);
    } else {
        const auto& mask = grammar_->masks.at(cursors_.back());
        std::copy(mask.begin(), mask.end(), words);
    }
    if (may_end())
        for (int id : vocabulary.eos) set_bit(words, id);
}

bool Matcher::advance(int id) {
    const Vocabulary& vocabulary = *grammar_->vocabulary;
    if (std::find(vocabulary.eos.begin(), vocabulary.eos.end(), id) != vocabulary.eos.end()) {
        if (!may_end()) return false;
        ++ended_;
        return true;
    }
    if (ended_ || id < 0 || id >= static_cast<int>(vocabulary.tokens.size()) || vocabulary.tokens[id].empty()) return false;
    return advance_bytes(vocabulary.tokens[id]);
}

bool Matcher::advance_bytes(const std::string& bytes) {
    Cursor next = cursors_.back();
    for (char c : bytes)
        if (!grammar_->json.step(next, static_cast<std::uint8_t>(c))) return false;
    cursors_.push_back(std::move(next));
    text_ += bytes;
    ends_.push_back(static_cast<int>(text_.size()));
    return true;
}

void Matcher::rollback(int n) {
    if (n < 0 || n > ended_ + size()) throw std::invalid_argument("more tokens are to be rolled back than were taken");
    int ends = std::min(n, ended_);
    ended_ -= ends;
    cursors_.resize(cursors_.size() - (n - ends));
    ends_.resize(cursors_.size());
    text_.resize(ends_.back());
}

int Matcher::forced_byte(const Cursor& cursor) {
    if (grammar_->json.may_end(cursor)) return -1;
    int found = -1;
    for (int byte = 0; byte < 256; ++byte) {
        Cursor next = cursor;
        if (!grammar_->json.step(next, static_cast<std::uint8_t>(byte))) continue;
        if (found >= 0) return -1;
        found = byte;
    }
    return found;
}

std::string Matcher::forced(int most) {
    std::string out;
    if (ended_) return out;
    Cursor at = cursors_.back();
    while (static_cast<int>(out.size()) < most) {
        int byte = forced_byte(at);
        if (byte < 0) break;
        grammar_->json.step(at, static_cast<std::uint8_t>(byte));
        out.push_back(static_cast<char>(byte));
    }
    return out;
}

std::vector<int> Matcher::allowed_bytes() {
    std::vector<int> out;
    for (int byte = 0; byte < 256 && !ended_; ++byte) {
        Cursor next = cursors_.back();
        if (grammar_->json.step(next, static_cast<std::uint8_t>(byte))) out.push_back(byte);
    }
    return out;
}

bool Matcher::extends(const std::string& bytes, const std::string& tail) {
    Cursor at = cursors_.back();
    for (char c : bytes)
        if (!grammar_->json.step(at, static_cast<std::uint8_t>(c))) return false;
    return grammar_->masks.extends(at, tail);
}

bool Matcher::may_end() { return ended_ || grammar_->json.may_end(cursors_.back()); }

bool Matcher::is_done() {
    if (ended_) return true;
    if (!may_end()) return false;
    const Cursor& at = cursors_.back();
    return at.mode == Mode::End || allowed_bytes().empty();
}

std::string Matcher::text_from(int token) const { return text_.substr(ends_[token]); }

std::uint64_t Matcher::place() { return mix(grammar_->json.hash(cursors_.back()), ended_ > 0); }

}  // namespace sapwood
