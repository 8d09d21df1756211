// Makes samples/recorders/node-1.*.collrec: make_sample FOLDER. Two processes are ranks 0 and 1 of
// a communicator of two; all times are invented, the rest is the recorder's.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "library.h"

namespace {

constexpr std::uint64_t device_ns = 1'700'000'000'000'000'000;
constexpr std::uint64_t real_ns = 0x18eab1bfcad93c74;
constexpr std::uint64_t monotonic_ns = 31'282'195'000'000;
// From one look at the clock to the next.
constexpr std::uint64_t step_ns = 20'000;

thread_local std::uint64_t elapsed_ns = 0;
int rank_of_process = 0;

}  // namespace

// In the place of the C library's: a sample names neither host nor process that made it, and what
// the host sees of a kernel comes after it.
extern "C" int gethostname(char* name, size_t size) noexcept {
    std::snprintf(name, size, "node-1");
    return 0;
}

extern "C" pid_t getpid() noexcept { return 4710 + rank_of_process; }

extern "C" int clock_gettime(clockid_t clock, timespec* found) noexcept {
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME) {
        return static_cast<int>(syscall(SYS_clock_gettime, clock, found));
    }
    const std::uint64_t now =
        clock == CLOCK_MONOTONIC ? monotonic_ns + (elapsed_ns += step_ns) : real_ns;
    found->tv_sec = static_cast<time_t>(now / 1'000'000'000u);
    found->tv_nsec = static_cast<long>(now % 1'000'000'000u);
    return 0;
}

namespace {

void play(int rank) {
    setenv("RANK", rank == 0 ? "0" : "1", 1);
    rank_of_process = rank;
    int mask = 0;
    library::CommV5 comm("ncclProfiler_v5", 0xfeedfacecafebeefu, rank, 2, &mask);
    std::uint64_t at = device_ns;
    // Rank 1 begins the k-th AllReduce 1000 × k ns after rank 0, and all end at once.
    for (std::uint64_t i = 0; i < 4; ++i, at += 1'000'000) {
        const std::uint64_t late = rank == 0 ? 0 : 1000 * i;
        elapsed_ns = at - device_ns;
        comm.whole_call("AllReduce", 1'048'576, i, 2, at + late, at + 100'000);
    }
    elapsed_ns = at - device_ns;
    comm.whole_call("AllGather", 4096, 0, 1, at, at + 20'000);
    comm.whole_call("ReduceScatter", 4096, 0, 1, at + 200'000, at + 225'000);
    comm.stop(comm.p2p(nullptr, rank == 0 ? "Send" : "Recv", 512, 1 - rank));
    comm.finalize();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: make_sample FOLDER\n");
        return EXIT_FAILURE;
    }
    setenv("COLLSCOPE_RECORDER_DIR", argv[1], 1);
    setenv("COLLSCOPE_RECORDER_LEVEL", "all", 1);
    setenv("WORLD_SIZE", "2", 1);
    for (int rank = 0; rank < 2; ++rank) {
        if (fork() == 0) {
            play(rank);
            std::exit(check::result());
        }
    }
    int failed = 0;
    int status = 0;
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    return failed;
}
