#include "group.h"

#include <stdexcept>

namespace align {

Groups group(std::span<const std::int32_t> keys, std::int32_t count) {
    if (count < 0) {
        throw std::invalid_argument("group: a negative number of keys");
    }
    Groups found;
    found.bounds.resize(static_cast<std::size_t>(count) + 1);
    for (const std::int32_t key : keys) {
        if (key < 0 || key >= count) {
            throw std::invalid_argument("group: a key that is none of those");
        }
        ++found.bounds[static_cast<std::size_t>(key) + 1];
    }
    for (std::size_t key = 1; key < found.bounds.size(); ++key) {
        found.bounds[key] += found.bounds[key - 1];
    }
    std::vector<std::int64_t> next(found.bounds.begin(), found.bounds.end() - 1);
    found.order.resize(keys.size());
    for (std::size_t row = 0; row < keys.size(); ++row) {
        const auto place = next[static_cast<std::size_t>(keys[row])]++;
        found.order[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(row);
    }
    return found;
}

}  // namespace align
