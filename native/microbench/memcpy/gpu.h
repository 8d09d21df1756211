// Copies that one process can do: between its GPUs, within each, and between them and the host.
//
// Every copy is MemcpyAsync of kind Default on a stream of the source's GPU, between GPUs with
// peer access enabled where the machine has it.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "memcpy/measure.h"
#include "memcpy/memory.h"

namespace collscope {

// One copy of a repetition, on the stream of `device`.
struct GpuCopy {
    GpuDevice* device = nullptr;
    std::byte* to = nullptr;
    std::byte* from = nullptr;
    std::size_t bytes = 0;
};

Status synchronise(const GpuDevice& device);
// Copies back to back between two events of each stream: the slowest stream's time of one.
Timed async_copies(std::vector<GpuCopy> copies);
// All copies started, then waited for, on the host's clock.
Timed sync_copies(std::vector<GpuCopy> copies);
// Puts a pattern into `memory` through the stream of `device`, or counts what there is of it not.
Status put_pattern(GpuDevice& device, std::byte* memory, std::uint64_t size, std::uint64_t seed);
Status compare(GpuDevice& device, const std::byte* memory, std::uint64_t size, std::uint64_t seed,
               std::uint64_t& n_wrong);

class GpuCopies {
public:
    GpuCopies(const CopyOptions& options, const gpu::Runtime& runtime, CopyRows& rows);
    ~GpuCopies();

    // Opens the devices of the pairs, else all; enables access between them.
    Status open(int devices);
    // Ordered pairs of devices to copy between.
    const std::vector<std::pair<int, int>>& pairs() const { return pairs_; }
    void run(std::uint64_t size_bytes);

private:
    struct Place;  // a device with its memory

    std::string enable_access(int from, int to);
    void peer(std::uint64_t size_bytes);
    void both_ways(std::uint64_t size_bytes);
    void within(std::uint64_t size_bytes);
    void host(std::uint64_t size_bytes);
    // Measures and checks the copies, unless there is a reason why not.
    void measure(CopyRow row, const std::vector<GpuCopy>& copies, bool sync, const Refusal* why);
    CopyRow row(const char* kind, std::uint64_t size_bytes, int device) const;
    Place& place(int device) { return *places_.at(device); }

    const CopyOptions& options_;
    const gpu::Runtime& runtime_;
    CopyRows& rows_;
    std::vector<std::pair<int, int>> pairs_;
    std::map<std::pair<int, int>, std::string> access_;
    std::map<int, std::unique_ptr<Place>> places_;
    std::uint64_t seed_ = 0;
};

}  // namespace collscope
