// What the tuner plugin adds to a collective: ns per lookup through the exported structure, with
// a CSV of 1000 rows. The target is below 1000 ns.
//
//   bench_tuner [ROWS]
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plugin_api.h"

using namespace collscope::tuner;

namespace {

using Clock = std::chrono::steady_clock;

// The library's logger with NCCL_DEBUG off: it returns at once.
void quiet(int, unsigned long, const char*, int, const char*, ...) {}

// Rows that do not overlap, as `tune` writes them; then one range whose rows differ only in a
// condition that nothing meets, so that a lookup has to try all of them.
void write_csv(const char* path, int rows) {
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) {
        std::perror(path);
        std::exit(EXIT_FAILURE);
    }
    for (int i = 0; i < rows; ++i) {
        std::fprintf(file, "allreduce,%d,%d,%s,simple,8,1,8,-1,-1\n", 1000 * i, 1000 * i + 999,
                     i % 2 == 0 ? "ring" : "tree");
        std::fprintf(file, "allgather,0,-1,ring,simple,8,1,8,%d,-1\n", i + 2);
    }
    std::fclose(file);
}

// Median and largest of 21 rounds, ns per call.
void measure(const TunerV5& tuner, void* context, int collective, std::size_t largest,
             const char* title) {
    constexpr int calls = 20000;
    constexpr int rounds = 21;
    std::vector<double> times;
    std::array<float, algorithms * protocols> costs;
    for (int round = 0; round < rounds; ++round) {
        unsigned state = 1;
        const auto start = Clock::now();
        for (int i = 0; i < calls; ++i) {
            state = state * 1664525 + 1013904223;
            costs.fill(1.0f);
            int channels = 0;
            tuner.get_coll_info(context, collective, (state >> 4) % largest, 1,
                                reinterpret_cast<float**>(costs.data()), algorithms, protocols, 0,
                                &channels);
        }
        const std::chrono::duration<double, std::nano> took = Clock::now() - start;
        times.push_back(took.count() / calls);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-44s %8.1f ns median %8.1f ns largest\n", title, times[rounds / 2], times.back());
}

}  // namespace

int main(int argc, char** argv) {
    const int rows = argc > 1 ? std::atoi(argv[1]) : 1000;
    const char* path = "bench_tuner.csv";
    write_csv(path, rows);
    setenv("COLLSCOPE_TUNER_CSV", path, 1);
    void* library = dlopen(COLLSCOPE_TUNER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
    const auto& tuner = *static_cast<const TunerV5*>(dlsym(library, "ncclTunerPlugin_v5"));
    void* context = nullptr;
    const auto start = Clock::now();
    tuner.init(&context, 1, 8, 1, quiet, nullptr, nullptr);
    const std::chrono::duration<double, std::micro> init = Clock::now() - start;
    if (context == nullptr) {
        std::fprintf(stderr, "the plugin did not take %s\n", path);
        return EXIT_FAILURE;
    }
    std::printf("2 x %d rows; a communicator's first init %.0f us\n", rows, init.count());
    const std::size_t covered = 1000 * static_cast<std::size_t>(rows);
    measure(tuner, context, all_reduce, covered, "hit, rows do not overlap");
    measure(tuner, context, broadcast, covered, "miss, no row for the collective");
    measure(tuner, context, all_gather, covered, "miss, every row tried (worst case)");
    tuner.finalize(context);
    std::remove(path);
}
