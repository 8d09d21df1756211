// Holds gpu/runtime_api.h against the vendor's header. Compiled only, by `make check-abi`:
// -DCHECK_CUDA with cuda_runtime_api.h, -DCHECK_HIP -D__HIP_PLATFORM_AMD__ with hip_runtime_api.h.
#include "../gpu/runtime_api.h"

#include "signature.h"

#ifdef CHECK_CUDA
#include <cuda_runtime_api.h>
#define VENDOR(name) cuda##name
using DeviceProp = cudaDeviceProp;
static_assert(cudaErrorInsufficientDriver == collscope::gpu::error_insufficient_driver);
static_assert(cudaErrorMemoryAllocation == collscope::gpu::error_out_of_memory);
static_assert(cudaDevAttrMultiProcessorCount == collscope::gpu::cuda.multiprocessor_count);
static_assert(cudaDevAttrComputeCapabilityMajor == collscope::gpu::cuda_capability_major);
static_assert(cudaDevAttrComputeCapabilityMinor == collscope::gpu::cuda_capability_minor);
static_assert(cudaDevAttrMaxSharedMemoryPerBlockOptin == collscope::gpu::cuda_shared_memory_optin);
static_assert(cudaHostAllocDefault == collscope::gpu::host_alloc_default);
#define CHECKED_VERSION CUDART_VERSION
constexpr const collscope::gpu::Vendor& checked = collscope::gpu::cuda;
#define HOST_ALLOC HostAlloc
#define HOST_FREE FreeHost
#else
#define __HIP_DISABLE_CPP_FUNCTIONS__  // templates that overload hipMalloc
#include <hip/hip_runtime_api.h>
#define VENDOR(name) hip##name
using DeviceProp = hipDeviceProp_t;
static_assert(hipErrorInsufficientDriver == collscope::gpu::error_insufficient_driver);
static_assert(hipErrorOutOfMemory == collscope::gpu::error_out_of_memory);
static_assert(hipDeviceAttributeMultiprocessorCount == collscope::gpu::hip.multiprocessor_count);
static_assert(hipHostMallocDefault == collscope::gpu::host_alloc_default);
#define CHECKED_VERSION HIP_VERSION
constexpr const collscope::gpu::Vendor& checked = collscope::gpu::hip;
#define HOST_ALLOC HostMalloc
#define HOST_FREE HostFree
// The architecture is looked for as text anywhere behind the name.
static_assert(sizeof(DeviceProp::gcnArchName) > 1 && sizeof(DeviceProp::gcnArchName[0]) == 1);
#endif

namespace collscope::gpu {

static_assert(VENDOR(Success) == success);
static_assert(VENDOR(ErrorNoDevice) == error_no_device);
static_assert(VENDOR(ErrorNotReady) == error_not_ready);
static_assert(VENDOR(MemcpyHostToDevice) == memcpy_host_to_device);
static_assert(VENDOR(MemcpyDeviceToHost) == memcpy_device_to_host);
static_assert(VENDOR(MemcpyDeviceToDevice) == memcpy_device_to_device);
static_assert(VENDOR(MemcpyDefault) == memcpy_default);
static_assert(VENDOR(ErrorPeerAccessAlreadyEnabled) == error_peer_access_already_enabled);
static_assert(VENDOR(IpcMemLazyEnablePeerAccess) == checked.ipc_flag(CHECKED_VERSION));
static_assert(sizeof(VENDOR(IpcMemHandle_t)) == sizeof(IpcMemHandle));
static_assert(alignof(VENDOR(IpcMemHandle_t)) == alignof(IpcMemHandle));
static_assert(VENDOR(StreamNonBlocking) == stream_non_blocking);
static_assert(VENDOR(EventDefault) == event_default);
static_assert(VENDOR(StreamCaptureModeThreadLocal) == capture_mode_thread_local);

static_assert(sizeof(DeviceProp) <= sizeof(DeviceProperties));
static_assert(offsetof(DeviceProp, name) == 0 && sizeof(DeviceProp::name) == 256);
static_assert(offsetof(DeviceProperties, name) == 0 && sizeof(DeviceProperties::name) == 256);

// The struct is ours, far larger than theirs, so only its pointer is compared.
#define CHECK(member, name, parameters)                                                          \
    static_assert(check_abi::same_signature<decltype(Runtime::member), decltype(&VENDOR(name))>, \
                  #name);
COLLSCOPE_RUNTIME_REQUIRED(CHECK)
COLLSCOPE_RUNTIME_OPTIONAL(CHECK)
// A function that vendors spell differently: its name in the table, and its signature.
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define VENDOR_OF(name) VENDOR(name)
#define CHECK_SPELLED(member, name)                                   \
    static_assert(std::string_view(checked.member) == TEXT_OF(name)); \
    static_assert(                                                    \
        check_abi::same_signature<decltype(Runtime::member), decltype(&VENDOR_OF(name))>, #name);
CHECK_SPELLED(host_alloc, HOST_ALLOC)
CHECK_SPELLED(host_free, HOST_FREE)
#ifdef hipGetDeviceProperties  // HIP 6 and newer rename the function by this macro
CHECK_SPELLED(new_device_properties, GetDevicePropertiesR0600)
#endif
static_assert(check_abi::same_signature<decltype(Runtime::get_error_string),
                                        decltype(&VENDOR(GetErrorString))>);

}  // namespace collscope::gpu
