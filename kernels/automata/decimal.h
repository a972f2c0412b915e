// Numbers as they are written: exact, of any size.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sapwood {

// (-1)^negative * digits * 10^exponent; digits without leading or trailing zeros, "" for zero.
struct Decimal {
    bool negative = false;
    std::string digits;
    long exponent = 0;

    bool zero() const { return digits.empty(); }
    bool integer() const { return zero() || exponent >= 0; }
    std::string canonical() const;
};

// A JSON number, complete. Whether `text` is one was checked before.
Decimal parse_decimal(std::string_view text);

std::strong_ordering compare(const Decimal& a, const Decimal& b);

// Whether a / b is an integer; b is positive with at most 18 digits.
bool multiple_of(const Decimal& a, const Decimal& b);

// Whether lo <= k * step < or <= hi for some integer k. True as well when the figures are too large to tell.
bool has_multiple(const Decimal& lo, bool lo_open, const Decimal& hi, bool hi_open, const Decimal& step);

// The least common multiple; zero if it has more than 18 digits.
Decimal common_multiple(const Decimal& a, const Decimal& b);

}  // namespace sapwood
