// What a process enqueues at once: the calls of its local ranks, with their place in memory.
#pragma once

#include <vector>

#include "arena.h"
#include "backend.h"
#include "layout.h"
#include "local_ranks.h"
#include "plan.h"

namespace collscope {

// One call of one local rank.
struct Call {
    int local = 0;
    const Class* cls = nullptr;
    int which = 0;
    Buffers buffers;
};

// What verification needs to know of a call as well.
struct CallPart {
    int item = 0;  // index into the items that the launch was built from
    int rank = 0;  // of the communicator
    int nranks = 1;
    std::uint64_t arena_offset = 0;
};

struct Launch {
    struct Lane {
        std::vector<Call> calls;
        std::vector<CallPart> parts;  // of each call
        std::vector<int> locals;      // local ranks with a call
    };
    std::vector<Lane> lanes;
    std::uint64_t arena_bytes = 0;  // of the local rank that needs most; items do not overlap

    void bind(const Arena& arena);
};

// A class on all its communicators.
std::vector<Step::Item> items_of(const Plan& plan, std::size_t index);

// Calls of the ranks from `first_rank` on in these items.
Launch build_launch(const Plan& plan, const std::vector<Step::Item>& items, int first_rank,
                    const LocalRanks& ranks);

// Enqueues the lane's calls once. Several are a group, so that none waits for one that comes later.
inline Status enqueue(Backend& backend, const Launch::Lane& lane) {
    if (lane.calls.size() == 1) [[likely]] {
        const Call& call = lane.calls.front();
        return backend.enqueue(call.local, *call.cls, call.which, call.buffers);
    }
    if (lane.calls.empty()) {
        return {};
    }
    Status status = backend.group_start();
    for (const Call& call : lane.calls) {
        if (status.ok()) {
            status = backend.enqueue(call.local, *call.cls, call.which, call.buffers);
        }
    }
    const Status ended = backend.group_end();
    return status.ok() ? ended : status;
}

}  // namespace collscope
