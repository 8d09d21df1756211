// The tuner plugin interfaces of NCCL and RCCL, in declarations of our own: what the library looks
// up by name and calls. Facts: NVIDIA/nccl src/include/plugin/tuner/tuner_v2.h … tuner_v5.h and
// src/plugin/tuner.cc, ROCm/rccl ext-tuner/example/nccl/tuner.h. NCCL up to 2.32 still looks for
// all four versions, newest first; a newer one (v6 adds chunk sizes) is not needed for choices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collscope::tuner {

// ncclResult_t. Anything but success is an error of the collective itself in newer libraries, so
// the plugin never returns anything else.
inline constexpr int success = 0;

// ncclDebugLogLevel and ncclDebugLogSubSys: the values that are used.
inline constexpr int log_warn = 2;
inline constexpr int log_info = 3;
inline constexpr unsigned long log_tuning = 0x40;

// ncclDebugLogger_t: level, subsystems, file, line, printf format.
using Logger = void (*)(int, unsigned long, const char*, int, const char*, ...);

// ncclFunc_t: the same values since the first tuner interface.
enum Collective : int { broadcast, reduce, all_gather, reduce_scatter, all_reduce };
inline constexpr int collectives = 5;  // that a tuner is asked about

// NCCL_ALGO_* and NCCL_PROTO_*; libraries before NCCL 2.23 have no PAT.
enum Algorithm : int { tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum Protocol : int { ll, ll128, simple };
inline constexpr int algorithms = 7;
inline constexpr int protocols = 3;

// A cell of the cost table that the library rules out: NCCL_ALGO_PROTO_IGNORE.
inline constexpr float ignored_cost = -1.0f;

// Takes the choice directly: NCCL 2.21. The two ints say what the data type supports.
struct TunerV2 {
    const char* name;
    int (*init)(std::size_t nranks, std::size_t nnodes, Logger, void** context);
    int (*get_coll_info)(void* context, int collective, std::size_t bytes, int collnet_support,
                         int nvls_support, int pipe_ops, int* algorithm, int* protocol,
                         int* channels);
    int (*destroy)(void* context);
};

// A cost table float[algorithms][protocols], declared as float** but one block: NCCL 2.22.
struct TunerV3 {
    const char* name;
    int (*init)(std::size_t nranks, std::size_t nnodes, Logger, void** context);
    int (*get_coll_info)(void* context, int collective, std::size_t bytes, int pipe_ops,
                         float** costs, int algorithms, int protocols, int* channels);
    int (*destroy)(void* context);
};

// Adds whether the user's buffers are registered: NCCL 2.24.
struct TunerV4 {
    const char* name;
    int (*init)(std::size_t nranks, std::size_t nnodes, Logger, void** context);
    int (*get_coll_info)(void* context, int collective, std::size_t bytes, int pipe_ops,
                         float** costs, int algorithms, int protocols, int registered,
                         int* channels);
    int (*destroy)(void* context);
};

// Another order of init, and tables of constants whose layout differs between the libraries (RCCL
// has one more member): they stay opaque. NCCL 2.28.
struct TunerV5 {
    const char* name;
    int (*init)(void** context, std::uint64_t comm_id, std::size_t nranks, std::size_t nnodes,
                Logger, void* domains, void* constants);
    int (*get_coll_info)(void* context, int collective, std::size_t bytes, int pipe_ops,
                         float** costs, int algorithms, int protocols, int registered,
                         int* channels);
    int (*finalize)(void* context);
};

static_assert(sizeof(TunerV2) == 4 * sizeof(void*) && sizeof(TunerV5) == 4 * sizeof(void*));
static_assert(sizeof(int) == 4 && sizeof(float) == 4);  // enumerations and costs of the library

}  // namespace collscope::tuner
