// The profiler plugin interfaces of NCCL and RCCL, in declarations of our own: what the library
// looks up by name, and what it hands over. Facts: NVIDIA/nccl src/include/plugin/nccl_profiler.h,
// src/include/plugin/profiler/profiler_v3.h … profiler_v7.h and src/plugin/profiler.cc. The library
// takes the newest version that it knows: v3 NCCL 2.26, v4 2.27, v5 2.28, v6 2.29, v7 2.31.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collscope::recorder {

inline constexpr int success = 0;  // ncclResult_t; nothing else is ever returned

// ncclDebugLogger_t, which is not used: nothing is printed in the job.
using Logger = void (*)(int, unsigned long, const char*, int, const char*, ...);

// What an event is, a bit each, which are also the bits of the mask.
enum EventType : std::uint64_t {
    group_event = 1u << 0,
    coll_event = 1u << 1,
    p2p_event = 1u << 2,
    proxy_op_event = 1u << 3,
    kernel_event = 1u << 6,
    group_api_event = 1u << 8,
    coll_api_event = 1u << 9,
    p2p_api_event = 1u << 10,
    ce_coll_event = 1u << 12,     // from v6
    nccl_phase_event = 1u << 15,  // v7 of NCCL; RCCL means its ProxyDiag
    rccl_phase_event = 1u << 16,  // v7 of RCCL
};

enum EventState : int {
    kernel_stop = 22,
    nccl_phase_stop = 31,
    rccl_phase_stop = 32,
};

// Parts of the descriptors' union that more than one version has.
struct ProxyOp {
    int pid;  // of the process that made the call: pid_t
    std::uint8_t channel;
    int peer;
    int steps;
    int chunk_bytes;
    int is_send;
};

struct KernelV3 {
    std::uint8_t channel;
};

struct KernelV4 {
    std::uint8_t channel;
    std::uint64_t timer;
};

struct CollV3 {
    const char* comm_name;
    std::uint64_t comm_hash;
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
};

struct P2pV3 {
    const char* comm_name;
    std::uint64_t comm_hash;
    const char* func;
    void* buffer;
    const char* datatype;
    std::size_t count;
    int peer;
};

struct DescriptorV3 {
    std::uint8_t type;
    void* parent;
    int rank;
    union {
        CollV3 coll;
        P2pV3 p2p;
        ProxyOp proxy_op;
        KernelV3 kernel;
    };
};

struct CollV4 {
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
};

struct P2pV4 {
    const char* func;
    void* buffer;
    const char* datatype;
    std::size_t count;
    int peer;
    std::uint8_t channels;
};

struct DescriptorV4 {
    std::uint8_t type;
    void* parent;
    int rank;
    union {
        CollV4 coll;
        P2pV4 p2p;
        ProxyOp proxy_op;
        KernelV4 kernel;
    };
};

struct CollApiV5 {
    const char* func;
    std::size_t count;
    const char* datatype;
    int root;
    void* stream;
    bool captured;
};

struct P2pApiV5 {
    const char* func;
    std::size_t count;
    const char* datatype;
    void* stream;
    bool captured;
};

struct CollV5 {
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
    void* group;
};

struct P2pV5 {
    const char* func;
    void* buffer;
    const char* datatype;
    std::size_t count;
    int peer;
    std::uint8_t channels;
    void* group;
};

struct DescriptorV5 {
    std::uint64_t type;
    void* parent;
    int rank;
    union {
        CollApiV5 coll_api;
        P2pApiV5 p2p_api;
        CollV5 coll;
        P2pV5 p2p;
        ProxyOp proxy_op;
        KernelV4 kernel;
    };
};

struct CeCollV6 {
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    const char* sync_strategy;
    bool intra_batch_sync;
    std::uint32_t batch_size;
    std::uint32_t batches;
    std::uint32_t ce_seq;
    void* stream;
};

struct DescriptorV6 {
    std::uint64_t type;
    void* parent;
    int rank;
    union {
        CollApiV5 coll_api;
        P2pApiV5 p2p_api;
        CollV5 coll;
        P2pV5 p2p;
        ProxyOp proxy_op;
        KernelV4 kernel;
        CeCollV6 ce_coll;
    };
};

struct CollApiV7 {
    const char* func;
    std::size_t count;
    const char* datatype;
    int root;
    void* stream;
    bool captured;
    std::uint64_t tag;
};

struct P2pApiV7 {
    const char* func;
    std::size_t count;
    const char* datatype;
    void* stream;
    bool captured;
    std::uint64_t tag;
};

struct CollV7 {
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    std::uint8_t channels;
    std::uint8_t warps;
    const char* algorithm;
    const char* protocol;
    void* group;
    const char* variant;
    bool symmetric;
    std::uint64_t tag;
};

struct P2pV7 {
    const char* func;
    void* buffer;
    const char* datatype;
    std::size_t count;
    int peer;
    std::uint8_t channels;
    void* group;
    std::uint64_t tag;
};

struct CeCollV7 {
    std::uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    std::size_t count;
    int root;
    const char* datatype;
    const char* sync_strategy;
    bool intra_batch_sync;
    std::uint32_t batch_size;
    std::uint32_t batches;
    std::uint32_t ce_seq;
    void* stream;
    std::uint64_t tag;
};

struct PhaseV7 {
    std::uint8_t channel;
    std::uint8_t phase;  // 0 initial_sync, 1 compute, 2 final_sync
    const char* name;
    std::uint64_t timer;
};

struct DescriptorV7 {
    std::uint64_t type;
    void* parent;
    int rank;
    union {
        CollApiV7 coll_api;
        P2pApiV7 p2p_api;
        CollV7 coll;
        P2pV7 p2p;
        ProxyOp proxy_op;
        KernelV4 kernel;
        CeCollV7 ce_coll;
        PhaseV7 phase;
    };
};

// The arguments of a state. Only the stamp of a kernel's or a phase's end is used.
union StateV4 {
    std::uint64_t timer;
};

template <typename Descriptor, typename Init>
struct Profiler {
    const char* name;
    Init init;
    int (*start_event)(void* context, void** handle, Descriptor* descriptor);
    int (*stop_event)(void* handle);
    int (*record_state)(void* handle, int state, void* arguments);
    int (*finalize)(void* context);
};

using InitV3 = int (*)(void** context, int* mask);
using InitV4 = int (*)(void** context, int* mask, const char* comm_name, std::uint64_t comm_hash,
                       int nnodes, int nranks, int rank, Logger);
using InitV5 = int (*)(void** context, std::uint64_t comm_hash, int* mask, const char* comm_name,
                       int nnodes, int nranks, int rank, Logger);

using ProfilerV3 = Profiler<DescriptorV3, InitV3>;
using ProfilerV4 = Profiler<DescriptorV4, InitV4>;
using ProfilerV5 = Profiler<DescriptorV5, InitV5>;
using ProfilerV6 = Profiler<DescriptorV6, InitV5>;
using ProfilerV7 = Profiler<DescriptorV7, InitV5>;

static_assert(sizeof(ProfilerV3) == 6 * sizeof(void*) && sizeof(int) == 4);

}  // namespace collscope::recorder
