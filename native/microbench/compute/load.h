// What a GPU's compute stream is loaded with.
#pragma once

#include <memory>
#include <string>

#include "compute/compute.h"
#include "gpu/runtime_api.h"

namespace collscope {

// One unit of work at a time; made for a device and a stream of it.
class Load {
public:
    virtual ~Load() = default;
    virtual std::string description() const = 0;
    // Enqueues a unit on the stream.
    virtual Status enqueue() = 0;
};

// A product of square matrices, bf16 in, bf16 out, sums in float32, by cuBLAS or rocBLAS.
std::unique_ptr<Load> make_gemm(GpuDevice& device, gpu::Stream stream, const std::string& blas,
                                std::string& error);

// A kernel of many small blocks with the same work each, compiled by NVRTC or hipRTC.
std::unique_ptr<Load> make_kernel(GpuDevice& device, gpu::Stream stream,
                                  const std::string& compiler, std::string& error);

// Waits until the stream has done all that was enqueued.
Status wait_idle(const GpuDevice& device, gpu::Stream stream);

}  // namespace collscope
