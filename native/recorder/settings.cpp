#include "settings.h"

#include <array>
#include <cstdlib>

namespace collscope::recorder {

namespace {

constexpr std::array<const char*, 5> names = {"off", "calls", "sampled", "all", "proxy"};
constexpr std::uint64_t megabyte = 1000 * 1000;
constexpr std::uint64_t default_megabytes = 1000;
constexpr std::uint64_t least_megabytes = 1;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// Releases in which kernel events do harm; ncclGetVersion gives major × 10000 + minor × 100 +
// patch.
std::string fault_of(int version) {
    switch (version) {
        case 22707:
            return "NCCL 2.27.7 writes out of bounds with kernel events (NVIDIA/nccl#2039)";
        case 23003:
            return "NCCL 2.30.3 may crash with kernel events (NVIDIA/nccl#2112)";
        case 23102:
            return "kernel events of NCCL 2.31.2 cost 4 to 13 % (NVIDIA/nccl#2355)";
        default:
            return times_need_all(version) ? "GPU times of NCCL 2.31 and later are of other calls "
                                             "once a call had no kernel events (NVIDIA/nccl#2369)"
                                           : "";
    }
}

}  // namespace

bool times_need_all(int version) { return version >= 23100; }

const char* name_of(Level level) { return names[static_cast<std::size_t>(level)]; }

Level level_of(const std::string& name, Level other) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (name == names[i]) {
            return static_cast<Level>(i);
        }
    }
    return other;
}

Settings settings_of(int version) {
    const std::string folder = variable("COLLSCOPE_RECORDER_DIR");
    const std::string asked = variable("COLLSCOPE_RECORDER_LEVEL");
    // The numbers are NVIDIA's; RCCL's release of the same number has the same code.
    const std::string fault = fault_of(version);
    const std::uint64_t megabytes =
        std::strtoull(variable("COLLSCOPE_RECORDER_MAX_MB").c_str(), nullptr, 10);
    return {
        folder.empty() ? std::string(".") : folder,
        level_of(asked, fault.empty() ? Level::sampled : Level::calls),
        asked.empty() ? fault : std::string(),
        (megabytes < least_megabytes ? default_megabytes : megabytes) * megabyte,
        variable("COLLSCOPE_RECORDER_CONTROL"),
    };
}

}  // namespace collscope::recorder
