// Memory that a copy reads or writes, freed with its owner.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

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

// Host memory, touched, so that no copy pays for that. It begins with a page: where two buffers lie
// within their pages sways a copy. AMD's `rep movsb` is thirty times as slow when the destination
// lies 16 bytes further than the source (measured; sourceware.org bug 30994), which is where malloc
// may put it.
class PageableMemory {
public:
    // Refused when there is not as much for each of `shares` that are taken at the same time.
    Status allocate(std::size_t bytes, int shares);
    std::byte* data() { return memory_.get(); }

private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace collscope
