// A GPU as one rank uses it: a stream, events, memory and a graph.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend.h"
#include "gpu/runtime_api.h"

namespace collscope {

// The model as the runtime names it, with the architecture where the vendor has one; may be empty.
std::string device_name(const gpu::Runtime& runtime, int ordinal);

// Everything but `leave` is called from one thread at a time.
class GpuDevice {
public:
    explicit GpuDevice(const gpu::Runtime& runtime) : runtime_(runtime) {}
    ~GpuDevice();
    GpuDevice(const GpuDevice&) = delete;
    GpuDevice& operator=(const GpuDevice&) = delete;

    // Takes the device: creates the stream, of the highest priority when it is `urgent`, and
    // 2 * 1024 events with timing.
    Status open(int ordinal, bool urgent = false);
    // Makes it the current device of the calling thread.
    Status bind() const;
    // Drops what it holds without freeing it, when freeing could wait forever.
    void leave();

    // Success, or "cudaMalloc: <the runtime's text> (error 2)".
    Status status_of(int rc, const char* function) const;

    const std::string& name() const { return name_; }
    gpu::Stream stream() const { return stream_; }
    int ordinal() const { return ordinal_; }
    const gpu::Runtime& runtime() const { return runtime_; }

    // Memory on a 512-byte boundary, freed with the device.
    Status allocate(std::size_t bytes, std::byte*& out);
    // Ordered on the stream.
    Status copy(std::byte* to, const std::byte* from, std::size_t bytes, int kind);
    Status fill(std::byte* to, unsigned char byte, std::size_t bytes);
    Status record(int event);

    Status reached(int event, bool& done) const;
    Status idle(bool& done) const;
    Status between_us(int start, int stop, double& out) const;

    Status capture_begin();
    Status capture_end();
    Status graph_launch();
    void drop_graph();

private:
    Status query(int rc, const char* function, bool& done) const;
    Status make_stream(bool urgent);

    const gpu::Runtime& runtime_;
    int ordinal_ = -1;
    std::string name_;
    gpu::Stream stream_ = nullptr;
    gpu::GraphExec graph_ = nullptr;
    std::vector<gpu::Event> events_;
    std::vector<void*> memory_;
};

}  // namespace collscope
