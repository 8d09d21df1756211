// Longest-common-subsequence alignment of two sequences of 64-bit values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace align {

// Beyond this many insertions and deletions the exact search gives way to anchors on values that
// occur once on both sides.
inline constexpr std::size_t edit_limit = 20000;

// For each element of `sequence` the index of its partner in `reference`, or -1. Partners have
// equal values and rise strictly. Linear memory in the lengths.
std::vector<std::int32_t> match(std::span<const std::uint64_t> reference,
                                std::span<const std::uint64_t> sequence,
                                std::size_t limit = edit_limit);

}  // namespace align
