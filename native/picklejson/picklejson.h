// Pickles of plain values as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace picklejson {

inline constexpr std::size_t longest_pickle = std::size_t{64} << 20;
// Bytes of the text, for each of the pickle and beside them: an object that stands in many places
// is written in each.
inline constexpr std::size_t most_times = 64;
inline constexpr std::size_t most_beside = std::size_t{1} << 20;
inline constexpr std::size_t longest_text = std::size_t{512} << 20;
inline constexpr int deepest = 64;     // levels of the text
inline constexpr int once_levels = 3;  // in which no list and no dictionary stands in two places

// What dictionaries are written without: a member of those in which another key has some text. A
// recorder's calls that ended have frames that nobody reads, and these are half of its dump.
struct Omission {
    std::string_view member;  // empty: nothing is left out
    std::string_view key;
    std::string_view text;
};

// The value of a pickle as JSON; tuples become arrays, of equal keys the last one counts. Nothing
// of the pickle is run: the instructions that name a class, a function or an object elsewhere are
// not known here.
//
// None of a pickle with other instructions than those of protocols up to 3 that make dictionaries
// with text keys, lists, tuples, ASCII texts, numbers of 64 bits, true, false and None; of one that
// is damaged; and of one beyond the limits above. PyTorch writes protocol 2.
std::optional<std::string> convert(std::string_view pickle, const Omission& omission = {});

}  // namespace picklejson
