// Known bytes for a copy to carry, and how many of them arrived wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend.h"

namespace collscope {

// Bytes `offset` … of a pattern that is another one for each seed; every byte depends on its place.
void make_pattern(std::uint64_t seed, std::uint64_t offset, std::vector<std::byte>& out);

// A part of a buffer that is looked at.
struct Block {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
};

// All of a buffer up to 16 MiB, above that 16 blocks of 1 MiB from its first byte to its last.
std::vector<Block> blocks_of(std::uint64_t size_bytes);
inline bool all_checked(std::uint64_t size_bytes) { return size_bytes <= std::uint64_t{16} << 20; }

// Moves one block between host memory and wherever the buffer is.
using MoveBlock = std::function<Status(const Block& block, std::vector<std::byte>& host)>;

// Hands each block's pattern to `write`.
Status write_pattern(std::uint64_t seed, std::uint64_t size_bytes, const MoveBlock& write);
// Adds to `n_wrong` the bytes of the blocks that `read` gives and that are not the pattern's.
Status count_wrong(std::uint64_t seed, std::uint64_t size_bytes, const MoveBlock& read,
                   std::uint64_t& n_wrong);

}  // namespace collscope
