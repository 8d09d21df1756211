// How long a launch takes: warm-up, an estimate, then samples within the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "launch.h"
#include "session.h"

namespace collscope {

struct Measurement {
    std::vector<double> samples_us;  // of one call, on the slowest rank
    std::uint64_t iterations = 0;
    int slowest_rank = 0;  // of the plan: the one with the largest mean
};

// How often a batch repeats the call, and how many batches there are.
struct Schedule {
    int calls = 1;
    int samples = 1;
};

// For a call of `us` microseconds. A batch lasts 5 ms and has 20 calls, if the budget allows.
Schedule schedule_for(double us, double budget_s, Timing timing);

// What Options say of how a call is timed: batch, graph, isolated.
const char* method_name(Timing timing);

// Collective over all processes, also those without a call in the launch.
Status measure(Session& session, const Launch& launch, Measurement& out);

}  // namespace collscope
