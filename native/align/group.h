// Rows grouped by a small key.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace align {

struct Groups {
    std::vector<std::int64_t> order;   // rows of key 0, then those of key 1, ..., rising in each
    std::vector<std::int64_t> bounds;  // (count + 1) where the rows of each key begin and end
};

// Rows by key 0..count-1. Linear. Throws std::invalid_argument for another key.
Groups group(std::span<const std::int32_t> keys, std::int32_t count);

}  // namespace align
