// What the samples of a class say.
#pragma once

#include <vector>

namespace collscope {

struct Summary {
    double median = 0;
    double min = 0;
    double max = 0;
    double mad = 0;  // median absolute deviation from the median
};

// All zero without samples.
Summary summarise(std::vector<double> samples);

}  // namespace collscope
