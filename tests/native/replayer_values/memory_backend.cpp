#include "memory_backend.h"

using namespace collscope;

namespace {

using Bytes = std::vector<std::byte>;

Bytes part(const Bytes& bytes, std::size_t first, std::size_t length) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(length));
}

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

Bytes total(const Class& cls, const Contents& sent) {
    const std::size_t n = sent.front().size() / itemsize(cls.datatype);
    Bytes sum = sent.front();
    for (std::size_t rank = 1; rank < sent.size(); ++rank) {
        reduce(cls.datatype, *cls.redop, sent[rank].data(), sum.data(), n);
    }
    if (cls.redop == Redop::Avg) {
        divide(cls.datatype, sum.data(), n, static_cast<int>(sent.size()));
    }
    return sum;
}

Contents exchanged(const Class& cls, int which, const Contents& sent) {
    const std::size_t size = itemsize(cls.datatype);
    Contents out(sent.size());
    std::vector<std::size_t> used(sent.size());
    for (const Transfer& transfer : cls.transfers.at(static_cast<std::size_t>(which))) {
        const auto src = static_cast<std::size_t>(transfer.src);
        append(out[static_cast<std::size_t>(transfer.dst)],
               part(sent[src], used[src], transfer.count * size));
        used[src] += transfer.count * size;
    }
    return out;
}

}  // namespace

Contents received(const Class& cls, int which, const Contents& sent) {
    if (cls.point_to_point()) {
        return exchanged(cls, which, sent);
    }
    const std::size_t n = sent.size();
    const std::size_t block = cls.count * itemsize(cls.datatype);
    const auto root = static_cast<std::size_t>(cls.root.value_or(0));
    Bytes all;
    if (cls.op == Op::AllGather || cls.op == Op::Gather) {
        for (const Bytes& one : sent) {
            append(all, one);
        }
    }
    Contents out(n);
    for (std::size_t rank = 0; rank < n; ++rank) {
        switch (cls.op) {
            case Op::AllReduce:
                out[rank] = total(cls, sent);
                break;
            case Op::ReduceScatter:
                out[rank] = part(total(cls, sent), rank * block, block);
                break;
            case Op::Reduce:
                out[rank] = rank == root ? total(cls, sent) : Bytes{};
                break;
            case Op::AllGather:
                out[rank] = all;
                break;
            case Op::Gather:
                out[rank] = rank == root ? all : Bytes{};
                break;
            case Op::Broadcast:
                out[rank] = sent[root];
                break;
            case Op::Scatter:
                out[rank] = part(sent[root], rank * block, block);
                break;
            case Op::AllToAll:
                for (const Bytes& one : sent) {
                    append(out[rank], part(one, rank * block, block));
                }
                break;
            case Op::AllToAllv:
            case Op::SendRecv:
                break;
        }
    }
    return out;
}
