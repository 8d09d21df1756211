// Native tests of the causal graph's player: a kernel beside a collective, and what does not fit.
#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "play.h"

namespace {

using Numbers = std::vector<std::int64_t>;
using Times = std::vector<double>;

// Node 2 starts the kernel of row 0, of 100 ns and half as fast beside a collective. Node 3 starts
// a collective at 50, which node 4 ends at 110; node 5 follows the kernel's end by 7.
struct Sample {
    Numbers first{0, 0, 2, 2, 3, 3, 3, 4};
    Numbers target{2, 3, 4, 5};
    Numbers lasted{-1, -1, -1, -1};
    std::array<bool, 4> host{};
    Times gap{0, 50, 60, 7};
    Times unexplained{0, 0, 0, 0};
    Numbers trace{0, 0, 0, 0, 0, 0, 0};
    Numbers kernel{-1, -1, 0, -1, -1, -1};
    Numbers change{0, 0, 0, 1, -1, 0};
    Numbers part{-1, -1, -1, -1, 0, -1};
    Times work{0, 0, 0, 0};
    Times lasting{0};
    Times transfer{0};
    Times alone{100};
    Times pace{2};
    double left = 1;
    std::vector<char> masked;  // places behind the host alone

    Times play() const {
        play::Player player(
            {first, target, lasted, host, gap, unexplained, trace, kernel, change, part}, 1);
        std::array<bool, 4> mask{};
        for (std::size_t k = 0; k < masked.size(); ++k) {
            mask[k] = masked[k] != 0;
        }
        const auto behind = masked.empty() ? play::Flags{} : play::Flags(mask);
        return player.play({work, lasting, transfer, alone, pace, left, {}, behind});
    }
};

// 50 of 100 ns are left at 50; 30 of these are done by 110, and 20 by 130.
void test_beside() { CHECK((Sample{}.play() == Times{0, 0, 0, 50, 110, 137, 130})); }

void test_another_gpu() {
    Sample apart;
    apart.trace = {0, 0, 0, 1, 1, 0, 0};
    CHECK(apart.play().back() == 100);
}

void test_no_slower_beside() {
    Sample same;
    same.pace = {1};
    CHECK((same.play() == Times{0, 0, 0, 50, 110, 107, 100}));
}

// The collective's end is behind the host: 5 ns of work and 30 of transfer beside the gap of 60.
void test_host() {
    Sample hosts;
    hosts.host[2] = true;
    hosts.work = {0, 0, 5, 0};
    hosts.transfer = {30};
    CHECK(hosts.play()[4] == 145);
    hosts.unexplained = {0, 0, 20, 0};
    hosts.left = 0;
    CHECK(hosts.play()[4] == 125);
}

// What waited for something else alone never comes.
void test_behind_the_host_alone() {
    Sample alone;
    alone.masked = {0, 0, 1, 0};
    CHECK(alone.play()[4] == 0);
    alone.pace = {1};
    CHECK((alone.play() == Times{0, 0, 0, 50, 0, 107, 100}));
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
    CHECK(refused([](Sample& s) { s.target[2] = 3; }));  // it is its own cause
    CHECK(refused([](Sample& s) { s.target[3] = 2; }));  // a kernel waits for its own end
    CHECK(refused([](Sample& s) { s.kernel[2] = 1; }));
    CHECK(refused([](Sample& s) { s.kernel[5] = 0; }));     // the row starts twice
    CHECK(refused([](Sample& s) { s.trace.back() = 1; }));  // and ends on another GPU
    CHECK(refused([](Sample& s) { s.lasted[0] = 1; }));
    CHECK(refused([](Sample& s) { s.part[4] = 1; }));
    CHECK(refused([](Sample& s) { s.change[3] = std::numeric_limits<std::int64_t>::max(); }));
    CHECK(refused([](Sample& s) { s.trace[0] = -1; }));
    CHECK(refused([](Sample& s) { s.gap.pop_back(); }));
    CHECK(refused([](Sample& s) { s.pace.clear(); }));
    CHECK(refused([](Sample& s) { s.work.pop_back(); }));
    CHECK(refused([](Sample& s) { s.transfer.clear(); }));
    CHECK(refused([](Sample& s) { s.change.clear(); }));
}

}  // namespace

int main() {
    test_beside();
    test_another_gpu();
    test_no_slower_beside();
    test_host();
    test_behind_the_host_alone();
    test_what_does_not_fit();
    return check::result();
}
