#include "gpu_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include <mpi.h>

#include "gpu/loader.h"
#include "gpu_calls.h"
#include "gpu_device.h"

namespace collscope {
namespace {

using gpu::CollectiveLibrary;
using gpu::Runtime;

// A device and this rank's communicators on it.
struct LocalRank {
    LocalRank(const gpu::Libraries& libraries, std::size_t n_comms, int world)
        : device(libraries.runtime),
          calls(libraries.collectives),
          world_rank(world),
          comms(n_comms, nullptr) {}

    GpuDevice device;
    GpuCalls calls;
    int world_rank;
    std::vector<gpu::CommHandle> comms;  // by index into Plan::comms; null: no member, or not yet
};

class GpuBackend final : public Backend {
public:
    GpuBackend(gpu::Libraries libraries, const Plan& plan, bool one_thread)
        : libraries_(std::move(libraries)), plan_(plan), one_thread_(one_thread) {}
    ~GpuBackend() override;

    Status open(const std::vector<int>& devices, bool urgent);

    std::string name() const override { return std::string(libraries_.runtime.vendor->name); }
    std::string library() const override { return libraries_.collectives_name(); }
    std::string library_path() const override { return libraries_.collectives.path; }
    std::string runtime() const override { return libraries_.runtime_name(); }
    std::string device(int local) const override { return rank(local).device.name(); }
    int local_ranks() const override { return static_cast<int>(ranks_.size()); }
    GpuDevice* gpu(int local) override { return &rank(local).device; }

    Status allocate(int local, std::size_t bytes, std::byte*& out) override {
        return rank(local).device.allocate(bytes, out);
    }
    Status copy_in(int local, std::byte* to, const std::byte* from, std::size_t bytes) override;
    Status copy_out(int local, std::byte* to, const std::byte* from, std::size_t bytes) override;
    Status copy_within(int local, std::byte* to, const std::byte* from,
                       std::size_t bytes) override {
        return rank(local).device.copy(to, from, bytes, gpu::memcpy_device_to_device);
    }
    Status fill(int local, std::byte* to, unsigned char byte, std::size_t bytes) override {
        return rank(local).device.fill(to, byte, bytes);
    }

    Status create_communicator(int comm) override;
    Status group_start() override;
    Status group_end() override;
    Status enqueue(int local, const Class& cls, int which, Buffers buffers) override;

    Status mark_start(int local, int slot) override { return rank(local).device.record(2 * slot); }
    Status mark_stop(int local, int slot) override {
        return rank(local).device.record(2 * slot + 1);
    }
    Status elapsed_us(int local, int slot, double& out) override;
    Status synchronise(int local) override;

    bool has_graphs() const override { return true; }
    Status capture_begin(int local) override { return rank(local).device.capture_begin(); }
    Status capture_end(int local) override { return rank(local).device.capture_end(); }
    Status graph_launch(int local) override { return rank(local).device.graph_launch(); }

    void abort() override { lost_ = true; }

private:
    LocalRank& rank(int local) { return *ranks_[static_cast<std::size_t>(local)]; }
    const LocalRank& rank(int local) const { return *ranks_[static_cast<std::size_t>(local)]; }
    // Runs `ready` until it is true. Errors of the library end the wait.
    template <typename Ready>
    Status wait(int local, const Ready& ready);
    Status library_errors(int local);
    Status init_members(int comm, const gpu::UniqueId& id);

    gpu::Libraries libraries_;
    const Plan& plan_;
    bool one_thread_;
    std::vector<std::unique_ptr<LocalRank>> ranks_;
    // Something in flight may never end: nothing is waited for any more.
    std::atomic<bool> lost_ = false;
};

GpuBackend::~GpuBackend() {
    // Freeing waits for the device, so after an error it is left to the end of the process.
    if (lost_) {
        for (auto& local : ranks_) {
            local->device.leave();
        }
        return;
    }
    for (auto& local : ranks_) {
        local->device.drop_graph();
    }
    for (auto& local : ranks_) {
        if (!local->device.bind().ok()) {
            continue;
        }
        for (gpu::CommHandle comm : local->comms) {
            if (comm) {
                libraries_.collectives.comm_destroy(comm);
            }
        }
    }
}

Status GpuBackend::open(const std::vector<int>& devices, bool urgent) {
    int process = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    const int first = process * static_cast<int>(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
        if (devices[i] >= libraries_.devices) {
            return {"device " + std::to_string(devices[i]) + ": this host has " +
                    std::to_string(libraries_.devices) + " usable GPUs. Start fewer ranks on it."};
        }
        ranks_.push_back(std::make_unique<LocalRank>(libraries_, plan_.comms.size(),
                                                     first + static_cast<int>(i)));
        const Status status = ranks_.back()->device.open(devices[i], urgent);
        if (!status.ok()) {
            return {"device " + std::to_string(devices[i]) + ": " + status.error +
                    ". Check that nothing else holds it."};
        }
    }
    return {};
}

Status GpuBackend::copy_in(int local, std::byte* to, const std::byte* from, std::size_t bytes) {
    const Status status = rank(local).device.copy(to, from, bytes, gpu::memcpy_host_to_device);
    return status.ok() ? synchronise(local) : status;
}

Status GpuBackend::copy_out(int local, std::byte* to, const std::byte* from, std::size_t bytes) {
    // A copy to ordinary memory blocks until the stream comes to it, so the stream is waited for
    // first, where errors of the library are seen.
    Status status = synchronise(local);
    if (status.ok()) {
        status = rank(local).device.copy(to, from, bytes, gpu::memcpy_device_to_host);
    }
    return status.ok() ? synchronise(local) : status;
}

Status GpuBackend::create_communicator(int comm) {
    const std::vector<int>& members = plan_.comms[static_cast<std::size_t>(comm)].ranks;
    std::vector<int> processes;
    for (const int member : members) {
        processes.push_back(member / local_ranks());
    }
    const int owner = processes.front();  // the process of rank 0 makes the unique id
    std::sort(processes.begin(), processes.end());
    processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
    const auto at = std::lower_bound(processes.begin(), processes.end(), owner);
    const int root = static_cast<int>(at - processes.begin());

    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm mpi = MPI_COMM_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(processes.size()), processes.data(), &group);
    // 32767 is the smallest upper bound of tags that MPI allows.
    MPI_Comm_create_group(MPI_COMM_WORLD, group, comm % 32768, &mpi);
    struct Message {
        int result = gpu::collective_success;
        gpu::UniqueId id{};
    } message;
    int process = 0;
    MPI_Comm_rank(mpi, &process);
    if (process == root) {
        message.result = libraries_.collectives.get_unique_id(&message.id);
    }
    MPI_Bcast(&message, sizeof message, MPI_BYTE, root, mpi);
    MPI_Comm_free(&mpi);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    const Status status = status_of(libraries_.collectives, message.result, "ncclGetUniqueId");
    return status.ok() ? init_members(comm, message.id) : status;
}

Status GpuBackend::init_members(int comm, const gpu::UniqueId& id) {
    const Comm& planned = plan_.comms[static_cast<std::size_t>(comm)];
    Status status = group_start();
    if (!status.ok()) {
        return status;
    }
    for (auto& local : ranks_) {
        const int member = planned.rank_of(local->world_rank);
        if (member < 0) {
            continue;
        }
        status = local->device.bind();
        if (!status.ok()) {
            break;
        }
        gpu::CommHandle& handle = local->comms[static_cast<std::size_t>(comm)];
        const int result =
            libraries_.collectives.comm_init_rank(&handle, planned.size(), id, member);
        status = status_of(libraries_.collectives, result, "ncclCommInitRank");
        if (!status.ok()) {
            break;
        }
    }
    const Status ended = group_end();
    status = status.ok() ? ended : status;
    if (!status.ok()) {
        lost_ = true;
    }
    return status;
}

Status GpuBackend::group_start() {
    return status_of(libraries_.collectives, libraries_.collectives.group_start(),
                     "ncclGroupStart");
}

Status GpuBackend::group_end() {
    return status_of(libraries_.collectives, libraries_.collectives.group_end(), "ncclGroupEnd");
}

Status GpuBackend::enqueue(int local, const Class& cls, int which, Buffers buffers) {
    LocalRank& me = rank(local);
    const int index = cls.comms[static_cast<std::size_t>(which)];
    const Comm& comm = plan_.comms[static_cast<std::size_t>(index)];
    const CallTarget target{me.comms[static_cast<std::size_t>(index)], me.device.stream(),
                            comm.rank_of(me.world_rank), comm.size()};
    const Status status = me.device.bind();
    return status.ok() ? me.calls.enqueue(target, cls, which, buffers) : status;
}

template <typename Ready>
Status GpuBackend::wait(int local, const Ready& ready) {
    constexpr unsigned polls_between_checks = 64;
    for (unsigned polls = 1;; ++polls) {
        bool done = false;
        Status status = ready(done);
        if (status.ok() && !done && polls % polls_between_checks == 0) {
            status = library_errors(local);
            std::this_thread::yield();
        }
        if (!status.ok()) {
            lost_ = true;
        }
        if (!status.ok() || done) {
            return status;
        }
    }
}

Status GpuBackend::library_errors(int local) {
    if (lost_) {
        return {"given up: another rank of this process failed"};
    }
    // One thread waits for its ranks in turn, so the one that failed may be another.
    for (int l = one_thread_ ? 0 : local; l < (one_thread_ ? local_ranks() : local + 1); ++l) {
        for (gpu::CommHandle comm : rank(l).comms) {
            if (!comm) {
                continue;
            }
            int error = gpu::collective_success;
            const int result = libraries_.collectives.comm_get_async_error(comm, &error);
            if (result == gpu::collective_success && error == gpu::collective_in_progress) {
                continue;
            }
            const int worst = result == gpu::collective_success ? error : result;
            Status status = status_of(libraries_.collectives, worst, "ncclCommGetAsyncError", comm);
            if (!status.ok()) {
                return status;
            }
        }
    }
    return {};
}

Status GpuBackend::elapsed_us(int local, int slot, double& out) {
    GpuDevice& device = rank(local).device;
    const int stop = 2 * slot + 1;
    const Status status = wait(local, [&](bool& done) { return device.reached(stop, done); });
    return status.ok() ? device.between_us(2 * slot, stop, out) : status;
}

Status GpuBackend::synchronise(int local) {
    GpuDevice& device = rank(local).device;
    return wait(local, [&](bool& done) { return device.idle(done); });
}

}  // namespace

Sight see_gpus(const GpuOptions& options, const gpu::Vendor*& vendor, std::string& error) {
    const gpu::Libraries libraries =
        gpu::load_usable(options.backend, options.library, options.runtime);
    error = libraries.error;
    vendor = libraries.runtime.vendor;
    Sight out;
    for (int device = 0; libraries.ok() && device < libraries.devices; ++device) {
        std::array<char, 64> address{};  // "0000:1b:00.0"
        const auto get = libraries.runtime.device_get_pci_bus_id;
        // "NVIDIA H100 80GB HBM3 MIG 1g.10gb": an instance, which shares its GPU's address.
        const bool whole =
            device_name(libraries.runtime, device).find(" MIG ") == std::string::npos;
        const bool named =
            whole && get &&
            get(address.data(), static_cast<int>(address.size()) - 1, device) == gpu::success;
        out.gpus.emplace_back(named ? address.data() : "");
    }
    return out;
}

std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options, const Plan& plan,
                                          std::string& error) {
    gpu::Libraries libraries = gpu::load_usable(options.backend, options.library, options.runtime);
    error = libraries.error;
    if (!libraries.ok()) {
        return nullptr;
    }
    auto backend = std::make_unique<GpuBackend>(std::move(libraries), plan, options.one_thread);
    error = backend->open(options.devices, options.urgent).error;
    if (!error.empty()) {
        return nullptr;
    }
    return backend;
}

}  // namespace collscope
