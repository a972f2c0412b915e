// UTF-8, by hand.
#pragma once

#include <cstdint>

namespace sapwood {

// Writes a code point; returns its number of bytes.
inline int encode_utf8(std::uint32_t c, std::uint8_t (&out)[4]) {
    if (c < 0x80) return out[0] = c, 1;
    if (c < 0x800) return out[0] = 0xC0 | c >> 6, out[1] = 0x80 | (c & 63), 2;
    if (c < 0x10000) {
        out[0] = 0xE0 | c >> 12, out[1] = 0x80 | (c >> 6 & 63), out[2] = 0x80 | (c & 63);
        return 3;
    }
    out[0] = 0xF0 | c >> 18, out[1] = 0x80 | (c >> 12 & 63), out[2] = 0x80 | (c >> 6 & 63), out[3] = 0x80 | (c & 63);
    return 4;
}

// The number of bytes that a character with this first byte has; 0: none begins so.
inline int utf8_length(std::uint8_t b) {
    return b < 0x80 ? 1 : b < 0xC2 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 0;
}

}  // namespace sapwood
