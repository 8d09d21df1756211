// collscope-microbench: benchmarks of the machine itself, without the library or beside it.
#include <cstdio>
#include <string_view>

#include "interference/interference.h"
#include "memcpy/memcpy.h"
#include "mpi_scope.h"
#include "start.h"

namespace collscope {

namespace {

constexpr const char* usage_text =
    "collscope-microbench memcpy --csv OUT.csv --sizes BYTES,... [options]\n"
    "collscope-microbench interference PLAN --csv OUT.csv [options]\n"
    "collscope-microbench --version\n"
    "\n"
    "Each has its own --help.\n";

using Benchmark = int (*)(int, char**);

// The benchmark that the first word names; null when there is none.
Benchmark benchmark_named(std::string_view name) {
    if (name == "memcpy") {
        return run_memcpy;
    }
    if (name == "interference") {
        return run_interference;
    }
    return nullptr;
}

}  // namespace

}  // namespace collscope

int main(int argc, char** argv) {
    using namespace collscope;
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (word == "--version") {
        std::puts("collscope-microbench " COLLSCOPE_VERSION);
        return 0;
    }
    const Benchmark benchmark = benchmark_named(word);
    if (benchmark == nullptr) {
        std::fputs(usage_text, word == "--help" ? stdout : stderr);
        return word == "--help" ? 0 : exit_usage;
    }
    const Mpi mpi(argc, argv);
    return guarded("collscope-microbench", [&] { return benchmark(argc - 1, argv + 1); });
}
