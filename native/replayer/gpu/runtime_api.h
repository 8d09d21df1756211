// The part of the CUDA and HIP runtimes that the replayer calls, in declarations of our own.
//
// One list serves both: functions differ by their prefix only. vendors.h has what differs besides.
// native/replayer/check_abi holds every value and signature here against the vendors' headers.
// GraphInstantiate is left out on purpose: its arguments differ.
#pragma once

#include <cstddef>
#include <string>

#include "vendors.h"

namespace collscope::gpu {

using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;

inline constexpr int success = 0;
inline constexpr int error_out_of_memory = 2;
inline constexpr int error_insufficient_driver = 35;
inline constexpr int error_no_device = 100;
inline constexpr int error_not_ready = 600;
inline constexpr int error_peer_access_already_enabled = 704;
inline constexpr int memcpy_host_to_device = 1;
inline constexpr int memcpy_device_to_host = 2;
inline constexpr int memcpy_device_to_device = 3;
inline constexpr int memcpy_default = 4;  // by the addresses
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_default = 0;  // with timing
inline constexpr int capture_mode_thread_local = 1;
inline constexpr int cuda_capability_major = 75;  // attributes of a device
inline constexpr int cuda_capability_minor = 76;
inline constexpr int cuda_shared_memory_optin = 97;  // the most bytes for a block
inline constexpr unsigned host_alloc_default = 0;

// A name for memory of another process. Passed by value.
struct IpcMemHandle {
    char reserved[64];
};

// The struct of GetDeviceProperties has another size in every version (792 to 1472 bytes so far),
// but in all of them the name comes first. A buffer far larger than any of them holds it.
struct DeviceProperties {
    char name[256];
    char rest[16 * 1024 - 256];
};

// X(member, name without prefix, parameters); all return the runtime's error as an int.
#define COLLSCOPE_RUNTIME_REQUIRED(X)                                                  \
    X(runtime_get_version, RuntimeGetVersion, (int*))                                  \
    X(get_device_count, GetDeviceCount, (int*))                                        \
    X(set_device, SetDevice, (int))                                                    \
    X(device_get_attribute, DeviceGetAttribute, (int*, int, int))                      \
    X(stream_priority_range, DeviceGetStreamPriorityRange, (int*, int*))               \
    X(get_last_error, GetLastError, ())                                                \
    X(malloc, Malloc, (void**, std::size_t))                                           \
    X(free, Free, (void*))                                                             \
    X(mem_get_info, MemGetInfo, (std::size_t*, std::size_t*))                          \
    X(memcpy_async, MemcpyAsync, (void*, const void*, std::size_t, int, Stream))       \
    X(memset_async, MemsetAsync, (void*, int, std::size_t, Stream))                    \
    X(stream_create_with_flags, StreamCreateWithFlags, (Stream*, unsigned))            \
    X(stream_create_with_priority, StreamCreateWithPriority, (Stream*, unsigned, int)) \
    X(stream_destroy, StreamDestroy, (Stream))                                         \
    X(stream_query, StreamQuery, (Stream))                                             \
    X(stream_wait_event, StreamWaitEvent, (Stream, Event, unsigned))                   \
    X(stream_synchronize, StreamSynchronize, (Stream))                                 \
    X(stream_begin_capture, StreamBeginCapture, (Stream, int))                         \
    X(stream_end_capture, StreamEndCapture, (Stream, Graph*))                          \
    X(event_create_with_flags, EventCreateWithFlags, (Event*, unsigned))               \
    X(event_destroy, EventDestroy, (Event))                                            \
    X(event_record, EventRecord, (Event, Stream))                                      \
    X(event_query, EventQuery, (Event))                                                \
    X(event_elapsed_time, EventElapsedTime, (float*, Event, Event))                    \
    X(graph_instantiate_with_flags, GraphInstantiateWithFlags,                         \
      (GraphExec*, Graph, unsigned long long))                                         \
    X(graph_launch, GraphLaunch, (GraphExec, Stream))                                  \
    X(graph_exec_destroy, GraphExecDestroy, (GraphExec))                               \
    X(graph_destroy, GraphDestroy, (Graph))

// Only the device's name and address, and copies between devices and processes, depend on these.
#define COLLSCOPE_RUNTIME_OPTIONAL(X)                                          \
    X(get_device_properties, GetDeviceProperties, (DeviceProperties*, int))    \
    X(device_get_pci_bus_id, DeviceGetPCIBusId, (char*, int, int))             \
    X(device_can_access_peer, DeviceCanAccessPeer, (int*, int, int))           \
    X(device_enable_peer_access, DeviceEnablePeerAccess, (int, unsigned))      \
    X(ipc_get_mem_handle, IpcGetMemHandle, (IpcMemHandle*, void*))             \
    X(ipc_open_mem_handle, IpcOpenMemHandle, (void**, IpcMemHandle, unsigned)) \
    X(ipc_close_mem_handle, IpcCloseMemHandle, (void*))
// X(member, parameters). The vendor has the name in a field called like the member; all are
// optional.
#define COLLSCOPE_RUNTIME_SPELLED(X)               \
    X(host_alloc, (void**, std::size_t, unsigned)) \
    X(host_free, (void*))                          \
    X(new_device_properties, (DeviceProperties*, int))

// A loaded runtime. An optional function that it lacks is null.
struct Runtime {
    const Vendor* vendor = vendors.front();
    std::string path;
    int version = 0;  // as RuntimeGetVersion gives it

#define COLLSCOPE_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
    COLLSCOPE_RUNTIME_REQUIRED(COLLSCOPE_MEMBER)
    COLLSCOPE_RUNTIME_OPTIONAL(COLLSCOPE_MEMBER)
#undef COLLSCOPE_MEMBER
#define COLLSCOPE_MEMBER(member, parameters) int(*member) parameters = nullptr;
    COLLSCOPE_RUNTIME_SPELLED(COLLSCOPE_MEMBER)
#undef COLLSCOPE_MEMBER
    const char* (*get_error_string)(int) = nullptr;

    // "cudaMalloc"
    std::string function(const char* name) const { return std::string(vendor->name) + name; }
};

}  // namespace collscope::gpu
