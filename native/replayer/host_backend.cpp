#include "host_backend.h"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "host_machine.h"
#include "host_op.h"
#include "large_count.h"
#include "layout.h"
#include "reduce.h"

namespace collscope {

namespace {

constexpr int slots = 1024;

// Everything about a class on a communicator that a call would have to look up.
struct Prepared {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int nranks = 1;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    std::uint64_t bytes = 0;  // of `count` elements
    std::size_t item = 0;
    Messages messages;
    std::vector<MPI_Request> requests;
};

class HostBackend final : public Backend {
public:
    HostBackend(const Plan& plan, int processes_here)
        : plan_(plan), processes_here_(processes_here), comms_(plan.comms.size(), MPI_COMM_NULL) {
        MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_);
        prepared_.resize(plan.classes.size());
    }

    ~HostBackend() override {
        std::free(memory_);
        for (MPI_Comm& comm : comms_) {
            if (comm != MPI_COMM_NULL) {
                MPI_Comm_free(&comm);
            }
        }
    }

    std::string name() const override { return "host"; }
    std::string library() const override { return mpi_library(); }
    std::string library_path() const override { return {}; }
    std::string runtime() const override { return {}; }
    std::string device(int) const override { return processor(); }
    int local_ranks() const override { return 1; }

    Status allocate(int, std::size_t bytes, std::byte*& out) override {
        // Linux grants more than there is and kills the process on use, so ask what there is.
        const std::size_t free = available_bytes() / static_cast<std::size_t>(processes_here_);
        if (bytes > free) {
            return {"out of memory: " + std::to_string(bytes) + " bytes wanted, " +
                    std::to_string(free) + " are this process's share"};
        }
        std::free(memory_);
        memory_ = static_cast<std::byte*>(std::aligned_alloc(buffer_alignment, bytes));
        out = memory_;
        return memory_ != nullptr ? Status{} : Status{"out of memory: aligned_alloc"};
    }
    Status copy_in(int, std::byte* device, const std::byte* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
        return {};
    }
    Status copy_out(int, std::byte* host, const std::byte* device, std::size_t bytes) override {
        std::memcpy(host, device, bytes);
        return {};
    }
    Status copy_within(int, std::byte* to, const std::byte* from, std::size_t bytes) override {
        std::memmove(to, from, bytes);
        return {};
    }
    Status fill(int, std::byte* device, unsigned char byte, std::size_t bytes) override {
        std::memset(device, byte, bytes);
        return {};
    }

    Status create_communicator(int index) override;
    Status group_start() override { return {}; }
    Status group_end() override { return {}; }
    Status enqueue(int, const Class& cls, int which, Buffers buffers) override;

    Status mark_start(int, int slot) override {
        started_[static_cast<std::size_t>(slot)] = MPI_Wtime();
        return {};
    }
    Status mark_stop(int, int slot) override {
        stopped_[static_cast<std::size_t>(slot)] = MPI_Wtime();
        return {};
    }
    Status elapsed_us(int, int slot, double& out) override {
        const auto s = static_cast<std::size_t>(slot);
        out = (stopped_[s] - started_[s]) * 1e6;
        return {};
    }
    Status synchronise(int) override { return {}; }

    bool has_graphs() const override { return false; }
    Status capture_begin(int) override { return {"the host backend has no graphs"}; }
    Status capture_end(int) override { return {"the host backend has no graphs"}; }
    Status graph_launch(int) override { return {"the host backend has no graphs"}; }

    void abort() override {}

private:
    Prepared& prepared(const Class& cls, int which);
    Status average(const Class& cls, const Prepared& p, std::byte* data);
    Status send_and_receive(Prepared& p, Buffers buffers);
    Status reduce_scatter(const Class& cls, const Prepared& p, Buffers buffers);
    Status rooted(const Class& cls, const Prepared& p, Buffers buffers);

    const Plan& plan_;
    int processes_here_;
    int world_rank_ = 0;
    std::vector<MPI_Comm> comms_;
    std::vector<std::vector<Prepared>> prepared_;  // by class, by index into its comms
    HostOps ops_;
    std::byte* memory_ = nullptr;
    std::vector<std::byte> scratch_;
    std::array<double, slots> started_{};
    std::array<double, slots> stopped_{};
};

Status HostBackend::create_communicator(int index) {
    const auto i = static_cast<std::size_t>(index);
    if (comms_[i] != MPI_COMM_NULL) {
        return {};
    }
    const std::vector<int>& ranks = plan_.comms[i].ranks;
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members);
    // MPI promises tags up to 32767 only.
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, index % 32768, &comms_[i]);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    if (code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(comms_[i], MPI_ERRORS_RETURN);
    }
    return mpi_status(code, "MPI_Comm_create_group");
}

Prepared& HostBackend::prepared(const Class& cls, int which) {
    auto& of_class = prepared_[static_cast<std::size_t>(&cls - plan_.classes.data())];
    if (of_class.empty()) [[unlikely]] {
        of_class.resize(cls.comms.size());
    }
    Prepared& p = of_class[static_cast<std::size_t>(which)];
    if (p.comm == MPI_COMM_NULL) [[unlikely]] {
        const auto comm = static_cast<std::size_t>(cls.comms[static_cast<std::size_t>(which)]);
        p.comm = comms_[comm];
        p.rank = plan_.comms[comm].rank_of(world_rank_);
        p.nranks = plan_.comms[comm].size();
        p.type = ops_.type(cls.datatype);
        p.op = cls.redop ? ops_.op(cls.datatype, *cls.redop) : MPI_OP_NULL;
        p.item = itemsize(cls.datatype);
        p.bytes = cls.count * p.item;
        if (cls.point_to_point()) {
            p.messages = messages_of(cls, which, p.rank, p.nranks);
            p.requests.resize(p.messages.sends.size() + p.messages.recvs.size());
        }
    }
    return p;
}

Status HostBackend::enqueue(int, const Class& cls, int which, Buffers buffers) {
    Prepared& p = prepared(cls, which);
    if (cls.point_to_point()) {
        return send_and_receive(p, buffers);
    }
    const bool same = buffers.send == buffers.recv;
    switch (cls.op) {
        case Op::AllReduce: {
            const void* send = same ? MPI_IN_PLACE : buffers.send;
            const int code = mpi::allreduce(send, buffers.recv, cls.count, p.type, p.op, p.comm);
            return code != MPI_SUCCESS ? mpi_status(code, "MPI_Allreduce")
                                       : average(cls, p, buffers.recv);
        }
        case Op::AllGather: {
            const bool inside =
                buffers.send == buffers.recv + p.bytes * static_cast<std::uint64_t>(p.rank);
            const void* send = inside ? MPI_IN_PLACE : buffers.send;
            return mpi_status(mpi::allgather(send, buffers.recv, p.bytes, p.comm), "MPI_Allgather");
        }
        case Op::ReduceScatter:
            return reduce_scatter(cls, p, buffers);
        case Op::AllToAll:
            return mpi_status(mpi::alltoall(buffers.send, buffers.recv, p.bytes, p.comm),
                              "MPI_Alltoall");
        default:
            return rooted(cls, p, buffers);
    }
}

Status HostBackend::rooted(const Class& cls, const Prepared& p, Buffers buffers) {
    const int root = *cls.root;
    const bool here = root == p.rank;
    const std::uint64_t mine = p.bytes * static_cast<std::uint64_t>(root);
    if (cls.op == Op::Broadcast) {
        if (here && buffers.send != buffers.recv) {
            std::memcpy(buffers.recv, buffers.send, p.bytes);
        }
        return mpi_status(mpi::broadcast(buffers.recv, p.bytes, root, p.comm), "MPI_Bcast");
    }
    if (cls.op == Op::Reduce) {
        const void* send = here && buffers.send == buffers.recv ? MPI_IN_PLACE : buffers.send;
        void* recv = here ? buffers.recv : nullptr;
        const int code = mpi::reduce(send, recv, cls.count, p.type, p.op, root, p.comm);
        return code != MPI_SUCCESS || !here ? mpi_status(code, "MPI_Reduce")
                                            : average(cls, p, buffers.recv);
    }
    if (cls.op == Op::Gather) {
        const bool inside = here && buffers.send == buffers.recv + mine;
        const void* send = inside ? MPI_IN_PLACE : buffers.send;
        return mpi_status(mpi::gather(send, buffers.recv, p.bytes, root, p.comm), "MPI_Gather");
    }
    const bool inside = here && buffers.recv == buffers.send + mine;
    void* recv = inside ? MPI_IN_PLACE : buffers.recv;
    return mpi_status(mpi::scatter(buffers.send, recv, p.bytes, root, p.comm), "MPI_Scatter");
}

// In place MPI leaves the result at the start of the input, NCCL at the rank's part of it.
Status HostBackend::reduce_scatter(const Class& cls, const Prepared& p, Buffers buffers) {
    const std::uint64_t mine = p.bytes * static_cast<std::uint64_t>(p.rank);
    const bool inside = buffers.recv == buffers.send + mine;
    if (inside && scratch_.size() < p.bytes) {
        scratch_.resize(p.bytes);
    }
    std::byte* out = inside ? scratch_.data() : buffers.recv;
    const int code = mpi::reduce_scatter(buffers.send, out, cls.count, p.type, p.op, p.comm);
    if (code != MPI_SUCCESS) {
        return mpi_status(code, "MPI_Reduce_scatter_block");
    }
    if (inside && p.bytes != 0) {
        std::memcpy(buffers.recv, out, p.bytes);
    }
    return average(cls, p, buffers.recv);
}

Status HostBackend::average(const Class& cls, const Prepared& p, std::byte* data) {
    if (*cls.redop == Redop::Avg) {
        divide(cls.datatype, data, cls.count, p.nranks);
    }
    return {};
}

Status HostBackend::send_and_receive(Prepared& p, Buffers buffers) {
    std::size_t n = 0;
    int code = MPI_SUCCESS;
    for (const Message& m : p.messages.recvs) {
        std::byte* to = buffers.recv + m.offset * p.item;
        if (code == MPI_SUCCESS) {
            code = mpi::irecv(to, m.count * p.item, m.peer, p.comm, p.requests[n++]);
        }
    }
    for (const Message& m : p.messages.sends) {
        const std::byte* from = buffers.send + m.offset * p.item;
        if (code == MPI_SUCCESS) {
            code = mpi::isend(from, m.count * p.item, m.peer, p.comm, p.requests[n++]);
        }
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Waitall(static_cast<int>(n), p.requests.data(), MPI_STATUSES_IGNORE);
    }
    return mpi_status(code, "group of Send and Recv");
}

}  // namespace

std::unique_ptr<Backend> make_host_backend(const Plan& plan, int processes_here) {
    return std::make_unique<HostBackend>(plan, processes_here);
}

}  // namespace collscope
