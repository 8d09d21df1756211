// The steps of mode sequence, each with its launch once, however often it occurs.
#pragma once

#include <cstddef>
#include <vector>

#include "launch.h"

namespace collscope {

// A step that occurs once or often.
struct Distinct {
    std::vector<Step::Item> items;
    Launch launch;
    bool runs = true;  // false once it is known that it cannot
};

// The plan's steps in order, as indices into `distinct`, which it fills.
std::vector<std::size_t> distinct_steps(const Plan& plan, int first_rank, const LocalRanks& ranks,
                                        std::vector<Distinct>& distinct);

}  // namespace collscope
