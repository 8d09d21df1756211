#include "interference/arguments.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "gpu/vendors.h"

namespace collscope {

namespace {

const std::string usage_text =
    R"(collscope-microbench interference PLAN --csv OUT.csv [options]

Every class of the plan (mode unique) beside computation on another stream.

  --csv FILE         where results go, a line for each class and rank
  --compute C        auto (default: gemm where there is a BLAS), gemm, kernel
  --blas PATH        libcublas or librocblas
  --compiler PATH    libnvrtc or libhiprtc, for the kernel
  --priority P       of the calls' stream: high (default) or normal
  --channels TEXT    copied to the column of that name
  --backend B        auto (default), )" +
    gpu::vendor_names() +
    R"(, host (MPI and a thread)
  --library PATH     libnccl or librccl to measure
  --runtime PATH     libcudart or libamdhip64
  --budget SECONDS   time spent on a class (default 1.0); five rounds at least
  --verify N         0: do not check the class's results first
  --timeout SECONDS  a class without progress for so long ends the run (default 60)
  --append           add to FILE
  --label L, --round N  copied to the columns of that name
  --progress         a line for each class on stderr

Exit codes: 0 ok, 2 usage, 3 plan or CSV unusable, 5 library or GPU missing, 6 a class failed.
)";

// Of collscope-replayer's options those that make sense here.
constexpr std::array<std::string_view, 13> shared = {
    "--csv",     "--backend", "--library", "--runtime", "--budget",   "--verify", "--verify-limit",
    "--timeout", "--append",  "--label",   "--round",   "--progress", "--help"};

// Where an option's value goes; null when the option is not ours.
std::string* value_of(InterferenceOptions& options, std::string_view name) {
    if (name == "--compute") return &options.compute.kind;
    if (name == "--blas") return &options.compute.blas;
    if (name == "--compiler") return &options.compute.compiler;
    if (name == "--priority") return &options.priority;
    if (name == "--channels") return &options.channels;
    return nullptr;
}

std::string wrong_value(const InterferenceOptions& options) {
    const std::string& kind = options.compute.kind;
    if (kind != "auto" && kind != "gemm" && kind != "kernel") {
        return "--compute: `" + kind + "` is not a valid value. See --help.";
    }
    if (options.priority != "high" && options.priority != "normal") {
        return "--priority: `" + options.priority + "` is not a valid value. See --help.";
    }
    return {};
}

}  // namespace

const char* interference_usage() { return usage_text.c_str(); }

ParsedInterference parse_interference(int argc, const char* const* argv) {
    ParsedInterference out;
    std::vector<const char*> rest = {argv[0]};
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const std::string_view name = word.substr(0, word.find('='));
        std::string* value = value_of(out.options, name);
        if (value == nullptr) {
            if (word.starts_with("--") && std::ranges::find(shared, name) == shared.end()) {
                out.error = "command line: `" + std::string(word) + "` is unknown. See --help.";
                return out;
            }
            rest.push_back(argv[i]);
        } else if (name.size() != word.size()) {
            *value = word.substr(name.size() + 1);
        } else if (i + 1 == argc) {
            out.error = std::string(name) + ": its value is missing. See --help.";
            return out;
        } else {
            *value = argv[++i];
        }
    }
    const ParsedOptions parsed = parse_options(static_cast<int>(rest.size()), rest.data());
    out.options.common = parsed.options;
    out.options.common.urgent = out.options.priority == "high";
    out.options.help = parsed.options.help;
    out.error = parsed.error.empty() ? wrong_value(out.options) : parsed.error;
    return out;
}

}  // namespace collscope
