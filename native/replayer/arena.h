// The memory of the local ranks, allocated once for everything that the plan runs.
#pragma once

#include <cstdint>
#include <vector>

#include "backend.h"
#include "control.h"

namespace collscope {

class Arena {
public:
    // Allocates the largest of `needs` (bytes per rank; the same on all processes) that every rank
    // can have. Collective.
    void reserve(Backend& backend, const Control& control, std::vector<double> needs);

    std::uint64_t capacity() const { return capacity_; }
    // Why there is no more than `capacity`; empty when there was no need for more.
    const std::string& refusal() const { return refusal_; }
    std::byte* of(int local) const { return memory_[static_cast<std::size_t>(local)]; }

private:
    Status allocate(Backend& backend, std::uint64_t bytes);

    std::uint64_t capacity_ = 0;
    std::string refusal_;
    std::vector<std::byte*> memory_;
    std::vector<std::uint64_t> sizes_;  // by local rank: may exceed capacity_
};

}  // namespace collscope
