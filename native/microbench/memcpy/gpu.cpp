#include "memcpy/gpu.h"

#include <algorithm>
#include <set>

#include "clock.h"
#include "memcpy/check.h"

namespace collscope {

namespace {

constexpr int start = 0;  // events
constexpr int stop = 1;

Status enqueue(const std::vector<GpuCopy>& copies) {
    for (const GpuCopy& c : copies) {
        const Status status = c.device->copy(c.to, c.from, c.bytes, gpu::memcpy_default);
        if (!status.ok()) {
            return status;
        }
    }
    return {};
}

Status on_each(const std::vector<GpuCopy>& copies, const std::function<Status(GpuDevice&)>& work) {
    for (const GpuCopy& c : copies) {
        if (const Status status = work(*c.device); !status.ok()) {
            return status;
        }
    }
    return {};
}

Status batch(const std::vector<GpuCopy>& copies, int calls, double& us) {
    Status status = on_each(copies, [](GpuDevice& device) { return device.record(start); });
    for (int i = 0; i < calls && status.ok(); ++i) {
        status = enqueue(copies);
    }
    if (status.ok()) {
        status = on_each(copies, [](GpuDevice& device) { return device.record(stop); });
    }
    us = 0;
    return !status.ok() ? status : on_each(copies, [&us, calls](GpuDevice& device) {
        double own = 0;
        Status done = synchronise(device);
        if (done.ok()) {
            done = device.between_us(start, stop, own);
        }
        us = std::max(us, own / calls);
        return done;
    });
}

Status one_by_one(const std::vector<GpuCopy>& copies, int calls, double& us) {
    Status status;
    const double begin = steady_us();
    for (int i = 0; i < calls && status.ok(); ++i) {
        status = enqueue(copies);
        if (status.ok()) {
            status = on_each(copies, [](GpuDevice& device) { return synchronise(device); });
        }
    }
    us = (steady_us() - begin) / calls;
    return status;
}

// Every ordered pair of them.
std::vector<std::pair<int, int>> all_pairs(int devices) {
    std::vector<std::pair<int, int>> out;
    for (int from = 0; from < devices; ++from) {
        for (int to = 0; to < devices; ++to) {
            if (from != to) {
                out.emplace_back(from, to);
            }
        }
    }
    return out;
}

}  // namespace

struct GpuCopies::Place {
    explicit Place(const gpu::Runtime& runtime) : device(runtime) {}

    void allocate(std::size_t bytes) {
        bool too_large = false;
        for (auto* memory : {&send, &recv}) {
            *memory = std::make_unique<DeviceMemory>(device);
            if (refusal.message.empty()) {
                refusal = refusal_of((*memory)->allocate(bytes, too_large));
            }
        }
        refusal.too_large = too_large;
    }
    void release() {
        send.reset();
        recv.reset();
        refusal = {};
    }
    // Why there is no memory; null when there is.
    const Refusal* why() const { return refusal.message.empty() ? nullptr : &refusal; }

    GpuDevice device;
    std::unique_ptr<DeviceMemory> send, recv;
    Refusal refusal;
};

GpuCopies::GpuCopies(const CopyOptions& options, const gpu::Runtime& runtime, CopyRows& rows)
    : options_(options), runtime_(runtime), rows_(rows) {}

GpuCopies::~GpuCopies() = default;

Status synchronise(const GpuDevice& device) {
    return device.status_of(device.runtime().stream_synchronize(device.stream()),
                            "StreamSynchronize");
}

Timed async_copies(std::vector<GpuCopy> copies) {
    return {
        Timing::Batch,
        [copies = std::move(copies)](int calls, double& us) { return batch(copies, calls, us); },
        {}};
}

Timed sync_copies(std::vector<GpuCopy> copies) {
    return {Timing::Isolated,
            [copies = std::move(copies)](int calls, double& us) {
                return one_by_one(copies, calls, us);
            },
            {}};
}

Status put_pattern(GpuDevice& device, std::byte* memory, std::uint64_t size, std::uint64_t seed) {
    return write_pattern(seed, size, [&](const Block& block, std::vector<std::byte>& host) {
        const Status status =
            device.copy(memory + block.offset, host.data(), block.bytes, gpu::memcpy_default);
        return status.ok() ? synchronise(device) : status;
    });
}

Status compare(GpuDevice& device, const std::byte* memory, std::uint64_t size, std::uint64_t seed,
               std::uint64_t& n_wrong) {
    const auto read = [&](const Block& block, std::vector<std::byte>& host) {
        const Status status =
            device.copy(host.data(), memory + block.offset, block.bytes, gpu::memcpy_default);
        return status.ok() ? synchronise(device) : status;
    };
    return count_wrong(seed, size, read, n_wrong);
}

Status GpuCopies::open(int devices) {
    pairs_ = options_.pairs.empty() ? all_pairs(devices) : options_.pairs;
    std::set<int> wanted;
    for (const auto& [from, to] : pairs_) {
        wanted.insert({from, to});
    }
    if (pairs_.empty()) {
        wanted.insert(0);
    }
    for (const int device : wanted) {
        if (device >= devices) {
            return {"--pairs: there is no device " + std::to_string(device) + ", only " +
                    std::to_string(devices) + ". Choose others."};
        }
        auto made = std::make_unique<Place>(runtime_);
        if (const Status status = made->device.open(device); !status.ok()) {
            return {"device " + std::to_string(device) + ": " + status.error +
                    ". Check that nothing else holds it."};
        }
        places_.emplace(device, std::move(made));
    }
    for (const auto& pair : pairs_) {
        access_[pair] = enable_access(pair.first, pair.second);
        access_[{pair.second, pair.first}] = enable_access(pair.second, pair.first);
    }
    return {};
}

// Without peer access the runtime may bring the data through memory of the host.
std::string GpuCopies::enable_access(int from, int to) {
    int possible = 0;
    if (!runtime_.device_can_access_peer || !runtime_.device_enable_peer_access ||
        runtime_.device_can_access_peer(&possible, from, to) != gpu::success || possible == 0) {
        return "none";
    }
    GpuDevice& device = place(from).device;
    if (!device.bind().ok()) {
        return "none";
    }
    const int code = runtime_.device_enable_peer_access(to, 0);
    if (code == gpu::success || code == gpu::error_peer_access_already_enabled) {
        runtime_.get_last_error();
        return "peer";
    }
    return device.status_of(code, "DeviceEnablePeerAccess").ok() ? "peer" : "none";
}

void GpuCopies::run(std::uint64_t size_bytes) {
    for (const auto& [number, place] : places_) {
        place->allocate(size_bytes);
    }
    if (options_.groups.peer) {
        peer(size_bytes);
        both_ways(size_bytes);
    }
    if (options_.groups.within) {
        within(size_bytes);
    }
    if (options_.groups.host) {
        host(size_bytes);
    }
    for (const auto& [number, place] : places_) {
        place->release();
    }
}

void GpuCopies::peer(std::uint64_t size_bytes) {
    for (const auto& pair : pairs_) {
        Place& from = place(pair.first);
        Place& to = place(pair.second);
        const Refusal* why = from.why() ? from.why() : to.why();
        const std::vector<GpuCopy> copies = {
            {&from.device, to.recv->data(), from.send->data(), size_bytes}};
        for (const bool sync : {false, true}) {
            CopyRow made = row(sync ? "peer_sync" : "peer_async", size_bytes, pair.first);
            made.src_device = pair.first;
            made.dst_device = pair.second;
            made.access = access_[pair];
            measure(std::move(made), copies, sync, why);
        }
    }
}

void GpuCopies::both_ways(std::uint64_t size_bytes) {
    std::set<std::pair<int, int>> done;
    for (const auto& pair : pairs_) {
        if (!done.insert(std::minmax(pair.first, pair.second)).second) {
            continue;
        }
        Place& a = place(pair.first);
        Place& b = place(pair.second);
        const std::vector<GpuCopy> copies = {
            {&a.device, b.recv->data(), a.send->data(), size_bytes},
            {&b.device, a.recv->data(), b.send->data(), size_bytes}};
        for (const bool sync : {false, true}) {
            CopyRow made = row(sync ? "peer_sync" : "peer_async", size_bytes, pair.first);
            made.src_device = pair.first;
            made.dst_device = pair.second;
            made.direction = "both";
            made.access = access_[pair];
            measure(std::move(made), copies, sync, a.why() ? a.why() : b.why());
        }
    }
}

void GpuCopies::within(std::uint64_t size_bytes) {
    for (const auto& [number, place] : places_) {
        const std::vector<GpuCopy> copies = {
            {&place->device, place->recv->data(), place->send->data(), size_bytes}};
        for (const bool sync : {false, true}) {
            CopyRow made = row(sync ? "within_sync" : "within_async", size_bytes, number);
            made.src_device = made.dst_device = number;
            measure(std::move(made), copies, sync, place->why());
        }
    }
}

void GpuCopies::host(std::uint64_t size_bytes) {
    PinnedMemory pinned(places_.begin()->second->device);
    PageableMemory pageable;
    bool too_large = false;
    const Status has_pinned = pinned.allocate(size_bytes, too_large);
    Refusal no_pinned = refusal_of(has_pinned, too_large);
    no_pinned.status = runtime_.host_alloc == nullptr ? "skipped" : no_pinned.status;
    const Refusal no_pageable = refusal_of(pageable.allocate(size_bytes, 1), true);
    for (const auto& [number, place] : places_) {
        for (const bool is_pinned : {true, false}) {
            std::byte* memory = is_pinned ? pinned.data() : pageable.data();
            const Refusal& none = is_pinned ? no_pinned : no_pageable;
            const Refusal* why = place->why()           ? place->why()
                                 : none.message.empty() ? nullptr
                                                        : &none;
            CopyRow in = row(is_pinned ? "h2d_pinned" : "h2d_pageable", size_bytes, number);
            in.dst_device = number;
            // A copy of pageable memory is one of the host: only its clock sees all of it.
            measure(std::move(in), {{&place->device, place->recv->data(), memory, size_bytes}},
                    !is_pinned, why);
            CopyRow out = row(is_pinned ? "d2h_pinned" : "d2h_pageable", size_bytes, number);
            out.src_device = number;
            measure(std::move(out), {{&place->device, memory, place->send->data(), size_bytes}},
                    !is_pinned, why);
        }
    }
}

void GpuCopies::measure(CopyRow row, const std::vector<GpuCopy>& copies, bool sync,
                        const Refusal* why) {
    if (why != nullptr) {
        rows_.refuse(std::move(row), *why);
        return;
    }
    Timed timed = sync ? sync_copies(copies) : async_copies(copies);
    timed.check = [this, &copies, &run = timed.run](std::uint64_t& n_wrong) {
        const std::uint64_t seed = seed_;
        seed_ += 2 * copies.size();
        Status status;
        for (std::size_t i = 0; i < copies.size() && status.ok(); ++i) {
            const GpuCopy& c = copies[i];
            // The destination begins with another pattern: what was there before is no result.
            status = put_pattern(*c.device, c.to, c.bytes, seed + 2 * i + 1);
            if (status.ok()) {
                status = put_pattern(*c.device, c.from, c.bytes, seed + 2 * i);
            }
        }
        double us = 0;
        if (status.ok()) {
            status = run(1, us);
        }
        for (std::size_t i = 0; i < copies.size() && status.ok(); ++i) {
            const GpuCopy& c = copies[i];
            status = compare(*c.device, c.to, c.bytes, seed + 2 * i, n_wrong);
        }
        return status;
    };
    rows_.measure(std::move(row), timed);
}

CopyRow GpuCopies::row(const char* kind, std::uint64_t size_bytes, int device) const {
    CopyRow made = rows_.make(kind, size_bytes);
    made.device = places_.at(device)->device.name();
    return made;
}

}  // namespace collscope
