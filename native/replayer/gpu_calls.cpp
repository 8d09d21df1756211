#include "gpu_calls.h"

#include <set>
#include <utility>

namespace collscope {
namespace {

void tabulate(const std::vector<Message>& messages, int nranks, std::vector<std::size_t>& counts,
              std::vector<std::size_t>& offsets) {
    counts.assign(static_cast<std::size_t>(nranks), 0);
    offsets.assign(static_cast<std::size_t>(nranks), 0);
    for (const Message& message : messages) {
        counts[static_cast<std::size_t>(message.peer)] = message.count;
        offsets[static_cast<std::size_t>(message.peer)] = message.offset;
    }
}

// Whether no two messages go from one rank to another. The same answer on every rank.
bool one_to_each(const Class& cls, int which) {
    if (cls.transfers.empty()) {
        return true;
    }
    std::set<std::pair<int, int>> seen;
    for (const Transfer& transfer : cls.transfers[static_cast<std::size_t>(which)]) {
        if (!seen.emplace(transfer.src, transfer.dst).second) {
            return false;
        }
    }
    return true;
}

}  // namespace

Status status_of(const gpu::CollectiveLibrary& library, int result, const char* function,
                 gpu::CommHandle comm) {
    if (result == gpu::collective_success) {
        return {};
    }
    std::string text = std::string(function) + ": " + library.get_error_string(result) +
                       " (result " + std::to_string(result) + ")";
    const char* last = library.get_last_error ? library.get_last_error(comm) : nullptr;
    if (last && *last) {
        text += std::string(": ") + last;
    }
    while (text.ends_with('\n')) text.pop_back();
    return {text};
}

Status GpuCalls::enqueue(const CallTarget& target, const Class& cls, int which, Buffers buffers) {
    const gpu::CollectiveLibrary& nccl = library_;
    const auto& [comm, stream, rank, nranks] = target;
    const auto& [send, recv] = buffers;
    const auto count = static_cast<std::size_t>(cls.count);
    const int type = static_cast<int>(cls.datatype);
    const int redop = static_cast<int>(cls.redop.value_or(Redop::Sum));
    const int root = cls.root.value_or(0);
    if (cls.point_to_point()) {
        return exchange(target, cls, which, buffers);
    }
    // By a name of its own: clang before 16 lets no lambda capture a structured binding.
    const auto status = [&, handle = target.comm](int result, const char* function) {
        return status_of(nccl, result, function, handle);
    };
    switch (cls.op) {
        case Op::AllReduce:
            return status(nccl.all_reduce(send, recv, count, type, redop, comm, stream),
                          "ncclAllReduce");
        case Op::AllGather:
            return status(nccl.all_gather(send, recv, count, type, comm, stream), "ncclAllGather");
        case Op::ReduceScatter:
            return status(nccl.reduce_scatter(send, recv, count, type, redop, comm, stream),
                          "ncclReduceScatter");
        case Op::Broadcast:
            return status(nccl.broadcast(send, recv, count, type, root, comm, stream),
                          "ncclBroadcast");
        case Op::Reduce:
            return status(nccl.reduce(send, recv, count, type, redop, root, comm, stream),
                          "ncclReduce");
        case Op::AllToAll:
            if (!nccl.all_to_all) {
                break;
            }
            return status(nccl.all_to_all(send, recv, count, type, comm, stream), "ncclAllToAll");
        case Op::Gather:
            if (!nccl.gather) {
                break;
            }
            return status(nccl.gather(send, recv, count, type, root, comm, stream), "ncclGather");
        case Op::Scatter:
            if (!nccl.scatter) {
                break;
            }
            return status(nccl.scatter(send, recv, count, type, root, comm, stream), "ncclScatter");
        case Op::AllToAllv:
            if (!nccl.all_to_allv || !exchange_of(target, cls, which).one_each) {
                break;
            }
            return all_to_allv(target, cls, which, buffers);
        case Op::SendRecv:
            break;
    }
    return exchange(target, cls, which, buffers);
}

const GpuCalls::Exchange& GpuCalls::exchange_of(const CallTarget& target, const Class& cls,
                                                int which) {
    // A class has far fewer communicators than this.
    const std::size_t key =
        (static_cast<std::size_t>(cls.id) << 24) + static_cast<std::size_t>(which);
    const auto [entry, added] = exchanges_.try_emplace(key);
    Exchange& made = entry->second;
    if (added) {
        made.messages = messages_of(cls, which, target.rank, target.nranks);
        tabulate(made.messages.sends, target.nranks, made.send_counts, made.send_offsets);
        tabulate(made.messages.recvs, target.nranks, made.recv_counts, made.recv_offsets);
        made.one_each = one_to_each(cls, which);
    }
    return made;
}

Status GpuCalls::all_to_allv(const CallTarget& target, const Class& cls, int which,
                             Buffers buffers) {
    const Exchange& made = exchange_of(target, cls, which);
    const int result =
        library_.all_to_allv(buffers.send, made.send_counts.data(), made.send_offsets.data(),
                             buffers.recv, made.recv_counts.data(), made.recv_offsets.data(),
                             static_cast<int>(cls.datatype), target.comm, target.stream);
    return status_of(library_, result, "ncclAllToAllv", target.comm);
}

Status GpuCalls::exchange(const CallTarget& target, const Class& cls, int which, Buffers buffers) {
    const Messages& messages = exchange_of(target, cls, which).messages;
    const auto& [comm, stream, rank, nranks] = target;
    const int type = static_cast<int>(cls.datatype);
    const std::size_t width = itemsize(cls.datatype);
    Status status = status_of(library_, library_.group_start(), "ncclGroupStart", comm);
    if (!status.ok()) {
        return status;
    }
    for (const Message& m : messages.sends) {
        if (!status.ok()) {
            break;
        }
        const int result =
            library_.send(buffers.send + m.offset * width, m.count, type, m.peer, comm, stream);
        status = status_of(library_, result, "ncclSend", comm);
    }
    for (const Message& m : messages.recvs) {
        if (!status.ok()) {
            break;
        }
        const int result =
            library_.recv(buffers.recv + m.offset * width, m.count, type, m.peer, comm, stream);
        status = status_of(library_, result, "ncclRecv", comm);
    }
    // The group is closed even after an error, else every later call would wait in it.
    const int result = library_.group_end();
    return status.ok() ? status_of(library_, result, "ncclGroupEnd", comm) : status;
}

}  // namespace collscope
