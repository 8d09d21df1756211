// What the GPU work calls beside the runtime, in declarations of our own: a BLAS, a compiler at run
// time, and the functions that load what it made.
//
// native/replayer/check_abi/compute.cpp holds the values and signatures against the vendors'
// headers where it has them. hipBLAS is left out on purpose: its GemmEx takes other types and
// enumerants from version 3 on, rocBLAS has kept its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collscope::gpu {

inline constexpr int cublas_op_n = 0;
inline constexpr int cuda_r_16bf = 14;
inline constexpr int cublas_compute_32f = 68;
inline constexpr int cublas_gemm_default = -1;
inline constexpr int cuda_dynamic_shared_size = 8;  // of CUfunction_attribute
inline constexpr int rocblas_operation_n = 111;
inline constexpr int rocblas_bf16 = 168;
inline constexpr int rocblas_f32 = 151;
inline constexpr int rocblas_algo_standard = 0;

// X(member, name, parameters); all return a status as an int, 0 for success.
#define COLLSCOPE_CUBLAS(X)                                                                       \
    X(create, cublasCreate_v2, (void**))                                                          \
    X(destroy, cublasDestroy_v2, (void*))                                                         \
    X(set_stream, cublasSetStream_v2, (void*, void*))                                             \
    X(get_version, cublasGetVersion_v2, (void*, int*))                                            \
    X(gemm, cublasGemmEx,                                                                         \
      (void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, \
       const void*, void*, int, int, int, int))

#define COLLSCOPE_ROCBLAS(X)                                                                      \
    X(create, rocblas_create_handle, (void**))                                                    \
    X(destroy, rocblas_destroy_handle, (void*))                                                   \
    X(set_stream, rocblas_set_stream, (void*, void*))                                             \
    X(get_version, rocblas_get_version_string, (char*, std::size_t))                              \
    X(gemm, rocblas_gemm_ex,                                                                      \
      (void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, \
       const void*, const void*, int, int, void*, int, int, int, int, std::int32_t,               \
       std::uint32_t))

#define COLLSCOPE_NVRTC(X)                                                             \
    X(create, nvrtcCreateProgram,                                                      \
      (void**, const char*, const char*, int, const char* const*, const char* const*)) \
    X(compile, nvrtcCompileProgram, (void*, int, const char* const*))                  \
    X(code_size, nvrtcGetCUBINSize, (void*, std::size_t*))                             \
    X(code, nvrtcGetCUBIN, (void*, char*))                                             \
    X(log_size, nvrtcGetProgramLogSize, (void*, std::size_t*))                         \
    X(log, nvrtcGetProgramLog, (void*, char*))                                         \
    X(destroy, nvrtcDestroyProgram, (void**))

#define COLLSCOPE_HIPRTC(X)                                                \
    X(create, hiprtcCreateProgram,                                         \
      (void**, const char*, const char*, int, const char**, const char**)) \
    X(compile, hiprtcCompileProgram, (void*, int, const char**))           \
    X(code_size, hiprtcGetCodeSize, (void*, std::size_t*))                 \
    X(code, hiprtcGetCode, (void*, char*))                                 \
    X(log_size, hiprtcGetProgramLogSize, (void*, std::size_t*))            \
    X(log, hiprtcGetProgramLog, (void*, char*))                            \
    X(destroy, hiprtcDestroyProgram, (void**))

#define COLLSCOPE_CUDA_MODULE(X)                                                                   \
    X(load, cuModuleLoadData, (void**, const void*))                                               \
    X(get_function, cuModuleGetFunction, (void**, void*, const char*))                             \
    X(launch, cuLaunchKernel,                                                                      \
      (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, \
       void**))                                                                                    \
    X(set_attribute, cuFuncSetAttribute, (void*, int, int))                                        \
    X(unload, cuModuleUnload, (void*))

#define COLLSCOPE_HIP_MODULE(X)                                                                    \
    X(load, hipModuleLoadData, (void**, const void*))                                              \
    X(get_function, hipModuleGetFunction, (void**, void*, const char*))                            \
    X(launch, hipModuleLaunchKernel,                                                               \
      (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, \
       void**))                                                                                    \
    X(unload, hipModuleUnload, (void*))

#define COLLSCOPE_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
struct Cublas {
    COLLSCOPE_CUBLAS(COLLSCOPE_MEMBER)
};
struct Rocblas {
    COLLSCOPE_ROCBLAS(COLLSCOPE_MEMBER)
};
struct Nvrtc {
    COLLSCOPE_NVRTC(COLLSCOPE_MEMBER)
};
struct Hiprtc {
    COLLSCOPE_HIPRTC(COLLSCOPE_MEMBER)
};
struct CudaModule {
    COLLSCOPE_CUDA_MODULE(COLLSCOPE_MEMBER)
};
struct HipModule {
    COLLSCOPE_HIP_MODULE(COLLSCOPE_MEMBER)
};
#undef COLLSCOPE_MEMBER

}  // namespace collscope::gpu
