// Turns one call of a class into calls of NCCL or RCCL.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend.h"
#include "gpu/collective_api.h"
#include "layout.h"

namespace collscope {

// Where a rank's call goes.
struct CallTarget {
    gpu::CommHandle comm = nullptr;
    gpu::StreamHandle stream = nullptr;
    int rank = 0;  // of the communicator
    int nranks = 1;
};

// The calls of one local rank. What a group of Send and Recv exchanges is worked out once, so that
// enqueueing costs little more than the library's function. Not for several threads.
class GpuCalls {
public:
    explicit GpuCalls(const gpu::CollectiveLibrary& library) : library_(library) {}

    Status enqueue(const CallTarget& target, const Class& cls, int which, Buffers buffers);

private:
    struct Exchange {
        Messages messages;
        bool one_each = true;  // at most one message from any rank to any other
        // By peer, in elements: the arguments of ncclAllToAllv.
        std::vector<std::size_t> send_counts, send_offsets, recv_counts, recv_offsets;
    };

    const Exchange& exchange_of(const CallTarget& target, const Class& cls, int which);
    Status exchange(const CallTarget& target, const Class& cls, int which, Buffers buffers);
    Status all_to_allv(const CallTarget& target, const Class& cls, int which, Buffers buffers);

    const gpu::CollectiveLibrary& library_;
    std::unordered_map<std::size_t, Exchange> exchanges_;
};

// Success, or "FUNCTION: <the library's text> (result N)". `comm` may be null.
Status status_of(const gpu::CollectiveLibrary& library, int result, const char* function,
                 gpu::CommHandle comm = nullptr);

}  // namespace collscope
