// Copies of one process into the GPU memory of another: what its handle costs to open and to close,
// and what the copy takes with and without that.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "memcpy/measure.h"
#include "memcpy/memory.h"
#include "memcpy/partner.h"

namespace collscope {

class IpcCopies {
public:
    // Process 0 copies from device `pair.first` to device `pair.second` of process 1.
    IpcCopies(const Control& control, const gpu::Runtime& runtime, std::pair<int, int> pair,
              CopyRows& rows);

    // Opens the device of this process. Collective, as run.
    void open(const Status& runtime_is_there);
    void run(std::uint64_t size_bytes);

private:
    Status share(std::uint64_t size_bytes, bool& too_large);
    void measure_all(std::uint64_t size_bytes);
    void open_and_close(std::uint64_t size_bytes);
    void copy(std::uint64_t size_bytes);
    void copy_with_open(std::uint64_t size_bytes);
    Status map(void*& out) const;
    Status unmap(void* memory) const;
    Status check(std::uint64_t size_bytes, const std::function<Status()>& do_copy,
                 std::uint64_t& n_wrong);
    void refuse_all(std::uint64_t size_bytes, const Refusal& why);
    CopyRow row(const char* kind, std::uint64_t size_bytes) const;

    const Control& control_;
    const gpu::Runtime& runtime_;
    std::pair<int, int> pair_;
    CopyRows& rows_;
    Partner partner_;
    std::unique_ptr<GpuDevice> device_;
    std::unique_ptr<DeviceMemory> memory_;
    gpu::IpcMemHandle handle_{};
    std::optional<Refusal> never_;  // why nothing of this can be measured
    std::uint64_t seed_ = 1u << 30;
};

}  // namespace collscope
