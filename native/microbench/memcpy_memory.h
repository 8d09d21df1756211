// Memory that a copy reads or writes, freed with its owner.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu_device.h"

namespace collscope {

// Of a GPU. It begins where the allocation does, as sharing it with a process needs.
class DeviceMemory {
public:
    explicit DeviceMemory(GpuDevice& device) : device_(device) {}
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // `too_large` tells when it failed because there is not as much.
    Status allocate(std::size_t bytes, bool& too_large);
    std::byte* data() const { return static_cast<std::byte*>(memory_); }

private:
    GpuDevice& device_;
    void* memory_ = nullptr;
};

// Of the host, known to the GPUs and never moved.
class PinnedMemory {
public:
    explicit PinnedMemory(GpuDevice& device) : device_(device) {}
    ~PinnedMemory();
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;

    Status allocate(std::size_t bytes, bool& too_large);
    std::byte* data() const { return static_cast<std::byte*>(memory_); }

private:
    GpuDevice& device_;
    void* memory_ = nullptr;
};

// "cudaHostAlloc: not available"
Status not_available(const gpu::Runtime& runtime, const char* function);

// Host memory, touched, so that no copy pays for that. Refused when there is not as much for each of
// `shares` that are taken at the same time.
class PageableMemory {
public:
    Status allocate(std::size_t bytes, int shares);
    std::byte* data() { return memory_.data(); }

private:
    std::vector<std::byte> memory_;
};

}  // namespace collscope
