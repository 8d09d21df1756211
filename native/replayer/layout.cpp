#include "layout.h"

#include <algorithm>

namespace collscope {

namespace {

bool is_group(const Class& cls) { return cls.point_to_point() || cls.op == Op::AllToAllv; }

// Elements that a rank sends and receives.
struct Amounts {
    std::uint64_t send = 0;
    std::uint64_t recv = 0;
};

Amounts amounts_of_group(const Messages& messages) {
    Amounts amounts;
    for (const Message& message : messages.sends) {
        amounts.send += message.count;
    }
    for (const Message& message : messages.recvs) {
        amounts.recv += message.count;
    }
    return amounts;
}

Amounts amounts_of(const Class& cls, int rank, int nranks) {
    const std::uint64_t one = cls.count;
    const std::uint64_t all = cls.count * static_cast<std::uint64_t>(nranks);
    const bool is_root = rank == cls.root.value_or(0);
    switch (cls.op) {
        case Op::AllReduce:
            return {one, one};
        case Op::AllGather:
            return {one, all};
        case Op::ReduceScatter:
            return {all, one};
        case Op::Broadcast:
            return {is_root ? one : 0, one};
        case Op::Reduce:
            return {one, is_root ? one : 0};
        case Op::AllToAll:
            return {all, all};
        case Op::Gather:
            return {one, is_root ? all : 0};
        case Op::Scatter:
            return {is_root ? all : 0, one};
        case Op::AllToAllv:
        case Op::SendRecv:
            break;
    }
    return {};
}

// Blocks of `count` elements that come from all ranks; `index` of the first in each one's input.
std::vector<Piece> from_all(std::uint64_t count, int nranks, std::uint64_t index) {
    std::vector<Piece> pieces;
    pieces.reserve(static_cast<std::size_t>(nranks));
    for (int source = 0; source < nranks; ++source) {
        pieces.push_back({static_cast<std::uint64_t>(source) * count, count, source, index});
    }
    return pieces;
}

std::vector<Piece> wanted_of(const Class& cls, int rank, int nranks) {
    const std::uint64_t count = cls.count;
    const std::uint64_t first = static_cast<std::uint64_t>(rank) * count;
    const int root = cls.root.value_or(0);
    switch (cls.op) {
        case Op::AllReduce:
            return {{0, count, from_reduction, 0}};
        case Op::AllGather:
            return from_all(count, nranks, 0);
        case Op::ReduceScatter:
            return {{0, count, from_reduction, first}};
        case Op::Broadcast:
            return {{0, count, root, 0}};
        case Op::Scatter:
            return {{0, count, root, first}};
        case Op::AllToAll:
            return from_all(count, nranks, first);
        case Op::Reduce:
            return rank == root ? std::vector<Piece>{{0, count, from_reduction, 0}}
                                : std::vector<Piece>{};
        case Op::Gather:
            return rank == root ? from_all(count, nranks, 0) : std::vector<Piece>{};
        case Op::AllToAllv:
        case Op::SendRecv:
            break;
    }
    return {};
}

const std::vector<Transfer>& transfers_of(const Class& cls, int which) {
    return cls.transfers.at(static_cast<std::size_t>(which));
}

// A sender's blocks lie one after another in the order of its transfers; so do a receiver's.
std::vector<Piece> wanted_of_group(const std::vector<Transfer>& transfers, int rank, int nranks) {
    std::vector<std::uint64_t> sent(static_cast<std::size_t>(nranks));
    std::vector<Piece> pieces;
    std::uint64_t received = 0;
    for (const Transfer& transfer : transfers) {
        std::uint64_t& index = sent.at(static_cast<std::size_t>(transfer.src));
        if (transfer.dst == rank) {
            pieces.push_back({received, transfer.count, transfer.src, index});
            received += transfer.count;
        }
        index += transfer.count;
    }
    return pieces;
}

Messages messages_of_group(const std::vector<Transfer>& transfers, int rank) {
    Messages messages;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const Transfer& transfer : transfers) {
        if (transfer.src == rank) {
            messages.sends.push_back({transfer.dst, sent, transfer.count});
            sent += transfer.count;
        }
        if (transfer.dst == rank) {
            messages.recvs.push_back({transfer.src, received, transfer.count});
            received += transfer.count;
        }
    }
    return messages;
}

std::vector<Message> with_all(std::uint64_t count, int nranks) {
    std::vector<Message> messages;
    messages.reserve(static_cast<std::size_t>(nranks));
    for (int peer = 0; peer < nranks; ++peer) {
        messages.push_back({peer, static_cast<std::uint64_t>(peer) * count, count});
    }
    return messages;
}

std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

// In place, the rank's own block (`own` bytes from the start) of the larger side is the other side.
void place_in_one(const Class& cls, std::uint64_t own, Layout& layout) {
    if (cls.op == Op::AllGather || cls.op == Op::Gather) {
        layout.send_offset = layout.recv_bytes > layout.send_bytes ? own : 0;
    } else if (cls.op == Op::ReduceScatter || cls.op == Op::Scatter) {
        layout.recv_offset = layout.send_bytes > layout.recv_bytes ? own : 0;
    }
}

}  // namespace

Layout layout_of(const Class& cls, int which, int rank, int nranks) {
    Layout layout;
    const std::uint64_t size = itemsize(cls.datatype);
    Amounts amounts;
    if (is_group(cls)) {
        amounts = amounts_of_group(messages_of_group(transfers_of(cls, which), rank));
        layout.wanted = wanted_of_group(transfers_of(cls, which), rank, nranks);
    } else {
        amounts = amounts_of(cls, rank, nranks);
        layout.wanted = wanted_of(cls, rank, nranks);
    }
    layout.send_bytes = amounts.send * size;
    layout.recv_bytes = amounts.recv * size;
    layout.in_place_ignored = cls.in_place && (is_group(cls) || cls.op == Op::AllToAll);
    const bool in_place = cls.in_place && !layout.in_place_ignored;
    std::uint64_t used = std::max(layout.send_bytes, layout.recv_bytes);
    if (in_place) {
        place_in_one(cls, static_cast<std::uint64_t>(rank) * cls.count * size, layout);
    } else if (layout.send_bytes != 0 && layout.recv_bytes != 0) {
        layout.recv_offset = aligned(layout.send_bytes);
        used = layout.recv_offset + layout.recv_bytes;
    }
    layout.arena_bytes = std::max(aligned(used), buffer_alignment);
    return layout;
}

Messages messages_of(const Class& cls, int which, int rank, int nranks) {
    if (is_group(cls)) {
        return messages_of_group(transfers_of(cls, which), rank);
    }
    const int root = cls.root.value_or(0);
    const std::vector<Message> one{{root, 0, cls.count}};
    const auto at_root = [&] {
        return rank == root ? with_all(cls.count, nranks) : std::vector<Message>{};
    };
    switch (cls.op) {
        case Op::AllToAll:
            return {with_all(cls.count, nranks), with_all(cls.count, nranks)};
        case Op::Gather:
            return {one, at_root()};
        case Op::Scatter:
            return {at_root(), one};
        default:
            return {};
    }
}

std::uint64_t size_bytes_of(const Class& cls, int nranks) {
    const std::uint64_t size = itemsize(cls.datatype);
    const bool per_rank = cls.op == Op::AllGather || cls.op == Op::ReduceScatter ||
                          cls.op == Op::AllToAll || cls.op == Op::Gather || cls.op == Op::Scatter;
    const std::uint64_t blocks = per_rank ? static_cast<std::uint64_t>(nranks) : 1;
    if (!is_group(cls)) {
        return cls.count * size * blocks;
    }
    std::uint64_t largest = 0;  // message
    std::uint64_t most = 0;     // that one rank sends, or receives
    for (const std::vector<Transfer>& transfers : cls.transfers) {
        std::vector<Amounts> amounts(static_cast<std::size_t>(nranks));
        for (const Transfer& transfer : transfers) {
            largest = std::max(largest, transfer.count);
            Amounts& sender = amounts.at(static_cast<std::size_t>(transfer.src));
            sender.send += transfer.count;
            Amounts& receiver = amounts.at(static_cast<std::size_t>(transfer.dst));
            receiver.recv += transfer.count;
            most = std::max({most, sender.send, receiver.recv});
        }
    }
    return (cls.op == Op::AllToAllv ? most : largest * blocks) * size;
}

}  // namespace collscope
