// Values of command-line options. A function returns false for a value that it does not allow.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace collscope {

inline bool to_double(std::string_view text, double least, double& out) {
    const std::string copy(text);
    char* end = nullptr;
    out = std::strtod(copy.c_str(), &end);
    return !copy.empty() && *end == '\0' && std::isfinite(out) && out >= least;
}

template <typename T>
bool to_whole(std::string_view text, std::uint64_t least, std::uint64_t most, T& out) {
    if (text.empty() || text.size() > 18 ||
        text.find_first_not_of("0123456789") != std::string_view::npos) {
        return false;
    }
    const std::uint64_t value = std::strtoull(std::string(text).c_str(), nullptr, 10);
    out = static_cast<T>(value);
    return value >= least && value <= most;
}

// Stores the value of an option.
template <typename Options>
using Setter = std::function<bool(Options&, std::string_view)>;

template <typename Options>
Setter<Options> text_of(std::string Options::*member) {
    return [member](Options& o, std::string_view value) {
        o.*member = value;
        return !value.empty();
    };
}

}  // namespace collscope
