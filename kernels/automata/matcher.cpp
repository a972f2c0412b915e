#include "matcher.h"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <unordered_set>

namespace sapwood {

Grammar::Grammar(std::shared_ptr<Schema> schema_, int root, bool raw, std::shared_ptr<Vocabulary> vocabulary_)
    : schema(std::move(schema_)),
      vocabulary(std::move(vocabulary_)),
      json(*schema, schema->roots({root}, true), raw),
      masks(json, *vocabulary) {}

Matcher::Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {
    cursors_.push_back(grammar_->json.start());
    ends_.push_back(0);
}

void Matcher::fill_mask(std::uint32_t* words) {
    start_clock();
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
    if (ended_ || id < 0 || id >= static_cast<int>(vocabulary.tokens.size()) || vocabulary.tokens[id].empty())
        return false;
    return advance_bytes(vocabulary.tokens[id]);
}

void Matcher::start_clock() { grammar_->schema->budget.start(kSecondsPerCall); }

bool Matcher::advance_bytes(const std::string& bytes) {
    start_clock();
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

std::vector<Committed> Matcher::committed() {
    start_clock();
    return ended_ ? std::vector<Committed>{} : grammar_->masks.committed(cursors_.back());
}

std::string Matcher::forced(int most) {
    start_clock();
    std::string out;
    if (ended_) return out;
    Cursor at = cursors_.back();
    while (static_cast<int>(out.size()) < most) {
        int byte = grammar_->masks.forced_byte(at);
        if (byte < 0) break;
        grammar_->json.step(at, static_cast<std::uint8_t>(byte));
        out.push_back(static_cast<char>(byte));
    }
    return out;
}

std::vector<int> Matcher::allowed_bytes() {
    start_clock();
    std::vector<int> out;
    for (int byte = 0; byte < 256 && !ended_; ++byte) {
        Cursor next = cursors_.back();
        if (grammar_->json.step(next, static_cast<std::uint8_t>(byte))) out.push_back(byte);
    }
    return out;
}

bool Matcher::in_text() const { return cursors_.back().in_text(); }

int Matcher::toward_end() {
    start_clock();
    const Cursor& c = cursors_.back();
    if (ended_ || c.escape) return -1;
    if (c.mode == Mode::Key) return toward_known_key(c);
    return c.mode == Mode::Text || c.mode == Mode::Raw ? toward_text_end(c) : -1;
}

// Breadth first, by one byte of each class.
int Matcher::toward_text_end(const Cursor& c) {
    constexpr std::size_t kBound = 1500;
    Json& json = grammar_->json;
    TextSpec& text = c.text();
    std::deque<std::pair<Cursor, int>> queue{{c, -1}};
    std::unordered_set<std::uint64_t> seen;
    while (!queue.empty() && seen.size() < kBound) {
        auto [here, first] = std::move(queue.front());
        queue.pop_front();
        Cursor end = here;
        if (c.mode == Mode::Raw ? json.may_end(here) : json.step(end, '"')) return first;
        for (int cls = text.product.num_classes(); cls-- > 0;) {
            std::uint8_t byte = text.product.representative(cls);
            Cursor next = here;
            if (byte == '"' || byte == '\\' || byte < 0x20 || !json.step(next, byte)) continue;
            if (seen.insert(json.hash(next)).second) queue.emplace_back(std::move(next), first < 0 ? byte : first);
        }
    }
    return -1;
}

// The next byte of a key that the schema names, if possible of one that is required.
int Matcher::toward_known_key(const Cursor& c) {
    const Frame& frame = *c.frame;
    const ObjectSpec& object = *frame.plan->object;
    std::vector<bool> needed(object.num_keys(), false);
    for (std::size_t atom = 0; atom < frame.plan->atoms.size(); ++atom)
        if (object.key_of_atom[atom] >= 0) needed[object.key_of_atom[atom]] = true;
    int best = -1;
    for (int listed = c.at.lo; listed < c.at.hi; ++listed) {
        int key = object.listed_key(listed);
        if (!open_key(*grammar_->schema, frame, key)) continue;
        if (best < 0 || needed[key]) best = listed;
        if (needed[key]) break;
    }
    if (best < 0) return -1;
    const std::string& text = object.text->list.texts[best];
    auto at = static_cast<std::size_t>(c.at.depth);
    return at == text.size() ? '"' : static_cast<std::uint8_t>(text[at]);
}

bool Matcher::extends(const std::string& bytes, const std::string& tail) {
    start_clock();
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
