#include "memcpy/ipc.h"

#include <array>
#include <cstring>

#include "clock.h"
#include "memcpy/gpu.h"

namespace collscope {

namespace {

constexpr std::array<const char*, 5> kinds = {"ipc_open", "ipc_close", "ipc_async", "ipc_sync",
                                              "ipc_sync_open"};
constexpr char look = 'l';  // wish: count the wrong bytes in the shared memory

const char* missing_function(const gpu::Runtime& runtime) {
    return !runtime.ipc_get_mem_handle     ? "IpcGetMemHandle"
           : !runtime.ipc_open_mem_handle  ? "IpcOpenMemHandle"
           : !runtime.ipc_close_mem_handle ? "IpcCloseMemHandle"
                                           : nullptr;
}

}  // namespace

IpcCopies::IpcCopies(const Control& control, const gpu::Runtime& runtime, std::pair<int, int> pair,
                     CopyRows& rows)
    : control_(control), runtime_(runtime), pair_(pair), rows_(rows), partner_(control) {}

void IpcCopies::open(const Status& runtime_is_there) {
    if (control_.processes() < 2) {
        never_ = {"skipped", "it needs two processes", false};
        return;
    }
    if (control_.processes_on_host() < 2) {
        never_ = {"skipped", "the two processes run on different hosts", false};
        return;
    }
    Status mine = runtime_is_there;
    bool lacks = false;
    if (mine.ok()) {
        if (const char* function = missing_function(runtime_)) {
            mine = not_available(runtime_, function);
            lacks = true;
        } else {
            device_ = std::make_unique<GpuDevice>(runtime_);
            mine = device_->open(control_.writer() ? pair_.first : pair_.second);
        }
    }
    lacks = control_.any(lacks);
    const Status all = control_.agree(mine);
    if (!all.ok()) {
        never_ = {lacks ? "skipped" : "failed", all.error, false};
    }
}

void IpcCopies::run(std::uint64_t size_bytes) {
    if (never_) {
        refuse_all(size_bytes, *never_);
        return;
    }
    bool too_large = false;
    const Status shared = control_.agree(share(size_bytes, too_large));
    too_large = control_.any(too_large);
    std::string packed(sizeof handle_, '\0');
    std::memcpy(packed.data(), &handle_, sizeof handle_);
    std::memcpy(&handle_, control_.gather_all(packed).back().data(), sizeof handle_);
    if (!shared.ok()) {
        refuse_all(size_bytes, refusal_of(shared, too_large));
    } else if (control_.writer()) {
        measure_all(size_bytes);
        partner_.dismiss();
    } else {
        partner_.serve([&](const Wish& wish, std::uint64_t& n_wrong) {
            return compare(*device_, memory_->data(), size_bytes, wish.seed, n_wrong);
        });
    }
    memory_.reset();
}

// Each process gets its memory; process 1 a handle of it.
Status IpcCopies::share(std::uint64_t size_bytes, bool& too_large) {
    memory_ = std::make_unique<DeviceMemory>(*device_);
    const Status status = memory_->allocate(size_bytes, too_large);
    if (!status.ok() || control_.writer()) {
        return status;
    }
    return device_->status_of(runtime_.ipc_get_mem_handle(&handle_, memory_->data()),
                              "IpcGetMemHandle");
}

void IpcCopies::measure_all(std::uint64_t size_bytes) {
    open_and_close(size_bytes);
    copy(size_bytes);
    copy_with_open(size_bytes);
}

Status IpcCopies::map(void*& out) const {
    if (const Status status = device_->bind(); !status.ok()) {
        return status;
    }
    const unsigned flag = runtime_.vendor->ipc_flag(runtime_.version);
    return device_->status_of(runtime_.ipc_open_mem_handle(&out, handle_, flag),
                              "IpcOpenMemHandle");
}

Status IpcCopies::unmap(void* memory) const {
    return device_->status_of(runtime_.ipc_close_mem_handle(memory), "IpcCloseMemHandle");
}

void IpcCopies::open_and_close(std::uint64_t size_bytes) {
    for (const bool closing : {false, true}) {
        CopyRow made = row(closing ? "ipc_close" : "ipc_open", size_bytes);
        made.carries = false;
        const auto run = [this, closing](int calls, double& us) {
            us = 0;
            Status status;
            for (int i = 0; i < calls && status.ok(); ++i) {
                void* memory = nullptr;
                const double begin = steady_us();
                status = map(memory);
                const double opened = steady_us();
                if (status.ok()) {
                    status = unmap(memory);
                }
                us += (closing ? steady_us() - opened : opened - begin) / calls;
            }
            return status;
        };
        rows_.measure(std::move(made), {Timing::Isolated, run, {}});
    }
}

void IpcCopies::copy(std::uint64_t size_bytes) {
    void* memory = nullptr;
    const Status opened = map(memory);
    const std::vector<GpuCopy> copies = {
        {device_.get(), static_cast<std::byte*>(memory), memory_->data(), size_bytes}};
    for (const bool sync : {false, true}) {
        CopyRow made = row(sync ? "ipc_sync" : "ipc_async", size_bytes);
        if (!opened.ok()) {
            rows_.refuse(std::move(made), refusal_of(opened));
            continue;
        }
        Timed timed = sync ? sync_copies(copies) : async_copies(copies);
        timed.check = [&](std::uint64_t& n_wrong) {
            const auto once = [&timed] {
                double us = 0;
                return timed.run(1, us);
            };
            return check(size_bytes, once, n_wrong);
        };
        rows_.measure(std::move(made), timed);
    }
    if (opened.ok()) {
        unmap(memory);
    }
}

void IpcCopies::copy_with_open(std::uint64_t size_bytes) {
    const auto once = [this, size_bytes] {
        void* memory = nullptr;
        Status status = map(memory);
        if (!status.ok()) {
            return status;
        }
        status = device_->copy(static_cast<std::byte*>(memory), memory_->data(), size_bytes,
                               gpu::memcpy_default);
        if (status.ok()) {
            status = synchronise(*device_);
        }
        const Status closed = unmap(memory);
        return status.ok() ? closed : status;
    };
    const auto run = [&once](int calls, double& us) {
        Status status;
        const double begin = steady_us();
        for (int i = 0; i < calls && status.ok(); ++i) {
            status = once();
        }
        us = (steady_us() - begin) / calls;
        return status;
    };
    const auto checked = [&](std::uint64_t& n_wrong) { return check(size_bytes, once, n_wrong); };
    rows_.measure(row("ipc_sync_open", size_bytes), {Timing::Isolated, run, checked});
}

// Process 1 looks at what arrived in its own memory.
Status IpcCopies::check(std::uint64_t size_bytes, const std::function<Status()>& do_copy,
                        std::uint64_t& n_wrong) {
    const std::uint64_t seed = seed_++;
    Status status = put_pattern(*device_, memory_->data(), size_bytes, seed);
    if (status.ok()) {
        status = do_copy();
    }
    if (!status.ok()) {
        return status;
    }
    const auto nothing = [](const Wish&, std::uint64_t&) { return Status{}; };
    return partner_.together({look, 1, seed}, nothing, n_wrong);
}

void IpcCopies::refuse_all(std::uint64_t size_bytes, const Refusal& why) {
    for (const char* kind : kinds) {
        rows_.refuse(row(kind, size_bytes), why);
    }
}

CopyRow IpcCopies::row(const char* kind, std::uint64_t size_bytes) const {
    CopyRow made = rows_.make(kind, size_bytes);
    made.src_device = pair_.first;
    made.dst_device = pair_.second;
    made.device = device_ ? device_->name() : "";
    return made;
}

}  // namespace collscope
