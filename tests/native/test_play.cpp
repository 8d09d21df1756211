// Native tests of the causal graph's player: a kernel beside a collective, and what does not fit.
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "play.h"

namespace {

using Numbers = std::vector<std::int64_t>;
using Times = std::vector<double>;

constexpr std::int64_t origin = 1;

// Node 2 starts the kernel of row 0, of 100 ns and half as fast beside a collective. Node 3 starts
// a collective at 50, which node 4 ends at 110; node 5 follows the kernel's end by 7.
struct Sample {
    Numbers first{0, 0, 2, 2, 3, 3, 3, 4};
    Numbers target{2, 3, 4, 5};
    Numbers causes{0, 0, 1, 1, 1, 1};
    Numbers trace{0, 0, 0, 0, 0, 0, 0};
    Numbers kernel{-1, -1, 0, -1, -1, -1};
    Numbers change{0, 0, 0, 1, -1, 0};
    Times gap{0, 50, 60, 7};
    Times work{100};
    Times pace{2};

    Times play() const {
        return play::play({first, target, causes, trace, kernel, change}, gap, work, pace, origin);
    }
};

// 50 of 100 ns are left at 50; 30 of these are done by 110, and 20 by 130.
void test_beside() { CHECK((Sample{}.play() == Times{0, 0, 0, 50, 110, 137, 130})); }

void test_another_gpu() {
    Sample apart;
    apart.trace = {0, 0, 0, 1, 1, 0, 0};
    CHECK(apart.play().back() == 100);
}

template <typename Change>
bool refused(Change change) {
    Sample sample;
    change(sample);
    try {
        sample.play();
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

void test_what_does_not_fit() {
    CHECK(!refused([](Sample&) {}));
    CHECK(refused([](Sample& s) { s.first.back() = 5; }));
    CHECK(refused([](Sample& s) { s.first[1] = 3; }));
    CHECK(refused([](Sample& s) { s.target[0] = 6; }));
    CHECK(refused([](Sample& s) { s.kernel[2] = 1; }));
    CHECK(refused([](Sample& s) { s.kernel[5] = 0; }));     // the row starts twice
    CHECK(refused([](Sample& s) { s.trace.back() = 1; }));  // and ends on another GPU
    CHECK(refused([](Sample& s) { s.causes[2] = -1; }));
    CHECK(refused([](Sample& s) { s.change[3] = std::numeric_limits<std::int64_t>::max(); }));
    CHECK(refused([](Sample& s) { s.trace[0] = -1; }));
    CHECK(refused([](Sample& s) { s.gap.pop_back(); }));
    CHECK(refused([](Sample& s) { s.pace.clear(); }));
    CHECK(refused([](Sample& s) { s.change.clear(); }));
}

}  // namespace

int main() {
    test_beside();
    test_another_gpu();
    test_what_does_not_fit();
    return check::result();
}
