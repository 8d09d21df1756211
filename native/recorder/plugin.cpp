// The exported structures, and how each version's events become ours. Nothing here returns an error
// to the library, except that a recorder that cannot start leaves the library without a profiler.
#include <unistd.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "plugin_api.h"
#include "recorder.h"

namespace collscope::recorder {

namespace {

constexpr const char* name = "collscope";
constexpr int system_error = 2;  // ncclSystemError, of init alone
constexpr std::uint64_t no_seq = ~std::uint64_t{0};

int open_comm(int interface, const void* library, void** context, int* mask, std::uint64_t hash,
              const char* comm_name, int nnodes, int nranks, int rank) noexcept {
    try {
        *context =
            current_or_new(interface, library).open(hash, comm_name, nnodes, nranks, rank, mask);
        return success;
    } catch (...) {
        *context = nullptr;
        return system_error;
    }
}

int init_v3(void** context, int* mask) {
    return open_comm(3, __builtin_return_address(0), context, mask, 0, "", -1, -1, -1);
}

int init_v4(void** context, int* mask, const char* comm_name, std::uint64_t comm_hash, int nnodes,
            int nranks, int rank, Logger) {
    return open_comm(4, __builtin_return_address(0), context, mask, comm_hash, comm_name, nnodes,
                     nranks, rank);
}

template <int interface>
int init_v5(void** context, std::uint64_t comm_hash, int* mask, const char* comm_name, int nnodes,
            int nranks, int rank, Logger) {
    return open_comm(interface, __builtin_return_address(0), context, mask, comm_hash, comm_name,
                     nnodes, nranks, rank);
}

template <typename Coll>
Call coll_of(const void* parent, const Coll& coll) {
    Call call{};
    call.parent = parent;
    call.func = coll.func;
    call.datatype = coll.datatype;
    call.seq = coll.seq;
    call.count = coll.count;
    call.send = coll.send;
    call.recv = coll.recv;
    call.root = coll.root;
    if constexpr (requires { coll.sync_strategy; }) {
        call.variant = coll.sync_strategy;
        call.flags = copy_engine;
    } else {
        call.algorithm = coll.algorithm;
        call.protocol = coll.protocol;
        call.channels = coll.channels;
    }
    if constexpr (requires { coll.symmetric; }) {
        call.variant = coll.variant;
        call.flags = coll.symmetric ? symmetric : 0;
    }
    if constexpr (requires { coll.tag; }) {
        call.tag = coll.tag;
    }
    return call;
}

template <typename P2p>
Call p2p_of(const void* parent, const P2p& p2p) {
    Call call{};
    call.parent = parent;
    call.func = p2p.func;
    call.datatype = p2p.datatype;
    call.seq = no_seq;
    call.count = p2p.count;
    call.send = p2p.buffer;
    call.root = p2p.peer;
    call.flags = point_to_point;
    if constexpr (requires { p2p.channels; }) {
        call.channels = p2p.channels;
    }
    if constexpr (requires { p2p.tag; }) {
        call.tag = p2p.tag;
    }
    return call;
}

template <typename CallApi>
Api api_of(const void* parent, const CallApi& call) {
    Api api{};
    api.parent = parent;
    api.func = call.func;
    api.datatype = call.datatype;
    api.count = call.count;
    api.stream = call.stream;
    api.captured = call.captured;
    if constexpr (requires { call.root; }) {
        api.root = call.root;
    } else {
        api.root = -1;
        api.point_to_point = true;
    }
    if constexpr (requires { call.tag; }) {
        api.tag = call.tag;
    }
    return api;
}

// The handle of an event, or null where the recorder keeps nothing of it.
template <typename Descriptor>
void* started(Recorder& recorder, Comm& comm, const Descriptor& event) {
    if constexpr (std::is_same_v<Descriptor, DescriptorV3>) {
        if (event.type == coll_event) {
            recorder.identify(comm, event.coll.comm_hash, event.coll.comm_name, event.rank);
        } else if (event.type == p2p_event) {
            recorder.identify(comm, event.p2p.comm_hash, event.p2p.comm_name, event.rank);
        }
    }
    switch (event.type) {
        case coll_event:
            return recorder.call(comm, coll_of(event.parent, event.coll));
        case p2p_event:
            return recorder.call(comm, p2p_of(event.parent, event.p2p));
        case proxy_op_event:
            return recorder.proxy_op(comm, event.parent, event.proxy_op.pid == getpid(),
                                     event.proxy_op.channel,
                                     {event.proxy_op.peer, event.proxy_op.steps,
                                      event.proxy_op.chunk_bytes, event.proxy_op.is_send});
        default:
            break;
    }
    if constexpr (requires { event.kernel.timer; }) {
        if (event.type == kernel_event) {
            return recorder.kernel(comm, event.parent, event.kernel.channel, event.kernel.timer);
        }
    }
    if constexpr (requires { event.coll_api; }) {
        switch (event.type) {
            case group_api_event:
                return recorder.group();
            case coll_api_event:
                return recorder.api(comm, api_of(event.parent, event.coll_api));
            case p2p_api_event:
                return recorder.api(comm, api_of(event.parent, event.p2p_api));
            default:
                break;
        }
    }
    if constexpr (requires { event.ce_coll; }) {
        if (event.type == ce_coll_event) {
            return recorder.call(comm, coll_of(event.parent, event.ce_coll));
        }
    }
    if constexpr (requires { event.phase; }) {
        if (event.type == (recorder.hip ? rccl_phase_event : nccl_phase_event)) {
            return recorder.phase(comm, event.parent, event.phase.channel, event.phase.phase,
                                  event.phase.timer);
        }
    }
    return nullptr;
}

template <typename Descriptor>
int start_event(void* context, void** handle, Descriptor* event) {
    *handle = nullptr;
    Recorder* recorder = current();
    auto* comm = static_cast<Comm*>(context);
    if (recorder != nullptr && comm != nullptr && comm->owner == recorder) {
        *handle = started(*recorder, *comm, *event);
    }
    return success;
}

int stop_event(void* handle) {
    if (Recorder* recorder = current(); recorder != nullptr && handle != nullptr) {
        recorder->stopped(handle);
    }
    return success;
}

int record_state(void* handle, int state, void* arguments) {
    const bool ends = state == kernel_stop || state == nccl_phase_stop || state == rccl_phase_stop;
    Recorder* recorder = current();
    if (ends && arguments != nullptr && handle != nullptr && recorder != nullptr) {
        recorder->kernel_stopped(handle, static_cast<const StateV4*>(arguments)->timer);
    }
    return success;
}

int record_nothing(void*, int, void*) { return success; }

int finalize(void* context) {
    Recorder* recorder = current();
    auto* comm = static_cast<Comm*>(context);
    if (recorder != nullptr && comm != nullptr && comm->owner == recorder) {
        recorder->close(*comm);
    }
    return success;
}

}  // namespace

extern "C" {
// Looked up by name; everything else in the library is hidden.
extern const ProfilerV3 ncclProfiler_v3 __attribute__((visibility("default")));
extern const ProfilerV4 ncclProfiler_v4 __attribute__((visibility("default")));
extern const ProfilerV5 ncclProfiler_v5 __attribute__((visibility("default")));
extern const ProfilerV6 ncclProfiler_v6 __attribute__((visibility("default")));
extern const ProfilerV7 ncclProfiler_v7 __attribute__((visibility("default")));

// For an application that records some of its steps: sets the level from the next group of calls
// on. 0, or 1 where no communicator exists or no level has this name.
__attribute__((visibility("default"))) int collscope_recorder_level(const char* level) {
    Recorder* recorder = current();
    if (recorder == nullptr || level == nullptr) {
        return 1;
    }
    const Level wanted = level_of(level, Level::off);
    if (wanted == Level::off && std::strcmp(level, name_of(Level::off)) != 0) {
        return 1;
    }
    recorder->set_level(wanted);
    return 0;
}

const ProfilerV3 ncclProfiler_v3 = {name,       init_v3,        start_event<DescriptorV3>,
                                    stop_event, record_nothing, finalize};
const ProfilerV4 ncclProfiler_v4 = {name,       init_v4,      start_event<DescriptorV4>,
                                    stop_event, record_state, finalize};
const ProfilerV5 ncclProfiler_v5 = {name,       init_v5<5>,   start_event<DescriptorV5>,
                                    stop_event, record_state, finalize};
const ProfilerV6 ncclProfiler_v6 = {name,       init_v5<6>,   start_event<DescriptorV6>,
                                    stop_event, record_state, finalize};
const ProfilerV7 ncclProfiler_v7 = {name,       init_v5<7>,   start_event<DescriptorV7>,
                                    stop_event, record_state, finalize};
}

}  // namespace collscope::recorder
