#include "metadata.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

extern char** environ;

namespace collscope {

namespace {

std::string joined(std::vector<std::string> values, const char* between) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::string out;
    for (const std::string& value : values) {
        out += (out.empty() ? "" : between) + value;
    }
    return out;
}

const char* method(const Options& options, bool sequence) {
    if (sequence) {
        return "Sequence: all steps between two events on each rank, the slowest rank of each "
               "pass; "
               "classes: one more pass with events around each step, a group's time shared by "
               "size.";
    }
    switch (options.timing) {
        case Timing::Graph:
            return "After warm-up and a barrier, one launch of a graph of k calls between two "
                   "events "
                   "on each rank, divided by k; a sample is the slowest rank.";
        case Timing::Isolated:
            return "After warm-up, each call alone: barrier, host clock, call, stream synchronise; "
                   "a sample is the slowest rank.";
        default:
            return "After warm-up and a barrier, k calls back to back between two events on each "
                   "rank, divided by k; a sample is the slowest rank.";
    }
}

}  // namespace

std::string environment() {
    constexpr std::array<std::string_view, 7> prefixes = {"NCCL_", "RCCL_", "HSA_", "FI_",
                                                          "HIP_",  "ROCR_", "CUDA_"};
    std::vector<std::string> set;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (std::any_of(prefixes.begin(), prefixes.end(),
                        [text](std::string_view prefix) { return text.starts_with(prefix); })) {
            set.emplace_back(text);
        }
    }
    return joined(std::move(set), " ");
}

Metadata metadata_of(const Session& session) {
    const Backend& backend = session.backend;
    const std::string path = backend.library_path();
    std::vector<std::string> hosts = session.control.hosts();
    return {{"plan", session.plan.digest},
            {"classes", std::to_string(session.plan.classes.size())},
            {"label", session.options.label},
            {"round", session.options.round},
            {"mode", session.plan.sequence ? "sequence" : "unique"},
            {"backend", backend.name()},
            {"library", backend.library() + (path.empty() ? "" : " " + path)},
            {"runtime", backend.runtime()},
            {"devices", joined(session.devices, "; ")},
            {"nranks", std::to_string(session.plan.nranks)},
            {"hosts", joined(std::move(hosts), " ")},
            {"method", method(session.options, session.plan.sequence)},
            {"environment", environment()}};
}

}  // namespace collscope
