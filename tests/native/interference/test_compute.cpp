// test_compute CASE: the computation on a GPU, with libraries that stand in for the vendors'. A
// process keeps what it has loaded, so each case has one of its own.
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <string>

#include "check.h"
#include "compute/compute.h"
#include "gpu/loader.h"
#include "gpu_device.h"

using namespace collscope;

namespace {

const std::string fakes = FAKES;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// A device of a fake runtime with whatever a case asks for beside it.
struct Machine {
    explicit Machine(const std::string& runtime = "cuda/libcudart.so.12")
        : libraries(gpu::load_usable_runtime("auto", fakes + "/" + runtime)),
          device(libraries.runtime) {
        CHECK(libraries.ok());
        CHECK(device.open(0, true).ok());
    }
    std::unique_ptr<Compute> make(const ComputeOptions& options) {
        return make_gpu_compute(device, options, error);
    }

    gpu::Libraries libraries;
    GpuDevice device;
    std::string error;
};

int counter(const std::string& library, const char* name) {
    void* handle = dlopen((fakes + "/" + library).c_str(), RTLD_NOW | RTLD_NOLOAD);
    CHECK(handle != nullptr);
    return handle ? *static_cast<int*>(dlsym(handle, name)) : -1;
}

// 3 units are 3 products; the marks are in their order.
void use(Compute& compute) {
    CHECK(compute.mark_calls(Mark::CallsBegin).ok());
    CHECK(compute.mark_calls(Mark::FirstCall).ok());
    CHECK(compute.start(3, true).ok());
    CHECK(compute.calls_after_first_unit().ok());
    CHECK(compute.mark_calls(Mark::CallsEnd).ok());
    CHECK(compute.finish().ok());
    const Mark order[] = {Mark::CallsBegin, Mark::FirstCall, Mark::WorkBegin,
                          Mark::FirstUnit,  Mark::WorkEnd,   Mark::CallsEnd};
    for (std::size_t i = 1; i < std::size(order); ++i) {
        double us = -1;
        CHECK(compute.between_us(order[i - 1], order[i], us).ok());
        CHECK(us >= 0);
    }
    CHECK(compute.multiprocessors() == 8);
}

void gemm() {
    Machine machine;
    const auto compute = machine.make({"auto", fakes + "/cuda/libcublas.so.12", ""});
    CHECK(compute && compute->kind() == "gemm");
    CHECK(compute->description() == "bf16 8192x8192x8192, cublas 12.9.3");
    const int before = counter("cuda/libcublas.so.12", "fake_products");
    use(*compute);
    CHECK(counter("cuda/libcublas.so.12", "fake_products") == before + 3);
}

void rocblas() {
    Machine machine("hip/libamdhip64.so.6");
    const auto compute = machine.make({"gemm", fakes + "/hip/librocblas.so.4", ""});
    CHECK(compute && compute->description() == "bf16 8192x8192x8192, rocblas 4.1.0");
    use(*compute);
}

// The newest does not give a handle, the next one lacks a function, the third works.
void next_blas() {
    setenv("COLLSCOPE_LIBRARY_PATH", (fakes + "/several").c_str(), 1);
    Machine machine;
    const auto compute = machine.make({});
    CHECK(compute && compute->kind() == "gemm");
}

void named_blas() {
    Machine machine;
    CHECK(!machine.make({"auto", fakes + "/several/libcublas.so.13", ""}));
    CHECK(contains(machine.error, "libcublas.so.13: no handle (status 1)"));
    CHECK(contains(machine.error, "with --blas."));
    CHECK(!machine.make({"gemm", fakes + "/several/libcublas.so.12", ""}));
    CHECK(contains(machine.error, "it lacks cublasGemmEx"));
    CHECK(!machine.make({"gemm", "/nowhere/libcublas.so", ""}));
    CHECK(contains(machine.error, "/nowhere/libcublas.so: cannot open"));
}

// No BLAS: a kernel. The driver refuses what the newer compiler makes.
void kernel() {
    setenv("COLLSCOPE_LIBRARY_PATH", (fakes + "/compilers").c_str(), 1);
    {
        Machine machine;
        const auto compute = machine.make({});
        CHECK(compute && compute->kind() == "kernel");
        CHECK(contains(compute->description(),
                       "2048 blocks of 1024 threads, one to a multiprocessor"));
        const int before = counter("compilers/libcuda.so.1", "fake_launches");
        use(*compute);
        CHECK(counter("compilers/libcuda.so.1", "fake_launches") == before + 3);
    }
    CHECK(counter("compilers/libcuda.so.1", "fake_unloads") == 1);
}

void no_architecture() {
    setenv("COLLSCOPE_LIBRARY_PATH", (fakes + "/compilers").c_str(), 1);
    Machine machine;
    CHECK(!machine.make({"kernel", "", fakes + "/other/libnvrtc.so.12"}));
    CHECK(contains(machine.error, "--gpu-architecture=sm_88: no such architecture"));
    CHECK(contains(machine.error, "with --compiler."));
}

void nothing() {
    setenv("COLLSCOPE_LIBRARY_PATH", "/nowhere", 1);
    Machine machine;
    CHECK(!machine.make({}));
    CHECK(machine.error.starts_with("matrix product: libcublas: not found. Give the path"));
    CHECK(contains(machine.error, "kernel: libnvrtc: not found."));
}

void host() {
    const auto compute = make_host_compute();
    CHECK(compute->kind() == "host-thread" && !compute->multiprocessors());
    for (int i = 0; i < 3; ++i) {
        CHECK(compute->start(4, false).ok());
        CHECK(compute->calls_after_first_unit().ok());
        CHECK(compute->mark_calls(Mark::CallsBegin).ok());
        CHECK(compute->finish().ok());
        double work = -1;
        double first = -1;
        CHECK(compute->between_us(Mark::WorkBegin, Mark::WorkEnd, work).ok());
        CHECK(compute->between_us(Mark::WorkBegin, Mark::FirstUnit, first).ok());
        CHECK(first > 0 && work > first);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, void (*)()> cases = {
        {"gemm", gemm},           {"rocblas", rocblas},
        {"next_blas", next_blas}, {"named_blas", named_blas},
        {"kernel", kernel},       {"no_architecture", no_architecture},
        {"nothing", nothing},     {"host", host}};
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    CHECK(found != cases.end());
    if (found != cases.end()) {
        found->second();
    }
    return check::result();
}
