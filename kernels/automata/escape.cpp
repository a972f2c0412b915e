// Escapes inside JSON texts: \n, \u00e9, \ud83d\ude00.
//
// A text that nothing but its length constrains may use every escape. Elsewhere a character has one spelling, so that
// text can be forced: raw, or escaped where JSON asks for it; in the flexible layout non-ASCII may be escaped as well.

#include <algorithm>

#include "cursor.h"
#include "utf8.h"

namespace sapwood {
namespace {

constexpr char kShort[] = "\"\\/bfnrt";
constexpr std::uint8_t kShortMeans[] = {'"', '\\', '/', 8, 12, 10, 13, 9};

bool has_short(std::uint32_t code) {
    return code < 0x80 && std::find(kShortMeans, kShortMeans + 8, code) != kShortMeans + 8;
}

int hex_value(std::uint8_t b) {
    return b >= '0' && b <= '9'   ? b - '0'
           : b >= 'a' && b <= 'f' ? b - 'a' + 10
           : b >= 'A' && b <= 'F' ? b - 'A' + 10
                                  : -1;
}

}  // namespace

bool Json::read_character(Cursor& c, std::uint32_t code) {
    std::uint8_t bytes[4];
    int length = encode_utf8(code, bytes);
    for (int i = 0; i < length; ++i) {
        c.digest = extend_digest(c.digest, bytes[i]);
        if (!c.text().step(c.at, bytes[i])) return false;
    }
    return text_live(c, c.at);
}

// Whether a character of the range may come. Walks the encodings of the range's ends and of what lies between: bytes
// that are free need not be tried, since a live state has a live way on.
bool Json::character_live(const Cursor& c, std::uint32_t lo, std::uint32_t hi) {
    if (lo > hi) return false;
    if (lo < 0x80) {
        for (std::uint32_t code = lo; code <= std::min(hi, 0x7Fu); ++code) {
            Cursor next = c;
            if (read_character(next, code)) return true;
        }
        return character_live(c, 0x80, hi);
    }
    for (std::uint32_t last : {0x7FFu, 0xFFFFu})
        if (lo <= last && last < hi) return character_live(c, lo, last) || character_live(c, last + 1, hi);
    std::uint8_t first[4], final[4];
    int length = encode_utf8(lo, first);
    encode_utf8(hi, final);
    auto walk = [&](auto&& self, const TextState& at, int i, bool on_first, bool on_final) -> bool {
        if (!on_first && !on_final) return true;
        if (i >= std::min(length, 4)) return true;
        int from = on_first ? first[i] : 0x80, to = on_final ? final[i] : 0xBF;
        for (int b = from; b <= to; ++b) {
            TextState next = at;
            schema.budget.tick();
            if (!c.text().step(next, static_cast<std::uint8_t>(b)) || !text_live(c, next)) continue;
            if (self(self, next, i + 1, on_first && b == from, on_final && b == to)) return true;
        }
        return false;
    };
    return walk(walk, c.at, 0, true, true);
}

bool Json::escape_live(const Cursor& c) {
    bool unbounded = c.text().max_length < 0;
    if (!strict(c)) return unbounded || character_live(c, 'a', 'a');
    for (std::uint8_t code : kShortMeans)
        if (code != '/' && character_live(c, code, code)) return true;
    return character_live(c, 0, 0x1F) || (!schema.layout.compact && character_live(c, 0x7F, 0x10FFFF));
}

bool Json::step_escape(Cursor& c, std::uint8_t byte) {
    switch (c.escape) {
        case escape::Backslash: {
            if (byte == 'u') {
                bool live = !strict(c) || character_live(c, 0, 0x1F) ||
                            (!schema.layout.compact && character_live(c, 0x7F, 0x10FFFF));
                c.escape = escape::Hex0, c.unit = c.high = 0;
                return live;
            }
            const char* found = std::find(kShort, kShort + 8, static_cast<char>(byte));
            if (found == kShort + 8 || (byte == '/' && strict(c) && schema.layout.compact)) return false;
            c.escape = escape::None;
            return read_character(c, kShortMeans[found - kShort]);
        }
        case escape::LowBackslash: c.escape = escape::LowU; return byte == '\\';
        case escape::LowU: c.escape = escape::Hex0, c.unit = 0; return byte == 'u';
        default: return step_hex(c, byte);
    }
}

bool Json::step_hex(Cursor& c, std::uint8_t byte) {
    int value = hex_value(byte);
    if (value < 0 || (strict(c) && byte >= 'A' && byte <= 'F')) return false;
    c.unit = static_cast<std::uint16_t>(c.unit << 4 | value);
    int left = escape::Hex3 - c.escape;
    std::uint32_t lo = static_cast<std::uint32_t>(c.unit) << 4 * left, hi = lo | ((1u << 4 * left) - 1);
    bool loose = !strict(c) && c.text().max_length < 0;
    auto may = [&](std::uint32_t from, std::uint32_t to) {
        if (from > to) return false;
        if (loose) return true;
        if (!strict(c)) return character_live(c, from, to);
        if (from < 0x20) {
            for (std::uint32_t code = from; code <= std::min(to, 0x1Fu); ++code)
                if (!has_short(code) && character_live(c, code, code)) return true;
        }
        return !schema.layout.compact && character_live(c, std::max(from, 0x7Fu), to);
    };
    bool live;
    if (c.high) {
        auto whole = [&](std::uint32_t low) { return 0x10000 + ((c.high - 0xD800u) << 10) + (low - 0xDC00); };
        std::uint32_t from = std::max(lo, 0xDC00u), to = std::min(hi, 0xDFFFu);
        live = from <= to && may(whole(from), whole(to));
        if (live && left == 0) {
            std::uint32_t code = whole(c.unit);
            c.escape = escape::None, c.high = 0, c.unit = 0;
            return read_character(c, code);
        }
    } else {
        std::uint32_t from = std::max(lo, 0xD800u), to = std::min(hi, 0xDBFFu);
        live = may(lo, std::min(hi, 0xD7FFu)) || may(std::max(lo, 0xE000u), hi) ||
               (from <= to && may(0x10000 + ((from - 0xD800) << 10), 0x10000 + ((to - 0xD800) << 10) + 0x3FF));
        if (live && left == 0) {
            if (c.unit >= 0xD800 && c.unit <= 0xDBFF) {
                c.high = c.unit, c.escape = escape::LowBackslash;
                return true;
            }
            std::uint32_t code = c.unit;
            c.escape = escape::None, c.unit = 0;
            return read_character(c, code);
        }
    }
    ++c.escape;
    return live;
}

}  // namespace sapwood
