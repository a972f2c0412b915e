// The bytes that JSON can have in a place, whatever the schema.
#include <array>

#include "cursor.h"

namespace sapwood {
namespace {

std::bitset<256> bytes_of(const char* bytes) {
    std::bitset<256> out;
    for (; *bytes; ++bytes) out.set(static_cast<std::uint8_t>(*bytes));
    return out;
}

}  // namespace

const std::bitset<256>& plausible(Mode mode) {
    static const std::array<std::bitset<256>, 12> table = [] {
        std::array<std::bitset<256>, 12> out;
        for (auto& bytes : out) bytes.set();
        std::bitset<256> blanks = bytes_of(" \n\r\t");
        auto at = [&](Mode m) -> std::bitset<256>& { return out[static_cast<int>(m)]; };
        at(Mode::Value) = blanks | bytes_of("{[\"tfn-0123456789");
        at(Mode::FirstItem) = at(Mode::Value) | bytes_of("]");
        at(Mode::FirstKey) = blanks | bytes_of("\"}");
        at(Mode::NextKey) = blanks | bytes_of("\"");
        at(Mode::Colon) = bytes_of(":");
        at(Mode::After) = blanks | bytes_of(",]}");
        at(Mode::Number) = at(Mode::After) | bytes_of("0123456789.eE+-");
        at(Mode::Literal) = bytes_of("rueals");
        at(Mode::End).reset();
        return out;
    }();
    return table[static_cast<int>(mode)];
}

}  // namespace sapwood
