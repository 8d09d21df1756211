#include "arena.h"

#include <algorithm>
#include <functional>

namespace collscope {

void Arena::reserve(Backend& backend, const Control& control, std::vector<double> needs) {
    memory_.resize(static_cast<std::size_t>(backend.local_ranks()), nullptr);
    sizes_.resize(memory_.size(), 0);
    std::sort(needs.begin(), needs.end(), std::greater<>());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    for (const double need : needs) {
        const auto bytes = static_cast<std::uint64_t>(need);
        const Status status = control.agree(allocate(backend, bytes));
        if (status.ok()) {
            capacity_ = bytes;
            return;
        }
        if (refusal_.empty()) {
            refusal_ = status.error;
        }
    }
}

Status Arena::allocate(Backend& backend, std::uint64_t bytes) {
    for (std::size_t local = 0; local < memory_.size(); ++local) {
        // Memory for a larger need, which another rank was refused, is kept.
        if (sizes_[local] >= bytes) {
            continue;
        }
        const Status status = backend.allocate(static_cast<int>(local), bytes, memory_[local]);
        if (!status.ok()) {
            return status;
        }
        sizes_[local] = bytes;
    }
    return {};
}

}  // namespace collscope
