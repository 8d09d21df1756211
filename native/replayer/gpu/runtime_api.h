// The part of the CUDA and HIP runtimes that the replayer calls, in declarations of our own.
//
// One list serves both: the functions differ by their prefix only. native/replayer/check_abi holds
// every value and signature here against the vendors' headers. Left out on purpose, because they
// differ: GraphInstantiate (other arguments), pinned host memory (other names), device attributes
// (other numbers).
#pragma once

#include <cstddef>
#include <string>

namespace collscope::gpu {

enum class Vendor { Cuda, Hip };

// "cuda" or "hip": the backend's name and the prefix of the runtime's functions.
inline const char* name_of(Vendor vendor) { return vendor == Vendor::Cuda ? "cuda" : "hip"; }

using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;

inline constexpr int success = 0;
inline constexpr int error_out_of_memory = 2;
inline constexpr int error_insufficient_driver = 35;
inline constexpr int error_no_device = 100;
inline constexpr int error_not_ready = 600;
inline constexpr int memcpy_host_to_device = 1;
inline constexpr int memcpy_device_to_host = 2;
inline constexpr int memcpy_device_to_device = 3;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_default = 0;  // with timing
inline constexpr int capture_mode_thread_local = 1;

// The struct of GetDeviceProperties has another size in every version (792 to 1472 bytes so far),
// but in all of them the name comes first. A buffer far larger than any of them holds it.
struct DeviceProperties {
    char name[256];
    char rest[16 * 1024 - 256];
};

// X(member, name without prefix, parameters); all return the runtime's error as an int.
#define COLLSCOPE_RUNTIME_REQUIRED(X)                                                        \
    X(runtime_get_version, RuntimeGetVersion, (int*))                                        \
    X(get_device_count, GetDeviceCount, (int*))                                              \
    X(set_device, SetDevice, (int))                                                          \
    X(get_last_error, GetLastError, ())                                                      \
    X(malloc, Malloc, (void**, std::size_t))                                                 \
    X(free, Free, (void*))                                                                   \
    X(mem_get_info, MemGetInfo, (std::size_t*, std::size_t*))                                \
    X(memcpy_async, MemcpyAsync, (void*, const void*, std::size_t, int, Stream))             \
    X(memset_async, MemsetAsync, (void*, int, std::size_t, Stream))                          \
    X(stream_create_with_flags, StreamCreateWithFlags, (Stream*, unsigned))                  \
    X(stream_destroy, StreamDestroy, (Stream))                                               \
    X(stream_query, StreamQuery, (Stream))                                                   \
    X(stream_synchronize, StreamSynchronize, (Stream))                                       \
    X(stream_begin_capture, StreamBeginCapture, (Stream, int))                               \
    X(stream_end_capture, StreamEndCapture, (Stream, Graph*))                                \
    X(event_create_with_flags, EventCreateWithFlags, (Event*, unsigned))                     \
    X(event_destroy, EventDestroy, (Event))                                                  \
    X(event_record, EventRecord, (Event, Stream))                                            \
    X(event_query, EventQuery, (Event))                                                      \
    X(event_elapsed_time, EventElapsedTime, (float*, Event, Event))                          \
    X(graph_instantiate_with_flags, GraphInstantiateWithFlags,                               \
      (GraphExec*, Graph, unsigned long long))                                               \
    X(graph_launch, GraphLaunch, (GraphExec, Stream))                                        \
    X(graph_exec_destroy, GraphExecDestroy, (GraphExec))                                     \
    X(graph_destroy, GraphDestroy, (Graph))

// Only the device's name depends on these.
#define COLLSCOPE_RUNTIME_OPTIONAL(X) \
    X(get_device_properties, GetDeviceProperties, (DeviceProperties*, int))
// HIP 6 and newer: what its header makes of hipGetDeviceProperties.
#define COLLSCOPE_RUNTIME_HIP_ONLY(X) \
    X(get_device_properties_r0600, GetDevicePropertiesR0600, (DeviceProperties*, int))

// A loaded runtime. An optional function that it lacks is null.
struct Runtime {
    Vendor vendor = Vendor::Cuda;
    std::string path;
    int version = 0;  // as RuntimeGetVersion gives it

#define COLLSCOPE_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
    COLLSCOPE_RUNTIME_REQUIRED(COLLSCOPE_MEMBER)
    COLLSCOPE_RUNTIME_OPTIONAL(COLLSCOPE_MEMBER)
    COLLSCOPE_RUNTIME_HIP_ONLY(COLLSCOPE_MEMBER)
#undef COLLSCOPE_MEMBER
    const char* (*get_error_string)(int) = nullptr;
};

}  // namespace collscope::gpu
