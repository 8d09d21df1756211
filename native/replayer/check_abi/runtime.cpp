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
static_assert(cudaDevAttrMultiProcessorCount ==
              collscope::gpu::multiprocessor_count(collscope::gpu::Vendor::Cuda));
static_assert(cudaDevAttrComputeCapabilityMajor == collscope::gpu::cuda_capability_major);
static_assert(cudaDevAttrComputeCapabilityMinor == collscope::gpu::cuda_capability_minor);
static_assert(cudaDevAttrMaxSharedMemoryPerBlockOptin ==
              collscope::gpu::cuda_shared_memory_optin);
static_assert(cudaHostAllocDefault == collscope::gpu::host_alloc_default);
#define PINNED COLLSCOPE_RUNTIME_CUDA_PINNED
#define CHECKED_VERSION CUDART_VERSION
constexpr auto checked_vendor = collscope::gpu::Vendor::Cuda;
#else
#define __HIP_DISABLE_CPP_FUNCTIONS__  // templates that overload hipMalloc
#include <hip/hip_runtime_api.h>
#define VENDOR(name) hip##name
using DeviceProp = hipDeviceProp_t;
static_assert(hipErrorInsufficientDriver == collscope::gpu::error_insufficient_driver);
static_assert(hipErrorOutOfMemory == collscope::gpu::error_out_of_memory);
static_assert(hipDeviceAttributeMultiprocessorCount ==
              collscope::gpu::multiprocessor_count(collscope::gpu::Vendor::Hip));
static_assert(hipHostMallocDefault == collscope::gpu::host_alloc_default);
#define PINNED COLLSCOPE_RUNTIME_HIP_PINNED
#define CHECKED_VERSION HIP_VERSION
constexpr auto checked_vendor = collscope::gpu::Vendor::Hip;
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
static_assert(VENDOR(IpcMemLazyEnablePeerAccess) ==
              ipc_lazy_enable_peer_access(checked_vendor, CHECKED_VERSION));
static_assert(sizeof(VENDOR(IpcMemHandle_t)) == sizeof(IpcMemHandle));
static_assert(alignof(VENDOR(IpcMemHandle_t)) == alignof(IpcMemHandle));
static_assert(VENDOR(StreamNonBlocking) == stream_non_blocking);
static_assert(VENDOR(EventDefault) == event_default);
static_assert(VENDOR(StreamCaptureModeThreadLocal) == capture_mode_thread_local);

static_assert(sizeof(DeviceProp) <= sizeof(DeviceProperties));
static_assert(offsetof(DeviceProp, name) == 0 && sizeof(DeviceProp::name) == 256);
static_assert(offsetof(DeviceProperties, name) == 0 && sizeof(DeviceProperties::name) == 256);

// The struct is ours, far larger than theirs, so only its pointer is compared.
#define CHECK(member, name, parameters)                                                 \
    static_assert(                                                                      \
        check_abi::same_signature<decltype(Runtime::member), decltype(&VENDOR(name))>,  \
        #name);
COLLSCOPE_RUNTIME_REQUIRED(CHECK)
COLLSCOPE_RUNTIME_OPTIONAL(CHECK)
PINNED(CHECK)
#ifdef hipGetDeviceProperties  // HIP 6 and newer rename the function by this macro
COLLSCOPE_RUNTIME_HIP_ONLY(CHECK)
#endif
static_assert(check_abi::same_signature<decltype(Runtime::get_error_string),
                                        decltype(&VENDOR(GetErrorString))>);

}  // namespace collscope::gpu
