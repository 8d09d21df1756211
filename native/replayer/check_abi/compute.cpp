// Holds ../../microbench/compute/api.h against the vendors' headers. Compiled only, by
// `make check-abi`: -DCHECK_CUDA with cublas_api.h, nvrtc.h and cuda.h, -DCHECK_HIP
// -D__HIP_PLATFORM_AMD__ with hip_runtime_api.h and hiprtc.h, and with -DCHECK_ROCBLAS rocblas.h.
#include "../../microbench/compute/api.h"

#include "signature.h"

#ifdef CHECK_CUDA
#define CUBLASAPI  // which cublas_v2.h sets, and renames functions besides
#include <cublas_api.h>
#include <cuda.h>
#include <nvrtc.h>
#else
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#ifdef CHECK_ROCBLAS
#include <rocblas/rocblas.h>
#endif
#endif

namespace collscope::gpu {

#define CHECK(member, name, parameters) \
    static_assert(check_abi::same_signature<decltype(Api::member), decltype(&::name)>, #name);

#ifdef CHECK_CUDA
static_assert(CUBLAS_STATUS_SUCCESS == 0 && NVRTC_SUCCESS == 0 && CUDA_SUCCESS == 0);
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == cuda_dynamic_shared_size);
static_assert(CUBLAS_OP_N == cublas_op_n && CUDA_R_16BF == cuda_r_16bf);
static_assert(CUBLAS_COMPUTE_32F == cublas_compute_32f);
static_assert(CUBLAS_GEMM_DEFAULT == cublas_gemm_default);
// It also has an overload in C++, so the type must be given.
using CublasGemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                      int, int, const void*, const void*, cudaDataType, int,
                                      const void*, cudaDataType, int, const void*, void*,
                                      cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
inline constexpr CublasGemm cublas_gemm = &cublasGemmEx;
static_assert(check_abi::same_signature<decltype(Cublas::gemm), CublasGemm>);
static_assert(check_abi::same_signature<decltype(Cublas::create), decltype(&cublasCreate_v2)>);
static_assert(check_abi::same_signature<decltype(Cublas::destroy), decltype(&cublasDestroy_v2)>);
static_assert(
    check_abi::same_signature<decltype(Cublas::set_stream), decltype(&cublasSetStream_v2)>);
static_assert(
    check_abi::same_signature<decltype(Cublas::get_version), decltype(&cublasGetVersion_v2)>);
namespace nvrtc {
using Api = Nvrtc;
COLLSCOPE_NVRTC(CHECK)
}  // namespace nvrtc
namespace module {
using Api = CudaModule;
COLLSCOPE_CUDA_MODULE(CHECK)
}  // namespace module
#else
static_assert(hipSuccess == 0 && HIPRTC_SUCCESS == 0);
namespace hiprtc {
using Api = Hiprtc;
COLLSCOPE_HIPRTC(CHECK)
}  // namespace hiprtc
namespace module {
using Api = HipModule;
COLLSCOPE_HIP_MODULE(CHECK)
}  // namespace module
#ifdef CHECK_ROCBLAS
static_assert(rocblas_status_success == 0 && rocblas_operation_none == rocblas_operation_n);
static_assert(rocblas_datatype_bf16_r == rocblas_bf16 && rocblas_datatype_f32_r == rocblas_f32);
static_assert(rocblas_gemm_algo_standard == rocblas_algo_standard);
namespace blas {
using Api = Rocblas;
COLLSCOPE_ROCBLAS(CHECK)
}  // namespace blas
#endif
#endif

}  // namespace collscope::gpu
