#include <cstdint>
#include <vector>

#include "compute/library.h"
#include "compute/load.h"
#include "gpu_device.h"

namespace collscope {

namespace {

constexpr int order = 8192;  // of the matrices
constexpr std::size_t matrix_bytes = std::size_t{order} * order * 2;

// What cuBLAS and rocBLAS differ in.
class Blas {
public:
    // Binds the library and makes a handle for the stream; what is wrong, else empty.
    std::string open(gpu::Toolkit toolkit, void* library, gpu::Stream stream);
    void close();
    Status multiply(const void* a, const void* b, void* c) const;
    const std::string& name() const { return name_; }

private:
    Status status_of(int rc, const char* function) const;

    bool cuda_ = true;
    gpu::Cublas cublas_;
    gpu::Rocblas rocblas_;
    void* handle_ = nullptr;
    std::string name_;
};

std::string Blas::open(gpu::Toolkit toolkit, void* library, gpu::Stream stream) {
    cuda_ = toolkit == gpu::Toolkit::Cuda;
    const std::string missing = cuda_ ? gpu::bind(library, cublas_) : gpu::bind(library, rocblas_);
    if (!missing.empty()) {
        return missing;
    }
    int rc = cuda_ ? cublas_.create(&handle_) : rocblas_.create(&handle_);
    if (rc != 0) {
        return "no handle (status " + std::to_string(rc) + ")";
    }
    rc = cuda_ ? cublas_.set_stream(handle_, stream) : rocblas_.set_stream(handle_, stream);
    if (rc != 0) {
        close();
        return "no stream (status " + std::to_string(rc) + ")";
    }
    if (cuda_) {
        int version = 0;
        cublas_.get_version(handle_, &version);
        // 120903: 12.9.3 (CUBLAS_VERSION)
        name_ = "cublas " + std::to_string(version / 10000) + "." +
                std::to_string(version % 10000 / 100) + "." + std::to_string(version % 100);
    } else {
        char version[64] = {};
        rocblas_.get_version(version, sizeof version - 1);
        name_ = std::string("rocblas ") + version;
    }
    return {};
}

void Blas::close() {
    if (handle_) {
        cuda_ ? cublas_.destroy(handle_) : rocblas_.destroy(handle_);
    }
    handle_ = nullptr;
}

Status Blas::multiply(const void* a, const void* b, void* c) const {
    static const float one = 1;
    static const float zero = 0;
    constexpr int n = order;
    if (cuda_) {
        using namespace gpu;
        return status_of(cublas_.gemm(handle_, cublas_op_n, cublas_op_n, n, n, n, &one, a,
                                      cuda_r_16bf, n, b, cuda_r_16bf, n, &zero, c, cuda_r_16bf, n,
                                      cublas_compute_32f, cublas_gemm_default),
                         "cublasGemmEx");
    }
    using namespace gpu;
    return status_of(rocblas_.gemm(handle_, rocblas_operation_n, rocblas_operation_n, n, n, n, &one,
                                   a, rocblas_bf16, n, b, rocblas_bf16, n, &zero, c, rocblas_bf16,
                                   n, c, rocblas_bf16, n, rocblas_f32, rocblas_algo_standard, 0, 0),
                     "rocblas_gemm_ex");
}

Status Blas::status_of(int rc, const char* function) const {
    return rc == 0 ? Status{} : Status{std::string(function) + ": status " + std::to_string(rc)};
}

// Numbers in [1, 2) and (-2, -1]: the power that a product draws depends on its bits.
std::vector<std::uint16_t> random_matrix() {
    std::vector<std::uint16_t> out(matrix_bytes / 2);
    std::uint64_t state = 88172645463325252ULL;
    for (std::uint16_t& value : out) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value = static_cast<std::uint16_t>(0x3f80U | (state & 0x807fU));
    }
    return out;
}

class Gemm final : public Load {
public:
    ~Gemm() override { blas_.close(); }

    std::string description() const override {
        const std::string n = std::to_string(order);
        return "bf16 " + n + "x" + n + "x" + n + ", " + blas_.name();
    }
    Status enqueue() override { return blas_.multiply(a_, b_, c_); }

    std::string open(const GpuDevice& device, gpu::Stream stream, const std::string& blas);
    Status fill(GpuDevice& device, gpu::Stream stream);

private:
    Blas blas_;
    std::byte* a_ = nullptr;
    std::byte* b_ = nullptr;
    std::byte* c_ = nullptr;
};

std::string Gemm::open(const GpuDevice& device, gpu::Stream stream, const std::string& blas) {
    static constexpr gpu::LibraryFile cublas = {
        "libcublas",
        {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"},
        "/usr/local/cuda/lib64"};
    static constexpr gpu::LibraryFile rocblas = {
        "librocblas",
        {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0"},
        "/opt/rocm/lib",
        "ROCM_PATH"};
    const gpu::Toolkit toolkit = device.runtime().vendor->toolkit;
    if (toolkit == gpu::Toolkit::None) {
        return "no BLAS is known for the " + std::string(device.runtime().vendor->runtime_label);
    }
    return gpu::first_that_works(
        toolkit == gpu::Toolkit::Cuda ? cublas : rocblas, blas,
        [&](void* library) { return blas_.open(toolkit, library, stream); });
}

Status Gemm::fill(GpuDevice& device, gpu::Stream stream) {
    const std::vector<std::uint16_t> values = random_matrix();
    Status status;
    for (std::byte** matrix : {&a_, &b_, &c_}) {
        status = status.ok() ? device.allocate(matrix_bytes, *matrix) : status;
    }
    for (std::byte* matrix : {a_, b_}) {
        if (status.ok()) {
            status =
                device.status_of(device.runtime().memcpy_async(matrix, values.data(), matrix_bytes,
                                                               gpu::memcpy_host_to_device, stream),
                                 "MemcpyAsync");
        }
    }
    return status.ok() ? wait_idle(device, stream) : status;
}

}  // namespace

std::unique_ptr<Load> make_gemm(GpuDevice& device, gpu::Stream stream, const std::string& blas,
                                std::string& error) {
    auto out = std::make_unique<Gemm>();
    error = out->open(device, stream, blas);
    if (!error.empty()) {
        return nullptr;
    }
    Status status = out->fill(device, stream);
    status = status.ok() ? out->enqueue() : status;  // one that this GPU cannot do fails here
    error = (status.ok() ? wait_idle(device, stream) : status).error;
    return error.empty() ? std::move(out) : nullptr;
}

}  // namespace collscope
