// Memory that a copy reads or writes, freed with its owner.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "gpu_device.h"

namespace collscope {

// Of a GPU. It begins where the allocation begins: an IPC handle needs that.
class DeviceMemory {
public:
    explicit DeviceMemory(GpuDevice& device) : device_(device) {}
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // Sets `too_large` when there is not enough memory.
    Status allocate(std::size_t bytes, bool& too_large);
    std::byte* data() const { return static_cast<std::byte*>(memory_); }

private:
    GpuDevice& device_;
    void* memory_ = nullptr;
};

// Pinned memory of the host.
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

// Host memory, touched, so that no copy pays for that. It begins with a page, since a copy's time
// depends on where the two buffers lie within their pages. AMD's `rep movsb` takes thirty times as
// long when the destination lies 16 bytes further than the source (measured; sourceware.org bug
// 30994), which is where malloc may put it.
class PageableMemory {
public:
    // Refused when the host has less than that for each of `shares` allocations at the same time.
    Status allocate(std::size_t bytes, int shares);
    std::byte* data() { return memory_.get(); }

private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace collscope
