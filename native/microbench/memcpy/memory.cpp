#include "memcpy/memory.h"

#include <cstring>

#include "host_machine.h"

namespace collscope {

namespace {

constexpr std::size_t page = 4096;  // bytes

}  // namespace

DeviceMemory::~DeviceMemory() {
    if (memory_ != nullptr && device_.bind().ok()) {
        device_.runtime().free(memory_);
    }
}

Status DeviceMemory::allocate(std::size_t bytes, bool& too_large) {
    if (const Status status = device_.bind(); !status.ok()) {
        return status;
    }
    const int code = device_.runtime().malloc(&memory_, bytes);
    too_large = too_large || code == gpu::error_out_of_memory;
    Status status = device_.status_of(code, "Malloc");
    if (!status.ok()) {
        memory_ = nullptr;
        status.error += " for " + std::to_string(bytes) + " bytes";
    }
    return status;
}

PinnedMemory::~PinnedMemory() {
    if (memory_ != nullptr && device_.bind().ok()) {
        device_.runtime().host_free(memory_);
    }
}

Status PinnedMemory::allocate(std::size_t bytes, bool& too_large) {
    const gpu::Runtime& runtime = device_.runtime();
    const char* name = runtime.vendor->host_alloc;
    if (runtime.host_alloc == nullptr || runtime.host_free == nullptr) {
        return not_available(runtime, name);
    }
    if (const Status status = device_.bind(); !status.ok()) {
        return status;
    }
    const int code = runtime.host_alloc(&memory_, bytes, gpu::host_alloc_default);
    too_large = too_large || code == gpu::error_out_of_memory;
    const Status status = device_.status_of(code, name);
    if (!status.ok()) {
        memory_ = nullptr;
    }
    return status;
}

Status not_available(const gpu::Runtime& runtime, const char* function) {
    return {runtime.function(function) + ": not available"};
}

Status PageableMemory::allocate(std::size_t bytes, int shares) {
    const std::size_t free = available_bytes() / static_cast<std::size_t>(shares);
    if (bytes > free) {
        return {"out of memory: " + std::to_string(bytes) + " bytes wanted, " +
                std::to_string(free) + " are available"};
    }
    const std::size_t whole = (bytes + page - 1) / page * page;  // aligned_alloc wants multiples
    memory_.reset();
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(page, whole)));
    if (!memory_) {
        return {"out of memory: aligned_alloc"};
    }
    std::memset(memory_.get(), 0, whole);
    return {};
}

}  // namespace collscope
