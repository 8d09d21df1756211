#include "gpu_device.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace collscope {
namespace {

constexpr int n_events = 2 * 1024;
constexpr std::size_t alignment = 512;  // bytes

// The current device belongs to the thread, in both runtimes.
thread_local int current_device = -1;

}  // namespace

std::string device_name(const gpu::Runtime& runtime, int ordinal) {
    auto properties = std::make_unique<gpu::DeviceProperties>();
    std::memset(properties.get(), 0, sizeof *properties);
    const auto get = runtime.new_device_properties ? runtime.new_device_properties
                                                   : runtime.get_device_properties;
    if (!get || get(properties.get(), ordinal) != gpu::success) {
        return {};
    }
    std::string name(properties->name, strnlen(properties->name, sizeof properties->name));
    if (!runtime.vendor->architecture) {
        return name;
    }
    // The place of the architecture differs by version.
    const std::string_view rest(properties->rest, sizeof properties->rest);
    const std::size_t at = rest.find(runtime.vendor->architecture);
    if (at == std::string_view::npos) {
        return name;
    }
    const std::string_view architecture = rest.substr(at, rest.find('\0', at) - at);
    return (name.empty() ? "" : name + " ") + std::string(architecture);
}

GpuDevice::~GpuDevice() {
    if (ordinal_ < 0 || !bind().ok()) {
        return;
    }
    drop_graph();
    for (gpu::Event event : events_) {
        runtime_.event_destroy(event);
    }
    if (stream_) {
        runtime_.stream_destroy(stream_);
    }
    for (void* memory : memory_) {
        runtime_.free(memory);
    }
}

Status GpuDevice::open(int ordinal, bool urgent) {
    ordinal_ = ordinal;
    Status status = bind();
    if (!status.ok()) {
        return status;
    }
    name_ = device_name(runtime_, ordinal_);
    status = make_stream(urgent);
    while (status.ok() && events_.size() < n_events) {
        gpu::Event event = nullptr;
        status = status_of(runtime_.event_create_with_flags(&event, gpu::event_default),
                           "EventCreateWithFlags");
        if (status.ok()) {
            events_.push_back(event);
        }
    }
    return status;
}

Status GpuDevice::make_stream(bool urgent) {
    if (!urgent) {
        return status_of(runtime_.stream_create_with_flags(&stream_, gpu::stream_non_blocking),
                         "StreamCreateWithFlags");
    }
    int least = 0;
    int greatest = 0;
    const Status status = status_of(runtime_.stream_priority_range(&least, &greatest),
                                    "DeviceGetStreamPriorityRange");
    if (!status.ok()) {
        return status;
    }
    return status_of(
        runtime_.stream_create_with_priority(&stream_, gpu::stream_non_blocking, greatest),
        "StreamCreateWithPriority");
}

Status GpuDevice::bind() const {
    if (current_device == ordinal_) {
        return {};
    }
    Status status = status_of(runtime_.set_device(ordinal_), "SetDevice");
    current_device = status.ok() ? ordinal_ : -1;
    return status;
}

void GpuDevice::leave() { ordinal_ = -1; }

Status GpuDevice::allocate(std::size_t bytes, std::byte*& out) {
    Status status = bind();
    if (!status.ok()) {
        return status;
    }
    void* memory = nullptr;
    status = status_of(runtime_.malloc(&memory, bytes + alignment - 1), "Malloc");
    if (!status.ok()) {
        std::size_t free = 0;
        std::size_t total = 0;
        status.error += " for " + std::to_string(bytes) + " bytes";
        if (runtime_.mem_get_info(&free, &total) == gpu::success) {
            status.error +=
                "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free";
        }
        return status;
    }
    memory_.push_back(memory);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    out = static_cast<std::byte*>(memory) + (alignment - address % alignment) % alignment;
    return {};
}

Status GpuDevice::copy(std::byte* to, const std::byte* from, std::size_t bytes, int kind) {
    const Status status = bind();
    if (!status.ok()) {
        return status;
    }
    return status_of(runtime_.memcpy_async(to, from, bytes, kind, stream_), "MemcpyAsync");
}

Status GpuDevice::fill(std::byte* to, unsigned char byte, std::size_t bytes) {
    const Status status = bind();
    if (!status.ok()) {
        return status;
    }
    return status_of(runtime_.memset_async(to, byte, bytes, stream_), "MemsetAsync");
}

Status GpuDevice::record(int event) {
    const Status status = bind();
    if (!status.ok()) {
        return status;
    }
    return status_of(runtime_.event_record(events_[static_cast<std::size_t>(event)], stream_),
                     "EventRecord");
}

Status GpuDevice::reached(int event, bool& done) const {
    const int rc = runtime_.event_query(events_[static_cast<std::size_t>(event)]);
    return query(rc, "EventQuery", done);
}

Status GpuDevice::idle(bool& done) const {
    return query(runtime_.stream_query(stream_), "StreamQuery", done);
}

Status GpuDevice::query(int rc, const char* function, bool& done) const {
    done = rc == gpu::success;
    if (rc != gpu::error_not_ready) {
        return status_of(rc, function);
    }
    // "Not ready" stays behind as the thread's last error; RCCL, which shares it, could see it.
    runtime_.get_last_error();
    return {};
}

Status GpuDevice::between_us(int start, int stop, double& out) const {
    float milliseconds = 0;
    const Status status = status_of(
        runtime_.event_elapsed_time(&milliseconds, events_[static_cast<std::size_t>(start)],
                                    events_[static_cast<std::size_t>(stop)]),
        "EventElapsedTime");
    out = 1000.0 * static_cast<double>(milliseconds);
    return status;
}

Status GpuDevice::capture_begin() {
    const Status status = bind();
    if (!status.ok()) {
        return status;
    }
    return status_of(runtime_.stream_begin_capture(stream_, gpu::capture_mode_thread_local),
                     "StreamBeginCapture");
}

Status GpuDevice::capture_end() {
    Status status = bind();
    if (!status.ok()) {
        return status;
    }
    gpu::Graph captured = nullptr;
    status = status_of(runtime_.stream_end_capture(stream_, &captured), "StreamEndCapture");
    if (!status.ok()) {
        return status;
    }
    drop_graph();
    status = status_of(runtime_.graph_instantiate_with_flags(&graph_, captured, 0),
                       "GraphInstantiateWithFlags");
    runtime_.graph_destroy(captured);
    return status;
}

Status GpuDevice::graph_launch() {
    const Status status = bind();
    if (!status.ok()) {
        return status;
    }
    return status_of(runtime_.graph_launch(graph_, stream_), "GraphLaunch");
}

void GpuDevice::drop_graph() {
    if (graph_) {
        runtime_.graph_exec_destroy(graph_);
    }
    graph_ = nullptr;
}

Status GpuDevice::status_of(int rc, const char* function) const {
    if (rc == gpu::success) {
        return {};
    }
    // Clears the error, so that the next call is not blamed for it.
    runtime_.get_last_error();
    return {runtime_.function(function) + ": " + runtime_.get_error_string(rc) + " (error " +
            std::to_string(rc) + ")"};
}

}  // namespace collscope
