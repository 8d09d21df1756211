// The command line of collscope-replayer.
#pragma once

#include <cstdint>
#include <string>

namespace collscope {

enum class Timing { Batch, Graph, Isolated };

struct Options {
    std::string plan;
    std::string csv;
    std::string backend = "auto";  // auto, cuda, hip, host
    std::string library;           // path; empty: look for it
    std::string runtime;
    int gpus_per_process = 1;
    bool one_thread = false;  // for all GPUs of a process, instead of a thread for each
    double budget_s = 1.0;    // per class
    Timing timing = Timing::Batch;
    int verify = 1;                                         // iterations verified
    std::uint64_t verify_limit = std::uint64_t{256} << 20;  // bytes per rank and class
    int repeat = 3;                                         // passes of mode sequence
    double timeout_s = 60.0;                                // per class
    bool resume = false;
    bool append = false;
    bool urgent = false;  // calls go before other work of the GPU; no option of its own
    std::string label;
    std::string round;
    bool progress = false;
    bool probe = false;
    bool version = false;
    bool help = false;
};

// Either options or a sentence `<where>: <what is wrong>. <what to do>.`
struct ParsedOptions {
    Options options;
    std::string error;
};

ParsedOptions parse_options(int argc, const char* const* argv);

// What --help prints.
const char* usage();

}  // namespace collscope
