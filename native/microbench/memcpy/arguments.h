// The command line of the memcpy benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace collscope {

// What to measure; on the host `Peer` is Send and Recv, `Within` memcpy, `Ipc` a shared window.
struct Groups {
    bool peer = true;
    bool within = true;
    bool host = true;
    bool ipc = true;
};

struct CopyOptions {
    std::string csv;
    std::vector<std::uint64_t> sizes;        // bytes of one copy
    std::string backend = "auto";            // auto, host or a vendor's name
    std::string runtime;                     // path of the GPU runtime; empty: look for it
    std::vector<std::pair<int, int>> pairs;  // source and destination device; empty: all
    Groups groups;
    double budget_s = 0.1;  // per row
    double timeout_s = 60;  // per row
    int rounds = 1;
    std::string label = "memcpy";
    bool help = false;
};

struct ParsedCopyOptions {
    CopyOptions options;
    std::string error;  // a sentence; empty when the options can be used
};

// `argv[0]` is skipped.
ParsedCopyOptions parse_copy_options(int argc, const char* const* argv);
const char* copy_usage();

}  // namespace collscope
