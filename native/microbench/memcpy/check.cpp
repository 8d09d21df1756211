#include "memcpy/check.h"

#include <algorithm>
#include <cstring>

namespace collscope {

namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;
constexpr std::uint64_t n_blocks = 16;

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64).
std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

void make_pattern(std::uint64_t seed, std::uint64_t offset, std::vector<std::byte>& out) {
    const std::uint64_t start = mixed(seed);
    for (std::size_t i = 0; i < out.size();) {
        const std::uint64_t at = offset + i;
        const std::uint64_t word = mixed(start + at / 8);
        const std::size_t skip = at % 8;
        const std::size_t n = std::min(8 - skip, out.size() - i);
        std::memcpy(out.data() + i, reinterpret_cast<const std::byte*>(&word) + skip, n);
        i += n;
    }
}

std::vector<Block> blocks_of(std::uint64_t size_bytes) {
    std::vector<Block> out;
    if (all_checked(size_bytes)) {
        for (std::uint64_t at = 0; at < size_bytes; at += block_bytes) {
            out.push_back({at, std::min<std::size_t>(block_bytes, size_bytes - at)});
        }
        return out;
    }
    const std::uint64_t last = size_bytes - block_bytes;
    for (std::uint64_t i = 0; i < n_blocks; ++i) {
        out.push_back({i == n_blocks - 1 ? last : last / (n_blocks - 1) * i, block_bytes});
    }
    return out;
}

Status write_pattern(std::uint64_t seed, std::uint64_t size_bytes, const MoveBlock& write) {
    std::vector<std::byte> host;
    for (const Block& block : blocks_of(size_bytes)) {
        host.resize(block.bytes);
        make_pattern(seed, block.offset, host);
        if (const Status status = write(block, host); !status.ok()) {
            return status;
        }
    }
    return {};
}

Status count_wrong(std::uint64_t seed, std::uint64_t size_bytes, const MoveBlock& read,
                   std::uint64_t& n_wrong) {
    std::vector<std::byte> expected;
    std::vector<std::byte> found;
    for (const Block& block : blocks_of(size_bytes)) {
        expected.resize(block.bytes);
        found.resize(block.bytes);
        make_pattern(seed, block.offset, expected);
        if (const Status status = read(block, found); !status.ok()) {
            return status;
        }
        for (std::size_t i = 0; i < block.bytes; ++i) {
            n_wrong += found[i] != expected[i];
        }
    }
    return {};
}

}  // namespace collscope
