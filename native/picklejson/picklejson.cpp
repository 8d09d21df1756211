#include "picklejson.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace picklejson {

namespace {

enum class Kind : std::uint8_t { none, yes, no, whole, real, text, list, dictionary };

// Small, since a dump has as many as a third of its bytes.
struct Value {
    Kind kind = Kind::none;
    bool is_tuple = false;    // a list that takes no further items
    std::uint8_t depth = 0;   // of a container that is written: its level there
    std::uint32_t size = 0;   // bytes of a text, items of a container
    std::int64_t number = 0;  // the bits of a real one
    // Of a text its place in the pickle, of a container that of its items in `Reader::items_`.
    std::size_t begin = 0;
    // Of a text or a container that is written: where its JSON begins, and its bytes.
    std::uint32_t json_begin = 0;
    std::uint32_t json_size = 0;
};
static_assert(sizeof(Value) == 32 && longest_text < UINT32_MAX && deepest < UINT8_MAX);

using Index = std::uint32_t;

class Reader {
public:
    Reader(std::string_view pickle, const Omission& omission)
        : pickle_(pickle), omission_(omission) {}

    // Whether all instructions up to the end are known and have what they need.
    bool read() {
        while (place_ < pickle_.size()) {
            const char code = pickle_[place_++];
            if (code == '.') {
                return stack_.size() == 1 && marks_.empty();
            }
            if (!step(code)) {
                return false;
            }
        }
        return false;
    }

    std::optional<std::string> json() {
        longest_ = std::min(pickle_.size() * most_times + most_beside, longest_text);
        return write(stack_[0], 0) ? std::optional(std::move(out_)) : std::nullopt;
    }

private:
    bool step(char code) {
        switch (code) {
            case '\x80': {
                const auto protocol = number(1);
                return protocol && *protocol <= 3;  // later ones have frames
            }
            case '(':
                marks_.push_back(stack_.size());
                return true;
            case 'N':
                return push({Kind::none});
            case '\x88':
                return push({Kind::yes});
            case '\x89':
                return push({Kind::no});
            case 'K':
                return whole(1, false);
            case 'M':
                return whole(2, false);
            case 'J':
                return whole(4, true);
            case '\x8a': {
                const auto size = number(1);
                return size && *size <= 8 && whole(static_cast<std::size_t>(*size), true);
            }
            case 'G':
                return real();
            case 'X':
                return text();
            case ']':
                return push({Kind::list});
            case '}':
                return push({Kind::dictionary});
            case ')':
                return push({Kind::list});
            case 'h':
                return get(1);
            case 'j':
                return get(4);
            case 'q':
                return put(1);
            case 'r':
                return put(4);
            case 'a':
                return append(1, Kind::list);
            case 's':
                return append(2, Kind::dictionary);
            case 'e':
                return append_marked(Kind::list);
            case 'u':
                return append_marked(Kind::dictionary);
            case 't':
                return tuple_marked();
            case '\x85':
            case '\x86':
            case '\x87':
                return tuple(static_cast<std::size_t>(code - '\x84'));
            default:
                return false;
        }
    }

    std::optional<std::string_view> take(std::size_t size) {
        if (size > pickle_.size() - place_) {
            return std::nullopt;
        }
        place_ += size;
        return pickle_.substr(place_ - size, size);
    }

    // Little endian, without a sign.
    std::optional<std::uint64_t> number(std::size_t size) {
        const auto bytes = take(size);
        if (!bytes) {
            return std::nullopt;
        }
        std::uint64_t found = 0;
        for (std::size_t k = 0; k < size; ++k) {
            found |= std::uint64_t{static_cast<unsigned char>((*bytes)[k])} << (8 * k);
        }
        return found;
    }

    bool whole(std::size_t size, bool with_sign) {
        auto found = number(size);
        if (!found) {
            return false;
        }
        if (with_sign && size > 0 && size < 8 && (*found >> (8 * size - 1)) != 0) {
            *found |= ~std::uint64_t{0} << (8 * size);
        }
        Value value{Kind::whole};
        value.number = static_cast<std::int64_t>(*found);
        return push(value);
    }

    bool real() {
        const auto bytes = take(8);
        if (!bytes) {
            return false;
        }
        std::uint64_t bits = 0;
        for (const char byte : *bytes) {
            bits = bits << 8 | static_cast<unsigned char>(byte);
        }
        Value value{Kind::real};
        value.number = static_cast<std::int64_t>(bits);
        return std::isfinite(std::bit_cast<double>(bits)) && push(value);
    }

    bool text() {
        const auto size = number(4);
        if (!size) {
            return false;
        }
        const std::size_t begin = place_;
        const auto bytes = take(static_cast<std::size_t>(*size));
        if (!bytes) {
            return false;
        }
        for (const char byte : *bytes) {
            if (static_cast<unsigned char>(byte) >= 0x80) {
                return false;
            }
        }
        Value value{Kind::text};
        value.begin = begin;
        value.size = static_cast<std::uint32_t>(bytes->size());
        return push(value);
    }

    bool push(const Value& value) {
        stack_.push_back(static_cast<Index>(values_.size()));
        values_.push_back(value);
        return true;
    }

    // How many values lie above the last mark.
    std::size_t room() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

    bool get(std::size_t width) {
        const auto at = number(width);
        if (!at || *at >= memo_.size() || memo_[*at] == unset) {
            return false;
        }
        stack_.push_back(memo_[*at]);
        return true;
    }

    bool put(std::size_t width) {
        const auto at = number(width);
        if (!at || room() == 0 || *at > place_) {  // a pickler numbers without gaps
            return false;
        }
        if (*at >= memo_.size()) {
            memo_.resize(*at + 1, unset);
        }
        memo_[*at] = stack_.back();
        return true;
    }

    bool append_marked(Kind kind) {
        if (marks_.empty()) {
            return false;
        }
        const std::size_t count = room();
        marks_.pop_back();
        return append(count, kind);
    }

    // The uppermost values become items of the container below them.
    bool append(std::size_t count, Kind kind) {
        if (room() < count + 1) {
            return false;
        }
        Value& into = values_[stack_[stack_.size() - count - 1]];
        const bool pairs = kind == Kind::dictionary;
        if (into.kind != kind || into.is_tuple || (pairs && count % 2 != 0)) {
            return false;
        }
        const std::size_t first = stack_.size() - count;
        for (std::size_t k = 0; pairs && k < count; k += 2) {
            if (values_[stack_[first + k]].kind != Kind::text) {
                return false;
            }
        }
        if (into.size != 0 && into.begin + into.size != items_.size()) {
            // Items of another one follow: all go to the end. Hostile, where it is done often.
            moved_ += into.size;
            if (moved_ > pickle_.size() * most_times) {
                return false;
            }
            const std::vector<Index> own(
                items_.begin() + static_cast<std::ptrdiff_t>(into.begin),
                items_.begin() + static_cast<std::ptrdiff_t>(into.begin + into.size));
            into.begin = items_.size();
            items_.insert(items_.end(), own.begin(), own.end());
        }
        if (into.size == 0) {
            into.begin = items_.size();
        }
        items_.insert(items_.end(), stack_.end() - static_cast<std::ptrdiff_t>(count),
                      stack_.end());
        into.size += static_cast<std::uint32_t>(count);
        stack_.resize(first);
        return true;
    }

    bool tuple_marked() {
        if (marks_.empty()) {
            return false;
        }
        const std::size_t count = room();
        marks_.pop_back();
        return tuple(count);
    }

    bool tuple(std::size_t count) {
        if (room() < count) {
            return false;
        }
        Value made{Kind::list, true};
        made.begin = items_.size();
        made.size = static_cast<std::uint32_t>(count);
        items_.insert(items_.end(), stack_.end() - static_cast<std::ptrdiff_t>(count),
                      stack_.end());
        stack_.resize(stack_.size() - count);
        return push(made);
    }

    bool write(Index at, int depth) {
        Value& value = values_[at];
        const std::size_t begin = out_.size();
        if (begin > longest_) {
            return false;
        }
        switch (value.kind) {
            case Kind::none:
                out_ += "null";
                return true;
            case Kind::yes:
                out_ += "true";
                return true;
            case Kind::no:
                out_ += "false";
                return true;
            case Kind::whole:
                return digits(value.number);
            case Kind::real:
                return digits(std::bit_cast<double>(value.number));
            case Kind::text:
                if (value.json_size != 0) {
                    return write_again(value);
                }
                quote(pickle_.substr(value.begin, value.size));
                note_written(value, begin);
                return true;
            default:
                if (depth == deepest || (depth < once_levels && value.json_size != 0)) {
                    return false;
                }
                return write_container(value, depth + 1);
        }
    }

    bool write_container(Value& value, int depth) {
        if (value.json_size != 0 && depth <= value.depth) {
            return write_again(value);
        }
        const std::size_t begin = out_.size();
        if (!write_items(value, depth)) {
            return false;
        }
        note_written(value, begin);
        value.depth = static_cast<std::uint8_t>(depth);
        return true;
    }

    void note_written(Value& value, std::size_t begin) const {
        value.json_begin = static_cast<std::uint32_t>(begin);
        value.json_size = static_cast<std::uint32_t>(out_.size() - begin);
    }

    bool write_again(const Value& value) {
        const std::size_t begin = out_.size();
        if (begin + value.json_size > longest_) {
            return false;
        }
        out_.resize(begin + value.json_size);
        std::memcpy(out_.data() + begin, out_.data() + value.json_begin, value.json_size);
        return true;
    }

    bool write_items(const Value& value, int depth) {
        if (value.kind == Kind::dictionary) {
            return write_pairs(value, depth);
        }
        out_ += '[';
        for (std::size_t k = 0; k < value.size; ++k) {
            if (k != 0) {
                out_ += ',';
            }
            if (!write(items_[value.begin + k], depth)) {
                return false;
            }
        }
        out_ += ']';
        return true;
    }

    bool write_pairs(const Value& value, int depth) {
        const bool omits = omits_member(value);
        out_ += '{';
        bool first = true;
        for (std::size_t k = 0; k < value.size; k += 2) {
            const Index key = items_[value.begin + k];
            if (omits && is_text(key, omission_.member)) {
                continue;
            }
            if (!first) {
                out_ += ',';
            }
            first = false;
            if (!write(key, depth)) {
                return false;
            }
            out_ += ':';
            if (!write(items_[value.begin + k + 1], depth)) {
                return false;
            }
        }
        out_ += '}';
        return true;
    }

    // Of equal keys the last one counts.
    bool omits_member(const Value& dictionary) const {
        for (std::size_t k = dictionary.size; k >= 2 && !omission_.member.empty(); k -= 2) {
            if (is_text(items_[dictionary.begin + k - 2], omission_.key)) {
                return is_text(items_[dictionary.begin + k - 1], omission_.text);
            }
        }
        return false;
    }

    bool is_text(Index at, std::string_view text) const {
        const Value& value = values_[at];
        return value.kind == Kind::text && pickle_.substr(value.begin, value.size) == text;
    }

    template <class Number>
    bool digits(Number number) {
        char buffer[40];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
        out_.append(buffer, end);
        if constexpr (std::is_floating_point_v<Number>) {
            if (std::string_view(buffer, end).find_first_of(".e") == std::string_view::npos) {
                out_ += ".0";
            }
        }
        return true;
    }

    void quote(std::string_view text) {
        out_ += '"';
        std::size_t kept = 0;
        for (std::size_t k = 0; k < text.size(); ++k) {
            const char byte = text[k];
            if (byte != '"' && byte != '\\' && static_cast<unsigned char>(byte) >= 0x20) {
                continue;
            }
            constexpr const char* hex = "0123456789abcdef";
            const char escape[] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
            out_.append(text.substr(kept, k - kept)).append(escape, sizeof escape);
            kept = k + 1;
        }
        out_.append(text.substr(kept)) += '"';
    }

    static constexpr Index unset = ~Index{0};
    std::string_view pickle_;
    Omission omission_;
    std::size_t place_ = 0;
    std::vector<Value> values_;
    std::vector<Index> items_;  // of all containers
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;
    std::vector<Index> memo_;
    std::size_t moved_ = 0;
    std::size_t longest_ = 0;
    std::string out_;
};

}  // namespace

std::optional<std::string> convert(std::string_view pickle, const Omission& omission) {
    if (pickle.size() > longest_pickle) {
        return std::nullopt;
    }
    Reader reader(pickle, omission);
    return reader.read() ? reader.json() : std::nullopt;
}

}  // namespace picklejson
