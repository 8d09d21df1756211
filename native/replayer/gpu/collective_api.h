// The part of NCCL and RCCL that the replayer calls, in declarations of our own.
//
// Both libraries share names and values; native/replayer/check_abi holds them against nccl.h and
// rccl.h. ncclConfig_t is left out on purpose: its fields differ, so ncclCommInitRank is used.
#pragma once

#include <cstddef>
#include <string>

namespace collscope::gpu {

using CommHandle = void*;
using StreamHandle = void*;

struct UniqueId {
    char internal[128];
};

inline constexpr int collective_success = 0;
inline constexpr int collective_in_progress = 7;
// The oldest library with ncclAvg (2.10.0), as ncclGetVersion gives it.
inline constexpr int oldest_collective_version = 21000;

// X(member, name, parameters); all return ncclResult_t as an int. Datatypes and operators are ints
// of the values in datatype.h and plan.h.
#define COLLSCOPE_COLLECTIVE_REQUIRED(X)                                                           \
    X(get_version, ncclGetVersion, (int*))                                                         \
    X(get_unique_id, ncclGetUniqueId, (UniqueId*))                                                 \
    X(comm_init_rank, ncclCommInitRank, (CommHandle*, int, UniqueId, int))                         \
    X(comm_destroy, ncclCommDestroy, (CommHandle))                                                 \
    X(comm_get_async_error, ncclCommGetAsyncError, (CommHandle, int*))                             \
    X(group_start, ncclGroupStart, ())                                                             \
    X(group_end, ncclGroupEnd, ())                                                                 \
    X(all_reduce, ncclAllReduce,                                                                   \
      (const void*, void*, std::size_t, int, int, CommHandle, StreamHandle))                       \
    X(all_gather, ncclAllGather, (const void*, void*, std::size_t, int, CommHandle, StreamHandle)) \
    X(reduce_scatter, ncclReduceScatter,                                                           \
      (const void*, void*, std::size_t, int, int, CommHandle, StreamHandle))                       \
    X(broadcast, ncclBroadcast,                                                                    \
      (const void*, void*, std::size_t, int, int, CommHandle, StreamHandle))                       \
    X(reduce, ncclReduce,                                                                          \
      (const void*, void*, std::size_t, int, int, int, CommHandle, StreamHandle))                  \
    X(send, ncclSend, (const void*, std::size_t, int, int, CommHandle, StreamHandle))              \
    X(recv, ncclRecv, (void*, std::size_t, int, int, CommHandle, StreamHandle))

// Functions that some libraries lack: a call is then made of ncclSend and ncclRecv.
#define COLLSCOPE_COLLECTIVE_OPTIONAL(X)                                                         \
    X(gather, ncclGather, (const void*, void*, std::size_t, int, int, CommHandle, StreamHandle)) \
    X(scatter, ncclScatter, (const void*, void*, std::size_t, int, int, CommHandle, StreamHandle))
// X(member, parameters). The vendor has the names in a field called like the member.
#define COLLSCOPE_COLLECTIVE_SPELLED(X)                                             \
    X(all_to_all, (const void*, void*, std::size_t, int, CommHandle, StreamHandle)) \
    X(all_to_allv, (const void*, const std::size_t*, const std::size_t*, void*,     \
                    const std::size_t*, const std::size_t*, int, CommHandle, StreamHandle))

// A loaded library. Optional functions that it lacks are null.
struct CollectiveLibrary {
    std::string name;  // nccl or rccl
    std::string path;
    int version = 0;  // as ncclGetVersion gives it

#define COLLSCOPE_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
    COLLSCOPE_COLLECTIVE_REQUIRED(COLLSCOPE_MEMBER)
    COLLSCOPE_COLLECTIVE_OPTIONAL(COLLSCOPE_MEMBER)
#undef COLLSCOPE_MEMBER
#define COLLSCOPE_MEMBER(member, parameters) int(*member) parameters = nullptr;
    COLLSCOPE_COLLECTIVE_SPELLED(COLLSCOPE_MEMBER)
#undef COLLSCOPE_MEMBER
    const char* (*get_error_string)(int) = nullptr;       // required
    const char* (*get_last_error)(CommHandle) = nullptr;  // optional, since 2.13
};

}  // namespace collscope::gpu
