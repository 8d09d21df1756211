// Fields, numbers and errors of a plan's lines; for plan.cpp alone.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace collscope::plan_text {

// Unwinds one parse; never leaves parse_plan.
struct Fault {
    std::string text;
};

[[noreturn]] inline void fail(std::string what, std::string_view remedy) {
    throw Fault{std::move(what) + ". " + std::string(remedy) + "."};
}

inline std::string quoted(std::string_view text) {
    return "`" + std::string(text.substr(0, 60)) + "`";
}

// Cuts the next blank-separated field off `rest`; empty at its end.
inline std::string_view next_field(std::string_view& rest) {
    const std::size_t begin = std::min(rest.find_first_not_of(" \t"), rest.size());
    const std::size_t end = std::min(rest.find_first_of(" \t", begin), rest.size());
    const std::string_view field = rest.substr(begin, end - begin);
    rest.remove_prefix(end);
    return field;
}

// Cuts the part before `mark` off `rest`; all of it when there is no mark.
inline std::string_view next_part(std::string_view& rest, char mark) {
    const std::size_t end = std::min(rest.find(mark), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
}

inline std::uint64_t number(std::string_view text, std::string_view what, std::uint64_t most) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > most) {
        fail(std::string(what) + " is " + quoted(text),
             "Write a whole number of 0 to " + std::to_string(most));
    }
    return value;
}

inline int small_number(std::string_view text, std::string_view what, int most) {
    return static_cast<int>(number(text, what, static_cast<std::uint64_t>(most)));
}

}  // namespace collscope::plan_text
