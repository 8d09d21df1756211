// Native tests of the sample statistics.
#include <vector>

#include "check.h"
#include "statistics.h"

namespace {

using collscope::summarise;
using collscope::Summary;

bool is(const Summary& s, double median, double min, double max, double mad) {
    return s.median == median && s.min == min && s.max == max && s.mad == mad;
}

}  // namespace

int main() {
    CHECK(is(summarise({}), 0, 0, 0, 0));
    CHECK(is(summarise({3}), 3, 3, 3, 0));
    CHECK(is(summarise({4, 1}), 2.5, 1, 4, 1.5));
    // Deviations from 3: 2 1 0 1 97, in order 0 1 1 2 97.
    CHECK(is(summarise({5, 2, 3, 4, 100}), 4, 2, 100, 1));
    // Deviations from 2: 1 1 0 0 2 4 7, in order 0 0 1 1 2 4 7.
    CHECK(is(summarise({1, 1, 2, 2, 4, 6, 9}), 2, 1, 9, 1));
    return check::result();
}
