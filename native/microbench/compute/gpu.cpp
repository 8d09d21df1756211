#include <array>
#include <cstddef>
#include <thread>

#include "compute/compute.h"
#include "compute/load.h"
#include "gpu_device.h"

namespace collscope {

namespace {

class GpuCompute final : public Compute {
public:
    explicit GpuCompute(GpuDevice& device) : device_(device), runtime_(device.runtime()) {}
    ~GpuCompute() override;

    Status open();
    std::string choose(const ComputeOptions& options);

    std::string kind() const override { return kind_; }
    std::string description() const override { return load_->description(); }
    std::optional<int> multiprocessors() const override;

    Status mark_calls(Mark mark) override { return record(mark, device_.stream()); }
    Status start(int units, bool after_first_call) override;
    Status calls_after_first_unit() override {
        return status_of(runtime_.stream_wait_event(device_.stream(), event(Mark::FirstUnit), 0),
                         "StreamWaitEvent");
    }
    Status finish() override { return wait_idle(device_, stream_); }
    Status between_us(Mark from, Mark to, double& out) override;
    void leave() override { left_ = true; }

private:
    Status status_of(int rc, const char* function) const { return device_.status_of(rc, function); }
    gpu::Event event(Mark mark) const { return events_[static_cast<std::size_t>(mark)]; }
    Status record(Mark mark, gpu::Stream stream) {
        return status_of(runtime_.event_record(event(mark), stream), "EventRecord");
    }

    GpuDevice& device_;
    const gpu::Runtime& runtime_;
    gpu::Stream stream_ = nullptr;
    std::array<gpu::Event, n_marks> events_{};
    std::string kind_;
    std::unique_ptr<Load> load_;
    bool left_ = false;
};

GpuCompute::~GpuCompute() {
    if (left_) {
        // Its libraries would wait for the device.
        static_cast<void>(load_.release());
        return;
    }
    load_.reset();
    for (gpu::Event made : events_) {
        if (made) {
            runtime_.event_destroy(made);
        }
    }
    if (stream_) {
        runtime_.stream_destroy(stream_);
    }
}

// The stream has the lowest priority, which is that of all streams made without one.
Status GpuCompute::open() {
    Status status = device_.bind();
    if (status.ok()) {
        status = status_of(runtime_.stream_create_with_flags(&stream_, gpu::stream_non_blocking),
                           "StreamCreateWithFlags");
    }
    for (gpu::Event& made : events_) {
        status = status.ok()
                     ? status_of(runtime_.event_create_with_flags(&made, gpu::event_default),
                                 "EventCreateWithFlags")
                     : status;
    }
    return status;
}

std::string GpuCompute::choose(const ComputeOptions& options) {
    std::string no_gemm;
    if (options.kind != "kernel") {
        kind_ = "gemm";
        load_ = make_gemm(device_, stream_, options.blas, no_gemm);
    }
    std::string no_kernel;
    // A BLAS that is named is not replaced by a kernel.
    if (!load_ && options.kind != "gemm" && options.blas.empty()) {
        kind_ = "kernel";
        load_ = make_kernel(device_, stream_, options.compiler, no_kernel);
    }
    if (load_) {
        return {};
    }
    std::string error;
    if (!no_gemm.empty()) {
        error = "matrix product: " + no_gemm + ". Give the path of cuBLAS or rocBLAS with --blas.";
    }
    if (!no_kernel.empty()) {
        error += (error.empty() ? "kernel: " : " kernel: ") + no_kernel +
                 ". Give the path of NVRTC or hipRTC with --compiler.";
    }
    return error;
}

std::optional<int> GpuCompute::multiprocessors() const {
    int out = 0;
    const int attribute = runtime_.vendor->multiprocessor_count;
    if (!status_of(runtime_.device_get_attribute(&out, attribute, device_.ordinal()),
                   "DeviceGetAttribute")
             .ok()) {
        return std::nullopt;
    }
    return out;
}

Status GpuCompute::start(int units, bool after_first_call) {
    Status status = device_.bind();
    if (status.ok() && after_first_call) {
        status = status_of(runtime_.stream_wait_event(stream_, event(Mark::FirstCall), 0),
                           "StreamWaitEvent");
    }
    status = status.ok() ? record(Mark::WorkBegin, stream_) : status;
    for (int i = 0; i < units && status.ok(); ++i) {
        status = load_->enqueue();
        if (status.ok() && i == 0) {
            status = record(Mark::FirstUnit, stream_);
        }
    }
    return status.ok() ? record(Mark::WorkEnd, stream_) : status;
}

Status GpuCompute::between_us(Mark from, Mark to, double& out) {
    float milliseconds = 0;
    const Status status = status_of(
        runtime_.event_elapsed_time(&milliseconds, event(from), event(to)), "EventElapsedTime");
    out = 1000.0 * static_cast<double>(milliseconds);
    return status;
}

}  // namespace

Status wait_idle(const GpuDevice& device, gpu::Stream stream) {
    const gpu::Runtime& runtime = device.runtime();
    for (;;) {
        const int rc = runtime.stream_query(stream);
        if (rc != gpu::error_not_ready) {
            return device.status_of(rc, "StreamQuery");
        }
        runtime.get_last_error();
        std::this_thread::yield();
    }
}

std::unique_ptr<Compute> make_gpu_compute(GpuDevice& device, const ComputeOptions& options,
                                          std::string& error) {
    auto out = std::make_unique<GpuCompute>(device);
    const Status status = out->open();
    error = status.ok() ? out->choose(options) : status.error;
    return error.empty() ? std::move(out) : nullptr;
}

}  // namespace collscope
