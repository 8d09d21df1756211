#include "memcpy/arguments.h"

#include <functional>
#include <string_view>
#include <unordered_map>

#include "gpu/vendors.h"
#include "option_values.h"

namespace collscope {

namespace {

const std::string usage_text =
    R"(collscope-microbench memcpy --csv OUT.csv --sizes BYTES,... [options]

  --csv FILE         where results go, a line for each row as it is measured
  --sizes LIST       bytes of one copy, parted by commas
  --backend B        auto (default), )" +
    gpu::vendor_names() +
    R"(, host (memcpy and MPI)
  --runtime PATH     libcudart or libamdhip64
  --pairs LIST       devices, as in 0:1,1:0 (default: every ordered pair)
  --only LIST        of peer, within, host, ipc (default: all)
  --budget SECONDS   time spent on a row (default 0.1)
  --timeout SECONDS  a row without progress for so long ends the run (default 60)
  --rounds N         measures everything N times (default 1)
  --label L          copied to the column of that name
  --help

Two processes measure what passes between processes too.
Exit codes: 0 ok, 2 usage, 3 CSV unusable, 5 library or GPU missing, 6 a row failed for another
reason than its size.
)";

// Calls `take` with each part between commas until it refuses one.
bool for_each_part(std::string_view text, const std::function<bool(std::string_view)>& take) {
    while (true) {
        const std::size_t comma = text.find(',');
        if (!take(text.substr(0, comma))) {
            return false;
        }
        if (comma == std::string_view::npos) {
            return true;
        }
        text.remove_prefix(comma + 1);
    }
}

bool to_sizes(CopyOptions& o, std::string_view text) {
    o.sizes.clear();
    return for_each_part(text, [&o](std::string_view part) {
        o.sizes.push_back(0);
        return to_whole(part, 1, std::uint64_t{1} << 48, o.sizes.back());
    });
}

bool to_pairs(CopyOptions& o, std::string_view text) {
    o.pairs.clear();
    return for_each_part(text, [&o](std::string_view part) {
        const std::size_t colon = part.find(':');
        std::uint64_t from = 0;
        std::uint64_t to = 0;
        if (colon == std::string_view::npos || !to_whole(part.substr(0, colon), 0, 1023, from) ||
            !to_whole(part.substr(colon + 1), 0, 1023, to)) {
            return false;
        }
        o.pairs.emplace_back(static_cast<int>(from), static_cast<int>(to));
        return from != to;
    });
}

bool to_groups(CopyOptions& o, std::string_view text) {
    o.groups = {false, false, false, false};
    return for_each_part(text, [&o](std::string_view part) {
        bool* group = part == "peer"     ? &o.groups.peer
                      : part == "within" ? &o.groups.within
                      : part == "host"   ? &o.groups.host
                      : part == "ipc"    ? &o.groups.ipc
                                         : nullptr;
        if (group != nullptr) {
            *group = true;
        }
        return group != nullptr;
    });
}

const std::unordered_map<std::string_view, Setter<CopyOptions>>& with_value() {
    static const std::unordered_map<std::string_view, Setter<CopyOptions>> setters = {
        {"--csv", text_of(&CopyOptions::csv)},
        {"--runtime", text_of(&CopyOptions::runtime)},
        {"--label", text_of(&CopyOptions::label)},
        {"--sizes", to_sizes},
        {"--pairs", to_pairs},
        {"--only", to_groups},
        {"--backend",
         [](CopyOptions& o, std::string_view v) {
             o.backend = v;
             return gpu::is_backend(v);
         }},
        {"--budget",
         [](CopyOptions& o, std::string_view v) { return to_double(v, 1e-6, o.budget_s); }},
        {"--timeout",
         [](CopyOptions& o, std::string_view v) { return to_double(v, 0.1, o.timeout_s); }},
        {"--rounds",
         [](CopyOptions& o, std::string_view v) { return to_whole(v, 1, 1000, o.rounds); }},
    };
    return setters;
}

}  // namespace

const char* copy_usage() { return usage_text.c_str(); }

ParsedCopyOptions parse_copy_options(int argc, const char* const* argv) {
    ParsedCopyOptions out;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--help") {
            out.options.help = true;
            return out;
        }
        const auto setter = with_value().find(name);
        if (setter == with_value().end()) {
            out.error = "command line: `" + std::string(name) + "` is unknown. See --help.";
            return out;
        }
        if (i + 1 == argc) {
            out.error = std::string(name) + ": its value is missing. See --help.";
            return out;
        }
        const std::string_view value = argv[++i];
        if (!setter->second(out.options, value)) {
            out.error = std::string(name) + ": `" + std::string(value) +
                        "` is not a valid value. See --help.";
            return out;
        }
    }
    if (out.options.csv.empty() || out.options.sizes.empty()) {
        out.error = "command line: --csv or --sizes is missing. See --help.";
    }
    return out;
}

}  // namespace collscope
