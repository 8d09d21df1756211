// Copies on a host without a GPU: memcpy within a process, and to another process by MPI: through a
// shared window (as IPC handles share the memory of a GPU) and by Send and Recv.
#pragma once

#include <mpi.h>

#include <vector>

#include "memcpy/measure.h"
#include "memcpy/memory.h"
#include "memcpy/partner.h"

namespace collscope {

// A window whose memory is all process 1's. Both processes open and close it.
class SharedWindow {
public:
    SharedWindow() = default;
    SharedWindow(const SharedWindow&) = delete;
    SharedWindow& operator=(const SharedWindow&) = delete;

    Status open(MPI_Comm comm, std::uint64_t size_bytes);
    Status sync() const;
    Status close();
    std::byte* data() const { return data_; }

private:
    MPI_Win window_ = MPI_WIN_NULL;
    std::byte* data_ = nullptr;
};

class HostCopies {
public:
    HostCopies(const CopyOptions& options, const Control& control, CopyRows& rows);
    ~HostCopies();
    HostCopies(const HostCopies&) = delete;
    HostCopies& operator=(const HostCopies&) = delete;

    // Collective.
    void run(std::uint64_t size_bytes);

private:
    // What is measured, and the wish of host.cpp that does it; 0: process 0 measures alone.
    struct Kind {
        const char* name;
        Timing timing;
        char wish;
    };

    std::vector<Kind> kinds() const;
    Refusal refusal(const Kind& kind) const;
    void refuse_all(const Refusal& why);
    void measure_all();
    Timed copies_into(Timing timing, std::byte* to);
    void window_rows(CopyRow row, Timing timing);
    Timed both_do(const Kind& kind);

    // Has both processes do their parts; gives microseconds of one repetition.
    Status ask(const Wish& wish, double& us, std::uint64_t& n_wrong);
    Status part(const Wish& wish, double& us, std::uint64_t& n_wrong);
    Status windows(const Wish& wish, double& us, std::uint64_t& n_wrong);
    Status transfers(int calls, double& us);

    std::uint64_t fill();
    Status look(const std::byte* memory, std::uint64_t seed, std::uint64_t& n_wrong) const;

    const CopyOptions& options_;
    const Control& control_;
    CopyRows& rows_;
    Partner partner_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    std::uint64_t size_ = 0;
    PageableMemory send_, recv_;
    SharedWindow window_;
    std::uint64_t seed_ = 0;
};

}  // namespace collscope
