// Where the data of one rank's part in a call lies, and which of it is wanted.
//
// Offsets are relative to the rank's arena, one allocation on a 512-byte boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend.h"
#include "plan.h"

namespace collscope {

inline constexpr std::uint64_t buffer_alignment = 512;  // bytes
inline constexpr int from_reduction = -1;

// Elements that the call must put into the receive buffer.
struct Piece {
    std::uint64_t offset = 0;  // elements from the start of the receive data
    std::uint64_t count = 0;   // elements
    int source = 0;            // rank of the communicator whose input it is, or from_reduction
    std::uint64_t index = 0;   // element of that input, or of the reduction, that comes first
};

struct Layout {
    // Data that the call reads and writes on this rank. 0: the rank has no part in that side; its
    // pointer then equals the other side's (PyTorch does so too), so that it is never null.
    std::uint64_t send_bytes = 0;
    std::uint64_t recv_bytes = 0;
    std::uint64_t send_offset = 0;  // bytes in the arena
    std::uint64_t recv_offset = 0;
    std::uint64_t arena_bytes = 0;  // a multiple of buffer_alignment, at least one of it
    // The class asks for in-place, but its operation has no such form (AllToAll, AllToAllv,
    // SendRecv and all groups of Send and Recv): laid out out-of-place.
    bool in_place_ignored = false;
    std::vector<Piece> wanted;

    Buffers at(std::byte* arena) const { return {arena + send_offset, arena + recv_offset}; }
};

// One Send or Recv of a rank; `offset` in elements of its send or receive data.
struct Message {
    int peer = 0;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
};

// A rank's side of a call made of Send and Recv, in the order of issue. Also that of AllToAll,
// Gather and Scatter for libraries without such a function; empty for the other operations.
// A rank may send to itself; an in-place Gather or Scatter then has equal pointers on the root.
struct Messages {
    std::vector<Message> sends;
    std::vector<Message> recvs;
};

// A group of Send and Recv must have a list of transfers for `which` (the plan reader sees to it).
// `which`: index into the class's `comms`; `rank`, `nranks`: of that communicator.
Layout layout_of(const Class& cls, int which, int rank, int nranks);
Messages messages_of(const Class& cls, int which, int rank, int nranks);

// nccl-tests size S in bytes. Of groups of Send and Recv: of AllToAllv the largest sum that a rank
// sends or receives, of SendRecv the largest message, of all further ones that times the ranks.
std::uint64_t size_bytes_of(const Class& cls, int nranks);

}  // namespace collscope
