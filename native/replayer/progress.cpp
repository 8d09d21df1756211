#include "progress.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdio>

namespace collscope {

Progress::Progress(bool on, std::size_t total)
    : on_(on), terminal_(isatty(STDERR_FILENO) == 1), total_(total), begun_s_(MPI_Wtime()) {}

Progress::~Progress() {
    if (on_ && terminal_ && done_ != 0) {
        std::fputc('\n', stderr);
    }
}

// class 3 of 40: AllReduce Bfloat16 8388608 bytes, 4 ranks: 123.4 GB/s busbw, 21 s left
void Progress::finished(const Row& row) {
    ++done_;
    if (!on_) {
        return;
    }
    const double passed = MPI_Wtime() - begun_s_;
    const double left = passed / static_cast<double>(done_) * static_cast<double>(total_ - done_);
    char result[64];
    if (row.status == "ok") {
        std::snprintf(result, sizeof result, "%.4g GB/s busbw",
                      algbw_gbps(row) * row.bus_factor.value_or(0));
    } else {
        std::snprintf(result, sizeof result, "%s", row.status.c_str());
    }
    std::fprintf(stderr, "%sclass %zu of %zu: %s %s %llu bytes, %d ranks: %s, %.0f s left%s",
                 terminal_ ? "\r\x1b[K" : "", done_, total_, row.op.c_str(), row.datatype.c_str(),
                 static_cast<unsigned long long>(row.size_bytes.value_or(0)), row.nranks, result,
                 left, terminal_ ? "" : "\n");
    std::fflush(stderr);
}

}  // namespace collscope
