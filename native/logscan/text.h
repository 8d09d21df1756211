// Small tools over bytes: searching, delimiters, integers. Nothing here allocates or throws.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace logscan {

inline constexpr std::size_t npos = std::string_view::npos;

// memmem is several times faster than string_view::find on long lines.
inline std::size_t find(std::string_view text, std::string_view needle) {
    const void* hit = ::memmem(text.data(), text.size(), needle.data(), needle.size());
    return hit == nullptr ? npos
                          : static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

inline bool contains(std::string_view text, std::string_view needle) {
    return find(text, needle) != npos;
}

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Blanks and every control byte: CR of progress bars, NUL of sparse files, ESC of colours.
inline bool is_blank(char c) { return static_cast<unsigned char>(c) <= ' '; }

inline constexpr std::array<signed char, 256> make_hex_values() {
    std::array<signed char, 256> values{};
    for (auto& value : values) {
        value = -1;
    }
    for (int i = 0; i < 10; ++i) {
        values['0' + i] = static_cast<signed char>(i);
    }
    for (int i = 0; i < 6; ++i) {
        values['a' + i] = values['A' + i] = static_cast<signed char>(10 + i);
    }
    return values;
}
inline constexpr std::array<signed char, 256> hex_values = make_hex_values();

inline int hex_value(char c) { return hex_values[static_cast<unsigned char>(c)]; }

// Eight characters at once: how many of them, from the first on, are hexadecimal digits, and their
// value. Pointers are half of a COLL line; a loop over their digits would be half of the scan.
struct HexRun {
    int digits;
    std::uint64_t value;
};

inline HexRun hex_run(const char* p) {
    constexpr std::uint64_t ones = 0x0101010101010101ull;
    constexpr std::uint64_t high = 0x80 * ones;
    std::uint64_t word;
    std::memcpy(&word, p, 8);  // the first character is the lowest byte: little endian only
    // Adding 0x80 - c sets the high bit of each byte that is at least c.
    const std::uint64_t low = word & ~high;
    const std::uint64_t number = (low + (0x80 - '0') * ones) & ~(low + (0x80 - '9' - 1) * ones);
    const std::uint64_t folded = low | 0x20 * ones;
    const std::uint64_t letter =
        (folded + (0x80 - 'a') * ones) & ~(folded + (0x80 - 'f' - 1) * ones);
    const std::uint64_t other = ~((number | letter) & ~word) & high;
    const int digits = other == 0 ? 8 : __builtin_ctzll(other) / 8;
    if (digits == 0) {
        return {0, 0};
    }
    word <<= 64 - 8 * digits;  // characters that are no digits go, zeros lead
    std::uint64_t value = (word & 0x0f * ones) + 9 * (word >> 6 & ones);
    value = (value << 4 | value >> 8) & 0x00ff00ff00ff00ffull;
    value = (value << 8 | value >> 16) & 0x0000ffff0000ffffull;
    value = (value << 16 | value >> 32) & 0xffffffffull;
    return {digits, value};
}
static_assert(std::endian::native == std::endian::little);

// A position inside a record. `take_*` move past what they read and say whether it was whole:
// at least one digit, no overflow, and nothing glued to the last digit.
struct Cursor {
    const char* p;
    const char* end;

    explicit Cursor(std::string_view text) : p(text.data()), end(text.data() + text.size()) {}

    bool done() const { return p == end; }
    std::size_t left() const { return static_cast<std::size_t>(end - p); }
    std::string_view rest() const { return {p, left()}; }

    void skip_blanks() {
        while (p != end && is_blank(*p)) {
            ++p;
        }
    }

    void skip_word() {
        while (p != end && !is_blank(*p)) {
            ++p;
        }
    }

    std::string_view take_word() {
        const char* start = p;
        skip_word();
        return {start, static_cast<std::size_t>(p - start)};
    }

    // Inlined for literals: one or two machine-word comparisons.
    template <std::size_t N>
    bool take(const char (&literal)[N]) {
        constexpr std::size_t length = N - 1;
        if (left() < length || std::memcmp(p, literal, length) != 0) {
            return false;
        }
        p += length;
        return true;
    }

    // The same of a text whose length is known when this is compiled.
    template <std::size_t length>
    bool take(std::string_view text) {
        if (left() < length || std::memcmp(p, text.data(), length) != 0) {
            return false;
        }
        p += length;
        return true;
    }

    bool at_delimiter() const { return p == end || is_blank(*p) || *p == ']' || *p == ','; }

    bool take_decimal(std::uint64_t& value) {
        const char* start = p;
        std::uint64_t sum = 0;
        while (p != end && is_digit(*p)) {
            sum = sum * 10 + static_cast<unsigned char>(*p - '0');
            ++p;
        }
        value = sum;
        const std::ptrdiff_t digits = p - start;
        return digits > 0 && (digits < 20 || fits_decimal(start, digits));
    }

    bool take_signed(std::int64_t& value) {
        const bool negative = p != end && *p == '-';
        p += negative ? 1 : 0;
        std::uint64_t magnitude = 0;
        const bool ok = take_decimal(magnitude) && magnitude <= INT64_MAX;
        value = negative ? -static_cast<std::int64_t>(magnitude & INT64_MAX)
                         : static_cast<std::int64_t>(magnitude & INT64_MAX);
        return ok;
    }

    bool take_int32(std::int32_t& value) {
        if (left() >= 2 && is_digit(p[0]) && !is_digit(p[1])) [[likely]] {
            value = *p++ - '0';
            return true;
        }
        std::int64_t wide = 0;
        const bool ok = take_signed(wide) && wide >= INT32_MIN && wide <= INT32_MAX;
        value = ok ? static_cast<std::int32_t>(wide) : -1;
        return ok;
    }

    [[gnu::always_inline]] bool take_hex(std::uint64_t& value) {
        const char* start = p;
        std::uint64_t sum = 0;
        while (left() >= 8) {
            const HexRun run = hex_run(p);
            sum = run.digits == 8 ? sum << 32 | run.value : sum << 4 * run.digits | run.value;
            p += run.digits;
            if (run.digits < 8) {
                value = sum;
                return p != start && p - start <= 16;
            }
        }
        for (int digit; p != end && (digit = hex_value(*p)) >= 0; ++p) {
            sum = sum << 4 | static_cast<std::uint64_t>(digit);
        }
        value = sum;
        return p != start && p - start <= 16;
    }

    // %p of glibc: 0x1f00 or (nil). `nil` is left alone when a number stands there.
    bool take_pointer(std::uint64_t& value, bool& nil) {
        if (take("0x")) [[likely]] {
            return take_hex(value);
        }
        value = 0;
        nil = take("(nil)");
        return nil;
    }

private:
    // Twenty digits may exceed 2^64: compare with its largest value as text.
    static bool fits_decimal(const char* start, std::ptrdiff_t digits) {
        return digits == 20 && std::memcmp(start, "18446744073709551615", 20) <= 0;
    }
};

}  // namespace logscan
