#include "options.h"

#include <string_view>
#include <unordered_map>

#include "gpu/vendors.h"
#include "option_values.h"

namespace collscope {

namespace {

const std::string usage_text =
    R"(collscope-replayer PLAN --csv OUT.csv [options]
collscope-replayer --probe [--backend B] [--library PATH] [--runtime PATH]

  --csv FILE            where results go, a line for each finished class
  --backend B           auto (default), )" +
    gpu::vendor_names() +
    R"(, host (MPI on CPU memory)
  --library PATH        libnccl or librccl to measure
  --runtime PATH        libcudart or libamdhip64
  --gpus-per-process N  default 1
  --threads T           per-gpu (default) or one, for all GPUs of a process
  --budget SECONDS      time spent on a class (default 1.0)
  --graph               time graph launches
  --isolated            time each call alone, as a blocking program sees it
  --verify N            iterations verified in each class (default 1; 0: none)
  --verify-limit BYTES  per rank and class; above it a sample (default 268435456)
  --repeat N            passes of mode sequence (default 3)
  --timeout SECONDS     a class without progress for so long ends the run (default 60)
  --resume              keep the finished classes of FILE
  --append              add to FILE
  --label L, --round N  copied to the columns of that name
  --progress            a line for each class on stderr
  --probe               load and check the libraries, then end
  --version, --help

Exit codes: 0 ok, 2 usage, 3 plan or CSV unusable, 5 library or GPU missing, 6 a class failed.
)";

const std::unordered_map<std::string_view, Setter<Options>>& with_value() {
    static const std::unordered_map<std::string_view, Setter<Options>> setters = {
        {"--csv", text_of(&Options::csv)},
        {"--library", text_of(&Options::library)},
        {"--runtime", text_of(&Options::runtime)},
        {"--label", text_of(&Options::label)},
        {"--backend",
         [](Options& o, std::string_view v) {
             o.backend = v;
             return gpu::is_backend(v);
         }},
        {"--threads",
         [](Options& o, std::string_view v) {
             o.one_thread = v == "one";
             return v == "one" || v == "per-gpu";
         }},
        {"--round",
         [](Options& o, std::string_view v) {
             o.round = v;
             std::uint64_t number = 0;
             return to_whole(v, 0, INT32_MAX, number);
         }},
        {"--gpus-per-process",
         [](Options& o, std::string_view v) { return to_whole(v, 1, 64, o.gpus_per_process); }},
        {"--budget", [](Options& o, std::string_view v) { return to_double(v, 1e-6, o.budget_s); }},
        {"--timeout",
         [](Options& o, std::string_view v) { return to_double(v, 0.1, o.timeout_s); }},
        {"--verify", [](Options& o, std::string_view v) { return to_whole(v, 0, 1000, o.verify); }},
        {"--verify-limit",
         [](Options& o, std::string_view v) { return to_whole(v, 1, INT64_MAX, o.verify_limit); }},
        {"--repeat", [](Options& o, std::string_view v) { return to_whole(v, 1, 1000, o.repeat); }},
    };
    return setters;
}

const std::unordered_map<std::string_view, std::function<void(Options&)>>& flags() {
    static const std::unordered_map<std::string_view, std::function<void(Options&)>> setters = {
        {"--graph", [](Options& o) { o.timing = Timing::Graph; }},
        {"--isolated", [](Options& o) { o.timing = Timing::Isolated; }},
        {"--resume", [](Options& o) { o.resume = true; }},
        {"--append", [](Options& o) { o.append = true; }},
        {"--progress", [](Options& o) { o.progress = true; }},
        {"--probe", [](Options& o) { o.probe = true; }},
        {"--version", [](Options& o) { o.version = true; }},
        {"--help", [](Options& o) { o.help = true; }},
    };
    return setters;
}

std::string what_is_missing(const Options& options, bool graph, bool isolated) {
    if (options.help || options.version || options.probe) {
        return {};
    }
    if (options.plan.empty() || options.csv.empty()) {
        return "command line: the plan or --csv is missing. Call `collscope-replayer PLAN --csv "
               "OUT.csv`.";
    }
    if (graph && isolated) {
        return "command line: --graph and --isolated exclude each other. Choose one.";
    }
    if (options.backend == "host" && options.gpus_per_process > 1) {
        return "command line: the host backend has one rank per process. Leave "
               "--gpus-per-process out.";
    }
    return {};
}

}  // namespace

const char* usage() { return usage_text.c_str(); }

ParsedOptions parse_options(int argc, const char* const* argv) {
    ParsedOptions out;
    bool graph = false;
    bool isolated = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const std::string_view name = word.substr(0, word.find('='));
        const bool joined = name.size() != word.size();
        if (const auto flag = flags().find(word); flag != flags().end()) {
            flag->second(out.options);
            graph = graph || word == "--graph";
            isolated = isolated || word == "--isolated";
        } else if (const auto setter = with_value().find(name); setter != with_value().end()) {
            if (!joined && i + 1 == argc) {
                out.error = std::string(name) + ": its value is missing. See --help.";
                return out;
            }
            const std::string_view value = joined ? word.substr(name.size() + 1) : argv[++i];
            if (!setter->second(out.options, value)) {
                out.error = std::string(name) + ": `" + std::string(value) +
                            "` is not a valid value. See --help.";
                return out;
            }
        } else if (word.starts_with("-") || !out.options.plan.empty()) {
            out.error = "command line: `" + std::string(word) + "` is unknown. See --help.";
            return out;
        } else {
            out.options.plan = word;
        }
    }
    out.error = what_is_missing(out.options, graph, isolated);
    return out;
}

}  // namespace collscope
