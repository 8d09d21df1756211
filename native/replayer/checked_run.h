// Runs a launch on known numbers and counts what came out wrong, over all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch.h"
#include "session.h"

namespace collscope {

struct CheckResult {
    std::vector<unsigned long long> wrong;  // by item of the launch
    bool sampled = false;
    std::string first_wrong;  // where and what; empty when all is right
};

// Fills the buffers, runs the launch once, and checks when `check` is set. Collective.
Status run_checked(Session& session, const Launch& launch, std::size_t items, bool check,
                   CheckResult& out);

}  // namespace collscope
