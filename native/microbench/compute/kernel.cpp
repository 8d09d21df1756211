#include <algorithm>
#include <vector>

#include "compute/library.h"
#include "compute/load.h"
#include "gpu_device.h"

namespace collscope {

namespace {

// The same text for both compilers. Nothing but arithmetic, so that what a multiprocessor does is
// in proportion to its time; the store that never happens keeps the compiler from dropping it.
constexpr const char* source = R"(
extern "C" __global__ void collscope_load(float* out, int iterations) {
    float a = threadIdx.x, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    for (int i = 0; i < iterations; ++i) {
        a = a * 0.999f + 0.5f;
        b = b * 0.999f + 0.5f;
        c = c * 0.999f + 0.5f;
        d = d * 0.999f + 0.5f;
    }
    if (a + b + c + d == -1.0f) {
        out[threadIdx.x] = a;
    }
}
)";
constexpr unsigned block_threads = 1024;
// Blocks of a launch for each multiprocessor, which holds one at a time (see shared_bytes): the
// time of a launch then follows the number of multiprocessors to 0.4 %.
constexpr unsigned blocks_each = 256;
// What an AMD compute unit has; a block may take it without a request.
constexpr int hip_shared_bytes = 64 * 1024;
constexpr double launch_us = 1000;  // wanted, by the number of iterations
constexpr int trial_iterations = 64;
constexpr int most_iterations = 1 << 20;

template <typename Compiler>
std::string compile(const Compiler& compiler, const std::string& option, std::vector<char>& code) {
    void* program = nullptr;
    if (const int rc = compiler.create(&program, source, "load.cu", 0, nullptr, nullptr); rc != 0) {
        return "no program (result " + std::to_string(rc) + ")";
    }
    const char* options[] = {option.c_str()};
    std::string error;
    std::size_t size = 0;
    if (const int rc = compiler.compile(program, 1, options); rc != 0) {
        compiler.log_size(program, &size);
        std::string log(size + 1, '\0');
        compiler.log(program, log.data());
        error = "result " + std::to_string(rc) + ", " + option + ": " + log.c_str();
    } else {
        compiler.code_size(program, &size);
        code.resize(size);
        if (size == 0 || compiler.code(program, code.data()) != 0) {
            error = "it gave no code";
        }
    }
    compiler.destroy(&program);
    return error;
}

// "gfx942:sramecc+:xnack-" of "AMD Instinct MI300X gfx942:sramecc+:xnack-"
std::string last_word(const std::string& text) { return text.substr(text.rfind(' ') + 1); }

class Kernel final : public Load {
public:
    Kernel(GpuDevice& device, gpu::Stream stream) : device_(device), stream_(stream) {}
    ~Kernel() override;

    std::string description() const override {
        return std::to_string(blocks_) + " blocks of " + std::to_string(block_threads) +
               " threads, one to a multiprocessor, multiply-adds";
    }
    Status enqueue() override;

    std::string open(const std::string& compiler);
    Status calibrate();

private:
    bool cuda() const { return device_.runtime().vendor->toolkit == gpu::Toolkit::Cuda; }
    std::string compile_and_load(const std::string& compiler);
    std::string load(const std::vector<char>& code);
    std::string take_shared_memory();

    GpuDevice& device_;
    gpu::Stream stream_;
    gpu::CudaModule cuda_module_;
    gpu::HipModule hip_module_;
    void* module_ = nullptr;
    void* function_ = nullptr;
    // Each block takes all the shared memory of its multiprocessor, as those of large matrix
    // products and attention do, so that a block of the collective finds no room beside it.
    int shared_bytes_ = hip_shared_bytes;
    std::byte* out_ = nullptr;
    unsigned blocks_ = 0;
    int iterations_ = trial_iterations;
};

Kernel::~Kernel() {
    if (module_) {
        cuda() ? cuda_module_.unload(module_) : hip_module_.unload(module_);
    }
}

// A compiler may be newer than the driver, which then refuses its code: the next one is tried.
std::string Kernel::compile_and_load(const std::string& path) {
    std::vector<char> code;
    if (device_.runtime().vendor->toolkit == gpu::Toolkit::None) {
        return "no compiler is known for the " +
               std::string(device_.runtime().vendor->runtime_label);
    }
    if (cuda()) {
        int major = 0;
        int minor = 0;
        device_.runtime().device_get_attribute(&major, gpu::cuda_capability_major,
                                               device_.ordinal());
        device_.runtime().device_get_attribute(&minor, gpu::cuda_capability_minor,
                                               device_.ordinal());
        const std::string option =
            "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
        return gpu::first_that_works(
            {"libnvrtc",
             {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
             "/usr/local/cuda/lib64"},
            path, [&](void* library) {
                gpu::Nvrtc nvrtc;
                const std::string missing = gpu::bind(library, nvrtc);
                const std::string error = missing.empty() ? compile(nvrtc, option, code) : missing;
                return error.empty() ? load(code) : error;
            });
    }
    const std::string option = "--offload-arch=" + last_word(device_.name());
    return gpu::first_that_works(
        // Before ROCm 5.5 the compiler was a part of the runtime.
        {"libhiprtc",
         {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"},
         "/opt/rocm/lib",
         "ROCM_PATH"},
        path, [&](void* library) {
            gpu::Hiprtc hiprtc;
            const std::string missing = gpu::bind(library, hiprtc);
            const std::string error = missing.empty() ? compile(hiprtc, option, code) : missing;
            return error.empty() ? load(code) : error;
        });
}

// The driver takes modules for the context that the runtime has made current.
std::string Kernel::load(const std::vector<char>& code) {
    const gpu::LibraryFile driver =
        cuda() ? gpu::LibraryFile{"libcuda", {"libcuda.so.1"}} : gpu::LibraryFile{};
    return gpu::first_that_works(driver, cuda() ? "" : device_.runtime().path, [&](void* library) {
        const std::string missing =
            cuda() ? gpu::bind(library, cuda_module_) : gpu::bind(library, hip_module_);
        if (!missing.empty()) {
            return missing;
        }
        int rc = cuda() ? cuda_module_.load(&module_, code.data())
                        : hip_module_.load(&module_, code.data());
        if (rc == 0) {
            rc = cuda() ? cuda_module_.get_function(&function_, module_, "collscope_load")
                        : hip_module_.get_function(&function_, module_, "collscope_load");
        }
        return rc == 0 ? std::string()
                       : "the kernel does not load (error " + std::to_string(rc) + ")";
    });
}

std::string Kernel::open(const std::string& compiler) {
    if (const Status status = device_.bind(); !status.ok()) {
        return status.error;
    }
    if (const std::string error = compile_and_load(compiler); !error.empty()) {
        return error;
    }
    int multiprocessors = 0;
    const gpu::Runtime& runtime = device_.runtime();
    const Status status = device_.status_of(
        runtime.device_get_attribute(&multiprocessors, runtime.vendor->multiprocessor_count,
                                     device_.ordinal()),
        "DeviceGetAttribute");
    blocks_ = static_cast<unsigned>(multiprocessors) * blocks_each;
    if (const std::string error = take_shared_memory(); !error.empty()) {
        return error;
    }
    return (status.ok() ? device_.allocate(block_threads * sizeof(float), out_) : status).error;
}

// CUDA gives a kernel more than 48 KiB only on request.
std::string Kernel::take_shared_memory() {
    if (!cuda()) {
        return {};
    }
    const Status status =
        device_.status_of(device_.runtime().device_get_attribute(
                              &shared_bytes_, gpu::cuda_shared_memory_optin, device_.ordinal()),
                          "DeviceGetAttribute");
    if (!status.ok()) {
        return status.error;
    }
    const int rc =
        cuda_module_.set_attribute(function_, gpu::cuda_dynamic_shared_size, shared_bytes_);
    return rc == 0 ? std::string() : "cuFuncSetAttribute: error " + std::to_string(rc);
}

Status Kernel::enqueue() {
    const auto shared = static_cast<unsigned>(shared_bytes_);
    void* parameters[] = {&out_, &iterations_};
    const int rc = cuda() ? cuda_module_.launch(function_, blocks_, 1, 1, block_threads, 1, 1,
                                                shared, stream_, parameters, nullptr)
                          : hip_module_.launch(function_, blocks_, 1, 1, block_threads, 1, 1,
                                               shared, stream_, parameters, nullptr);
    return rc == 0 ? Status{}
                   : Status{std::string(cuda() ? "cuLaunchKernel" : "hipModuleLaunchKernel") +
                            ": error " + std::to_string(rc)};
}

// Chooses the iterations so that a launch takes `launch_us`.
Status Kernel::calibrate() {
    const gpu::Runtime& runtime = device_.runtime();
    gpu::Event marks[2] = {nullptr, nullptr};
    Status status;
    for (gpu::Event& mark : marks) {
        status = status.ok()
                     ? device_.status_of(runtime.event_create_with_flags(&mark, gpu::event_default),
                                         "EventCreateWithFlags")
                     : status;
    }
    // The first launches pay for loading, and find the clocks low.
    for (int i = 0; i < 6 && status.ok(); ++i) {
        runtime.event_record(marks[0], stream_);
        status = enqueue();
        runtime.event_record(marks[1], stream_);
        status = status.ok() ? wait_idle(device_, stream_) : status;
        float milliseconds = 0;
        status = status.ok() ? device_.status_of(
                                   runtime.event_elapsed_time(&milliseconds, marks[0], marks[1]),
                                   "EventElapsedTime")
                             : status;
        const double us = std::max(1.0, 1000.0 * static_cast<double>(milliseconds));
        const double wanted = iterations_ * launch_us / us;
        iterations_ = static_cast<int>(std::clamp(wanted, 1.0, double{most_iterations}));
    }
    for (gpu::Event mark : marks) {
        if (mark) {
            runtime.event_destroy(mark);
        }
    }
    return status;
}

}  // namespace

std::unique_ptr<Load> make_kernel(GpuDevice& device, gpu::Stream stream,
                                  const std::string& compiler, std::string& error) {
    auto out = std::make_unique<Kernel>(device, stream);
    error = out->open(compiler);
    error = error.empty() ? out->calibrate().error : error;
    return error.empty() ? std::move(out) : nullptr;
}

}  // namespace collscope
