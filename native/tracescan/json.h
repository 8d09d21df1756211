// A cursor over JSON text that takes plain values and gives up on everything else.
//
// Whatever it accepts is valid JSON (RFC 8259) in valid UTF-8. It gives up by an exception, which a
// trace hardly ever causes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tracescan {

// The text is not JSON, ends too early, or holds a value that is not plain.
struct NotPlain {};

// A string between its quotes, with its escapes.
struct Text {
    std::string_view raw;
    bool escaped = false;
};

// A decimal number: `digits` / 10^`decimals`.
struct Decimal {
    std::uint64_t digits = 0;
    int decimals = 0;
    bool negative = false;
};

class Cursor {
public:
    explicit Cursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

    const char* at() const { return at_; }
    bool done() const { return at_ == end_; }

    char peek() const {
        if (at_ == end_) [[unlikely]] {
            throw NotPlain();
        }
        return *at_;
    }

    void blanks() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
            ++at_;
        }
    }

    void take(char wanted) {
        if (peek() != wanted) [[unlikely]] {
            throw NotPlain();
        }
        ++at_;
    }

    // Takes a byte if it is the next one.
    bool took(char wanted) {
        if (at_ == end_ || *at_ != wanted) {
            return false;
        }
        ++at_;
        return true;
    }

    bool took_null() {
        if (peek() != 'n') {
            return false;
        }
        word("null");
        return true;
    }

    // A string, its quotes included.
    Text string() {
        take('"');
        Text found;
        const char* const begin = at_;
        for (;;) {
            plain_characters();
            const char next = peek();
            if (next == '"') {
                found.raw = {begin, static_cast<std::size_t>(at_ - begin)};
                ++at_;
                return found;
            }
            if (next == '\\') {
                found.escaped = true;
                escape();
            } else {
                character();
            }
        }
    }

    // An integer of at most 18 digits.
    std::int64_t small_integer() {
        const bool negative = took('-');
        const char* const begin = at_;
        std::int64_t value = 0;
        while (at_ != end_ && is_digit(*at_)) {
            if (at_ - begin == 18) [[unlikely]] {
                throw NotPlain();
            }
            value = value * 10 + (*at_ - '0');
            ++at_;
        }
        if (at_ == begin || (*begin == '0' && at_ - begin > 1)) [[unlikely]] {
            throw NotPlain();
        }
        refuse_fraction();
        return negative ? -value : value;
    }

    // A number without exponent, of at most 19 digits.
    Decimal decimal() {
        Decimal found;
        found.negative = took('-');
        const char* const begin = at_;
        digits_into(found);
        if (*begin == '0' && at_ - begin > 1) [[unlikely]] {
            throw NotPlain();
        }
        if (took('.')) {
            const char* const point = at_;
            digits_into(found);
            found.decimals = static_cast<int>(at_ - point);
        }
        const std::ptrdiff_t points = found.decimals == 0 ? 0 : 1;
        if (at_ - begin - points > 19 || (at_ != end_ && (*at_ == 'e' || *at_ == 'E')))
            [[unlikely]] {
            throw NotPlain();
        }
        return found;
    }

    // Goes over a value of any type.
    void value(int depth = 0) {
        switch (peek()) {
            case '"':
                string();
                return;
            case '{':
                object(depth);
                return;
            case '[':
                array(depth);
                return;
            case 't':
                word("true");
                return;
            case 'f':
                word("false");
                return;
            case 'n':
                word("null");
                return;
            default:
                number();
        }
    }

private:
    // Deeper values are not plain; the readers of Python have limits of their own.
    static constexpr int deepest = 64;

    static bool is_digit(char c) { return c >= '0' && c <= '9'; }

    void digits() {
        const char* const begin = at_;
        while (at_ != end_ && is_digit(*at_)) {
            ++at_;
        }
        if (at_ == begin) [[unlikely]] {
            throw NotPlain();
        }
    }

    // The count of digits is checked afterwards: the value may have wrapped by then.
    void digits_into(Decimal& found) {
        const char* const begin = at_;
        while (at_ != end_ && is_digit(*at_)) {
            found.digits = found.digits * 10 + static_cast<std::uint64_t>(*at_ - '0');
            ++at_;
        }
        if (at_ == begin) [[unlikely]] {
            throw NotPlain();
        }
    }

    void refuse_fraction() const {
        if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) [[unlikely]] {
            throw NotPlain();
        }
    }

    void number() {
        took('-');
        if (!took('0')) {
            digits();
        }
        if (took('.')) {
            digits();
        }
        if (took('e') || took('E')) {
            if (!took('+')) {
                took('-');
            }
            digits();
        }
    }

    void object(int depth) {
        take('{');
        blanks();
        if (depth == deepest) [[unlikely]] {
            throw NotPlain();
        }
        if (took('}')) {
            return;
        }
        for (;;) {
            string();
            blanks();
            take(':');
            blanks();
            value(depth + 1);
            blanks();
            if (took('}')) {
                return;
            }
            take(',');
            blanks();
        }
    }

    void array(int depth) {
        take('[');
        blanks();
        if (depth == deepest) [[unlikely]] {
            throw NotPlain();
        }
        if (took(']')) {
            return;
        }
        for (;;) {
            value(depth + 1);
            blanks();
            if (took(']')) {
                return;
            }
            take(',');
            blanks();
        }
    }

    void word(std::string_view wanted) {
        if (static_cast<std::size_t>(end_ - at_) < wanted.size() ||
            std::memcmp(at_, wanted.data(), wanted.size()) != 0) [[unlikely]] {
            throw NotPlain();
        }
        at_ += wanted.size();
    }

    // Goes over printable ASCII but for the quote and the backslash, eight bytes at a time: a byte
    // below 0x20 borrows, one that equals another leaves zero by exclusive or, and zero borrows.
    void plain_characters() {
        constexpr std::uint64_t ones = 0x0101010101010101u;
        constexpr std::uint64_t highs = 0x8080808080808080u;
        while (end_ - at_ >= 8) {
            std::uint64_t bytes = 0;
            std::memcpy(&bytes, at_, 8);
            const std::uint64_t quote = bytes ^ (ones * '"');
            const std::uint64_t backslash = bytes ^ (ones * '\\');
            const std::uint64_t other =
                ((bytes - ones * 0x20) | (quote - ones) | (backslash - ones) | bytes) & highs;
            if (other != 0) {
                if constexpr (std::endian::native == std::endian::little) {
                    at_ += std::countr_zero(other) / 8;  // a borrow can only mark a later byte
                    return;
                }
                break;
            }
            at_ += 8;
        }
        while (at_ != end_ && *at_ != '"' && *at_ != '\\' &&
               static_cast<signed char>(*at_) >= 0x20) {
            ++at_;
        }
    }

    void escape() {
        take('\\');
        const char what = peek();
        ++at_;
        if (what != 'u') {
            if (std::strchr("\"\\/bfnrt", what) == nullptr || what == '\0') [[unlikely]] {
                throw NotPlain();
            }
            return;
        }
        if (end_ - at_ < 4) [[unlikely]] {
            throw NotPlain();
        }
        for (int k = 0; k < 4; ++k) {
            const char c = at_[k];
            const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
            if (!is_digit(c) && !letter) [[unlikely]] {
                throw NotPlain();
            }
        }
        // Halves of a surrogate pair, which may stand alone: U+D800 to U+DFFF.
        if ((at_[0] == 'd' || at_[0] == 'D') && at_[1] >= '8') [[unlikely]] {
            throw NotPlain();
        }
        at_ += 4;
    }

    // One character beyond ASCII: table 3-7 of the Unicode standard.
    void character() {
        const auto byte = [this](std::ptrdiff_t k) { return static_cast<unsigned char>(at_[k]); };
        const unsigned char first = byte(0);
        const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end_ - at_ <= more) [[unlikely]] {
            throw NotPlain();
        }
        const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (byte(1) < low || byte(1) > high) [[unlikely]] {
            throw NotPlain();
        }
        for (int k = 2; k <= more; ++k) {
            if ((byte(k) & 0xc0) != 0x80) [[unlikely]] {
                throw NotPlain();
            }
        }
        at_ += more + 1;
    }

    const char* at_;
    const char* end_;
};

}  // namespace tracescan
