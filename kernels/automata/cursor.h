// A place in a text that follows a schema, byte by byte.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <string_view>

#include "frame.h"
#include "number.h"

namespace sapwood {

enum class Mode : std::uint8_t {
    Raw,        // a text without JSON around it
    Value,      // before a value
    FirstItem,  // after [
    FirstKey,   // after {
    NextKey,    // after a comma
    Key,        // inside a key
    Colon,      // after a key
    Text,       // inside a text
    Number,
    Literal,  // inside true, false or null
    After,    // after a value
    End,      // after the whole
};

struct Cursor {
    Mode mode = Mode::Value;
    std::uint8_t blanks = 0;  // in a row
    std::uint8_t escape = 0;  // how far inside an escape; Escape below
    Digits digits = Digits::Start;
    std::uint8_t size = 0;         // of `number`
    std::uint16_t unit = 0;        // hexadecimal digits of an escape so far
    std::uint16_t high = 0;        // a surrogate that waits for its second
    std::uint32_t position = 0;    // bytes so far
    std::uint32_t key_begin = 0;   // where the key's text began
    FramePtr frame;                // the innermost open container
    const Roots* roots = nullptr;  // of the value
    const Plan* plan = nullptr;    // of the value, its kind being known
    TextState at;
    std::uint64_t digest = 0;       // of the text so far, where somebody will ask
    const char* literal = nullptr;  // what is still to come
    char number[NumberSpec::kMaxSize];

    TextSpec& text() const { return mode == Mode::Key ? *frame->plan->object->text : *plan->text; }
    std::string_view written() const { return {number, size}; }
    bool in_text() const { return mode == Mode::Text || mode == Mode::Key || mode == Mode::Raw; }
    bool at_character() const { return in_text() && !escape; }  // of a text; not inside an escape
};

// A quick look, before a cursor is copied for a byte that can't come anyway.
const std::bitset<256>& plausible(Mode mode);

// The state of a text that is not of the list, some characters on.
inline TextState later(const Cursor& cursor, int state, int chars) {
    TextState at;
    at.state = state;
    at.depth = cursor.at.depth + chars;
    at.chars = std::min(cursor.at.chars + chars, cursor.text().counted);
    return at;
}

namespace escape {
enum : std::uint8_t { None, Backslash, Hex0, Hex1, Hex2, Hex3, LowBackslash, LowU };
}

class Json {
public:
    Json(Schema& schema, const Roots* roots, bool raw) : schema(schema), roots_(roots), raw_(raw) {}

    Cursor start();
    // Reads a byte; false if it may not come, and the cursor is then worthless.
    bool step(Cursor& c, std::uint8_t byte);
    bool may_end(const Cursor& c);
    std::uint64_t hash(const Cursor& c);
    // Whether the text that is being written may go on from `at`, where it was `c.at`.
    bool text_live(const Cursor& c, const TextState& at);
    // Texts whose escapes are not up to the writer: each has one spelling, or few.
    bool strict(const Cursor& c);
    // Whether the text that is being written will be compared with others.
    bool wants_digest(const Cursor& c);

    Schema& schema;

private:
    static constexpr int kMaxBlanks = 8;
    static constexpr int kMaxDepth = 400;  // containers in containers; Python's parser allows few more

    bool blank(Cursor& c, std::uint8_t byte);
    bool begin_value(Cursor& c, std::uint8_t byte);
    bool begin_container(Cursor& c, Kind kind);
    bool begin_text(Cursor& c);
    bool begin_literal(Cursor& c, Kind kind, const char* rest);
    bool step_text(Cursor& c, std::uint8_t byte);
    bool step_escape(Cursor& c, std::uint8_t byte);
    bool step_hex(Cursor& c, std::uint8_t byte);
    bool step_number(Cursor& c, std::uint8_t byte);
    bool step_after(Cursor& c, std::uint8_t byte);
    bool read_character(Cursor& c, std::uint32_t code);
    bool character_live(const Cursor& c, std::uint32_t lo, std::uint32_t hi);
    bool escape_live(const Cursor& c);
    bool end_key(Cursor& c);
    bool end_text(Cursor& c);
    bool end_number(Cursor& c);
    bool end_container(Cursor& c);
    bool finish(Cursor& c, const std::vector<Tri>& verdicts, std::uint64_t digest);
    bool any_key(const Cursor& c);
    bool fresh_listed(const Cursor& c, const TextState& at);
    bool number_live(const Cursor& c);

    const Roots* roots_;
    bool raw_;
};

}  // namespace sapwood
