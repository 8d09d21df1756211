#include "statistics.h"

#include <algorithm>
#include <cmath>

namespace collscope {

namespace {

double middle(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Summary summarise(std::vector<double> samples) {
    if (samples.empty()) {
        return {};
    }
    Summary out;
    out.median = middle(samples);
    out.min = samples.front();
    out.max = samples.back();
    for (double& sample : samples) {
        sample = std::abs(sample - out.median);
    }
    out.mad = middle(samples);
    return out;
}

}  // namespace collscope
