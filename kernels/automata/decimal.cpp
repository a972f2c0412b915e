#include "decimal.h"

#include <algorithm>
#include <numeric>

namespace sapwood {
namespace {

using Wide = __int128;

// value * 10^-exponent as an integer, if it has at most 36 digits.
bool scaled(const Decimal& value, long exponent, Wide& out) {
    out = 0;
    if (value.zero()) return true;
    long zeros = value.exponent - exponent;
    if (zeros < 0 || static_cast<long>(value.digits.size()) + zeros > 36) return false;
    for (char digit : value.digits) out = out * 10 + (digit - '0');
    while (zeros-- > 0) out *= 10;
    if (value.negative) out = -out;
    return true;
}

Decimal from_integer(Wide value, long exponent) {
    Decimal out;
    out.negative = value < 0;
    if (out.negative) value = -value;
    for (; value > 0; value /= 10)
        out.digits.insert(out.digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    out.exponent = exponent;
    while (!out.digits.empty() && out.digits.back() == '0') out.digits.pop_back(), ++out.exponent;
    return out;
}

}  // namespace

std::string Decimal::canonical() const {
    return zero() ? "0" : (negative ? "-" : "") + digits + "e" + std::to_string(exponent);
}

Decimal parse_decimal(std::string_view text) {
    Decimal out;
    std::size_t i = 0;
    if (i < text.size() && text[i] == '-') out.negative = true, ++i;
    bool fraction = false;
    for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
        if (text[i] == '.') {
            fraction = true;
            continue;
        }
        if (text[i] != '0' || !out.digits.empty()) out.digits.push_back(text[i]);
        out.exponent -= fraction;
    }
    if (i + 1 < text.size()) {
        std::size_t at = i + 1;
        bool minus = text[at] == '-';
        if (text[at] == '-' || text[at] == '+') ++at;
        long exponent = 0;
        for (; at < text.size(); ++at) exponent = std::min(exponent * 10 + (text[at] - '0'), 1000000000l);
        out.exponent += minus ? -exponent : exponent;
    }
    while (!out.digits.empty() && out.digits.back() == '0') out.digits.pop_back(), ++out.exponent;
    if (out.digits.empty()) out = Decimal{};
    return out;
}

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
    auto sign = [](const Decimal& d) { return d.zero() ? 0 : d.negative ? -1 : 1; };
    if (sign(a) != sign(b) || sign(a) == 0) return sign(a) <=> sign(b);
    const Decimal& x = a.negative ? b : a;
    const Decimal& y = a.negative ? a : b;
    long x_size = static_cast<long>(x.digits.size()) + x.exponent,
         y_size = static_cast<long>(y.digits.size()) + y.exponent;
    if (x_size != y_size) return x_size <=> y_size;
    return x.digits.compare(y.digits) <=> 0;
}

bool multiple_of(const Decimal& a, const Decimal& b) {
    if (a.zero()) return true;
    if (a.exponent < b.exponent) return false;  // a's last digit, which is not 0, lies below b's
    std::uint64_t divisor = std::stoull(b.digits);
    auto times = [divisor](std::uint64_t x, std::uint64_t y) {
        return static_cast<std::uint64_t>(static_cast<unsigned __int128>(x) * y % divisor);
    };
    std::uint64_t rest = 0;
    for (char digit : a.digits) rest = (times(rest, 10) + (digit - '0')) % divisor;
    std::uint64_t power = 10 % divisor;
    for (long zeros = a.exponent - b.exponent; zeros > 0; zeros >>= 1, power = times(power, power))
        if (zeros & 1) rest = times(rest, power);
    return rest % divisor == 0;
}

bool has_multiple(const Decimal& lo, bool lo_open, const Decimal& hi, bool hi_open, const Decimal& step) {
    long exponent = std::min({lo.zero() ? 0 : lo.exponent, hi.zero() ? 0 : hi.exponent, step.exponent});
    Wide low, high, unit;
    if (!scaled(lo, exponent, low) || !scaled(hi, exponent, high) || !scaled(step, exponent, unit)) return true;
    Wide first = low / unit;
    while (first * unit < low || (lo_open && first * unit == low)) ++first;
    while ((first - 1) * unit > low || (!lo_open && (first - 1) * unit == low)) --first;
    return hi_open ? first * unit < high : first * unit <= high;
}

Decimal common_multiple(const Decimal& a, const Decimal& b) {
    long exponent = std::min(a.exponent, b.exponent);
    Wide x, y;
    if (!scaled(a, exponent, x) || !scaled(b, exponent, y) || x >= Wide(1e18) || y >= Wide(1e18)) return {};
    Wide common = x / std::gcd(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y));
    if (common > Wide(1e18) / y) return {};
    return from_integer(common * y, exponent);
}

}  // namespace sapwood
