// Work of a fixed amount that runs beside collectives: what they disturb.
//
// One rank's work, used by one thread. The marks lie on one time axis, those of the calls on the
// backend's own stream, those of the work on the work's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend.h"

namespace collscope {

enum class Mark { CallsBegin, FirstCall, CallsEnd, WorkBegin, FirstUnit, WorkEnd };
inline constexpr int n_marks = 6;

class Compute {
public:
    virtual ~Compute() = default;

    virtual std::string kind() const = 0;         // gemm, kernel, host-thread
    virtual std::string description() const = 0;  // one line
    virtual std::optional<int> multiprocessors() const = 0;

    // Marks the place that the calls have come to: CallsBegin, FirstCall or CallsEnd.
    virtual Status mark_calls(Mark mark) = 0;
    // Begins `units` equal pieces of work; with `after_first_call` once that mark is passed.
    virtual Status start(int units, bool after_first_call) = 0;
    // The calls that follow wait for the first unit of the work.
    virtual Status calls_after_first_unit() = 0;
    // Waits for the work.
    virtual Status finish() = 0;
    // Microseconds from `from`, which must not be the later one.
    virtual Status between_us(Mark from, Mark to, double& out) = 0;
    // Drops everything without freeing it, when freeing could wait for ever.
    virtual void leave() = 0;
};

struct ComputeOptions {
    std::string kind = "auto";  // auto, gemm, kernel
    std::string blas;           // path of the BLAS; empty: look for it
    std::string compiler;       // path of NVRTC or hipRTC; empty: look for it
};

// A thread of the host that multiplies matrices.
std::unique_ptr<Compute> make_host_compute();

// A stream of the device with a matrix product of the vendor's BLAS or a kernel compiled here;
// `auto`: the BLAS where there is one. Null with a sentence in `error` when there is neither.
std::unique_ptr<Compute> make_gpu_compute(GpuDevice& device, const ComputeOptions& options,
                                          std::string& error);

}  // namespace collscope
