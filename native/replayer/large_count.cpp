#include "large_count.h"

#include <algorithm>
#include <climits>

#ifndef COLLSCOPE_MPI_MOST
#define COLLSCOPE_MPI_MOST INT_MAX
#endif

namespace collscope::mpi {

namespace {

constexpr int tag = 0;  // messages of one pair of ranks match in order

}  // namespace

#ifdef COLLSCOPE_MPI_COUNTS_64

namespace {

MPI_Count to_count(std::uint64_t n) { return static_cast<MPI_Count>(n); }

}  // namespace

int create_op(MPI_User_function_c* function, MPI_Op& out) {
    return MPI_Op_create_c(function, 1, &out);
}

int allreduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm) {
    return MPI_Allreduce_c(send, recv, to_count(count), type, op, comm);
}

int reduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
           int root, MPI_Comm comm) {
    return MPI_Reduce_c(send, recv, to_count(count), type, op, root, comm);
}

int reduce_scatter(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    return MPI_Reduce_scatter_block_c(send, recv, to_count(count), type, op, comm);
}

int broadcast(void* data, std::uint64_t bytes, int root, MPI_Comm comm) {
    return MPI_Bcast_c(data, to_count(bytes), MPI_BYTE, root, comm);
}

int allgather(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm) {
    const MPI_Count n = to_count(bytes);
    return MPI_Allgather_c(send, n, MPI_BYTE, recv, n, MPI_BYTE, comm);
}

int gather(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm) {
    const MPI_Count n = to_count(bytes);
    return MPI_Gather_c(send, n, MPI_BYTE, recv, n, MPI_BYTE, root, comm);
}

int scatter(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm) {
    const MPI_Count n = to_count(bytes);
    return MPI_Scatter_c(send, n, MPI_BYTE, recv, n, MPI_BYTE, root, comm);
}

int alltoall(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm) {
    const MPI_Count n = to_count(bytes);
    return MPI_Alltoall_c(send, n, MPI_BYTE, recv, n, MPI_BYTE, comm);
}

int isend(const void* send, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request) {
    return MPI_Isend_c(send, to_count(bytes), MPI_BYTE, peer, tag, comm, &request);
}

int irecv(void* recv, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request) {
    return MPI_Irecv_c(recv, to_count(bytes), MPI_BYTE, peer, tag, comm, &request);
}

#else

namespace {

constexpr std::uint64_t most = COLLSCOPE_MPI_MOST;  // elements of one MPI call

// `bytes` bytes as (count, type) of an MPI call. Frees the type that it made; MPI keeps it alive
// for as long as a message uses it.
class Bytes {
public:
    explicit Bytes(std::uint64_t bytes) {
        if (bytes <= most) {
            count_ = static_cast<int>(bytes);
            return;
        }
        // Whole parts of `most` bytes, then the rest: one element of a made-up type.
        MPI_Datatype part = MPI_DATATYPE_NULL;
        MPI_Datatype whole = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(static_cast<int>(most), MPI_BYTE, &part);
        MPI_Type_contiguous(static_cast<int>(bytes / most), part, &whole);
        const int lengths[] = {1, static_cast<int>(bytes % most)};
        const MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / most * most)};
        const MPI_Datatype types[] = {whole, MPI_BYTE};
        MPI_Type_create_struct(2, lengths, places, types, &type_);
        MPI_Type_commit(&type_);
        MPI_Type_free(&whole);
        MPI_Type_free(&part);
        count_ = 1;
    }
    ~Bytes() {
        if (type_ != MPI_BYTE) {
            MPI_Type_free(&type_);
        }
    }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    int count() const { return count_; }
    MPI_Datatype type() const { return type_; }

private:
    int count_ = 0;
    MPI_Datatype type_ = MPI_BYTE;
};

// Calls `part(offset in bytes, elements)` for parts that one MPI call takes.
template <typename Part>
int in_parts(std::uint64_t count, MPI_Datatype type, Part part) {
    MPI_Aint low = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &low, &extent);
    std::uint64_t done = 0;
    do {
        const std::uint64_t n = std::min(count - done, most);
        const int code = part(done * static_cast<std::uint64_t>(extent), static_cast<int>(n));
        if (code != MPI_SUCCESS) {
            return code;
        }
        done += n;
    } while (done < count);
    return MPI_SUCCESS;
}

const void* at(const void* data, std::uint64_t offset) {
    return data == MPI_IN_PLACE ? data : static_cast<const std::byte*>(data) + offset;
}

void* at(void* data, std::uint64_t offset) { return static_cast<std::byte*>(data) + offset; }

}  // namespace

int create_op(MPI_User_function* function, MPI_Op& out) { return MPI_Op_create(function, 1, &out); }

int allreduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm) {
    return in_parts(count, type, [&](std::uint64_t offset, int n) {
        return MPI_Allreduce(at(send, offset), at(recv, offset), n, type, op, comm);
    });
}

int reduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
           int root, MPI_Comm comm) {
    return in_parts(count, type, [&](std::uint64_t offset, int n) {
        return MPI_Reduce(at(send, offset), at(recv, offset), n, type, op, root, comm);
    });
}

int reduce_scatter(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    if (count <= most) {
        return MPI_Reduce_scatter_block(send, recv, static_cast<int>(count), type, op, comm);
    }
    int nranks = 0;
    MPI_Comm_size(comm, &nranks);
    MPI_Aint low = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &low, &extent);
    int code = MPI_SUCCESS;
    for (int root = 0; root < nranks && code == MPI_SUCCESS; ++root) {
        const std::uint64_t block = count * static_cast<std::uint64_t>(extent);
        code = reduce(at(send, block * static_cast<std::uint64_t>(root)), recv, count, type, op,
                      root, comm);
    }
    return code;
}

int broadcast(void* data, std::uint64_t bytes, int root, MPI_Comm comm) {
    const Bytes n(bytes);
    return MPI_Bcast(data, n.count(), n.type(), root, comm);
}

int allgather(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm) {
    const Bytes n(bytes);
    return MPI_Allgather(send, n.count(), n.type(), recv, n.count(), n.type(), comm);
}

int gather(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm) {
    const Bytes n(bytes);
    return MPI_Gather(send, n.count(), n.type(), recv, n.count(), n.type(), root, comm);
}

int scatter(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm) {
    const Bytes n(bytes);
    return MPI_Scatter(send, n.count(), n.type(), recv, n.count(), n.type(), root, comm);
}

int alltoall(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm) {
    const Bytes n(bytes);
    return MPI_Alltoall(send, n.count(), n.type(), recv, n.count(), n.type(), comm);
}

int isend(const void* send, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request) {
    const Bytes n(bytes);
    return MPI_Isend(send, n.count(), n.type(), peer, tag, comm, &request);
}

int irecv(void* recv, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request) {
    const Bytes n(bytes);
    return MPI_Irecv(recv, n.count(), n.type(), peer, tag, comm, &request);
}

#endif

}  // namespace collscope::mpi
