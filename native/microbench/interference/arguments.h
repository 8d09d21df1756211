// The command line of `collscope-microbench interference`.
#pragma once

#include <string>

#include "compute/compute.h"
#include "options.h"

namespace collscope {

struct InterferenceOptions {
    Options common;  // those that collscope-replayer has too
    ComputeOptions compute;
    std::string channels;           // the setting's, copied to the column of that name
    std::string priority = "high";  // of the calls: high or normal
    bool help = false;
};

// Either options or a sentence `<where>: <what is wrong>. <what to do>.`
struct ParsedInterference {
    InterferenceOptions options;
    std::string error;
};

ParsedInterference parse_interference(int argc, const char* const* argv);

// What --help prints.
const char* interference_usage();

}  // namespace collscope
