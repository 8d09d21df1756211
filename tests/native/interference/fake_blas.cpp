// A libcublas or librocblas that does nothing, but is particular about how it is asked.
// FAKE_ROCBLAS  rocBLAS
// FAKE_BROKEN   gives no handle
// FAKE_LACKS    without the product
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

char handle;

[[maybe_unused]] bool square(int m, int n, int k, int lda, int ldb, int ldc) {
    return m == 8192 && n == m && k == m && lda == m && ldb == m && ldc == m;
}

[[maybe_unused]] bool factors(const void* alpha, const void* beta) {
    return *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
}

int make(void** out) {
#ifdef FAKE_BROKEN
    return 1;
#else
    *out = &handle;
    return 0;
#endif
}

}  // namespace

extern "C" {
int fake_products = 0;

#ifndef FAKE_ROCBLAS
int cublasCreate_v2(void** out) { return make(out); }
int cublasDestroy_v2(void* given) { return given == &handle ? 0 : 1; }
int cublasSetStream_v2(void* given, void*) { return given == &handle ? 0 : 1; }
int cublasGetVersion_v2(void*, int* version) {
    *version = 120903;
    return 0;
}
#ifndef FAKE_LACKS
int cublasGemmEx(void* given, int transa, int transb, int m, int n, int k, const void* alpha,
                 const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                 const void* beta, void* c, int type_c, int ldc, int compute, int algorithm) {
    ++fake_products;
    const bool good = given == &handle && transa == 0 && transb == 0 &&
                      square(m, n, k, lda, ldb, ldc) && factors(alpha, beta) && a && b && c &&
                      type_a == 14 && type_b == 14 && type_c == 14 && compute == 68 &&
                      algorithm == -1;
    return good ? 0 : 7;
}
#endif
#else
int rocblas_create_handle(void** out) { return make(out); }
int rocblas_destroy_handle(void* given) { return given == &handle ? 0 : 1; }
int rocblas_set_stream(void* given, void*) { return given == &handle ? 0 : 1; }
int rocblas_get_version_string(char* out, std::size_t size) {
    std::strncpy(out, "4.1.0", size);
    return 0;
}
int rocblas_gemm_ex(void* given, int transa, int transb, int m, int n, int k, const void* alpha,
                    const void* a, int type_a, int lda, const void* b, int type_b, int ldb,
                    const void* beta, const void* c, int type_c, int ldc, void* d, int type_d,
                    int ldd, int compute, int algorithm, std::int32_t solution,
                    std::uint32_t flags) {
    ++fake_products;
    const bool good = given == &handle && transa == 111 && transb == 111 &&
                      square(m, n, k, lda, ldb, ldc) && factors(alpha, beta) && a && b && c == d &&
                      type_a == 168 && type_b == 168 && type_c == 168 && type_d == 168 &&
                      ldd == ldc && compute == 151 && algorithm == 0 && solution == 0 && flags == 0;
    return good ? 0 : 7;
}
#endif
}
