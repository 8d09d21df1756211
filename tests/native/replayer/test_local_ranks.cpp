// Native tests of the threads that drive local ranks.
#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "check.h"
#include "local_ranks.h"

namespace {

using collscope::LocalRanks;
using collscope::Status;

void one_lane_is_the_callers_thread() {
    LocalRanks ranks(4, true);
    CHECK(ranks.lanes() == 1 && ranks.first(0) == 0 && ranks.last(0) == 4);
    std::thread::id seen;
    CHECK(ranks
              .run([&](int) {
                  seen = std::this_thread::get_id();
                  return Status{};
              })
              .ok());
    CHECK(seen == std::this_thread::get_id());
}

void every_lane_runs_each_time() {
    LocalRanks ranks(4, false);
    CHECK(ranks.lanes() == 4 && ranks.first(2) == 2 && ranks.last(2) == 3);
    std::atomic<int> sum{0};
    std::thread::id of_lane_0;
    for (int round = 0; round < 200; ++round) {
        CHECK(ranks
                  .run([&](int lane) {
                      if (lane == 0) {
                          of_lane_0 = std::this_thread::get_id();
                      }
                      sum += 1 << lane;
                      return Status{};
                  })
                  .ok());
    }
    CHECK(sum == 200 * (1 + 2 + 4 + 8));
    CHECK(of_lane_0 == std::this_thread::get_id());
}

void none_starts_before_the_gate() {
    LocalRanks ranks(3, false);
    for (int round = 0; round < 100; ++round) {
        std::atomic<bool> open{false};
        std::atomic<int> early{0};
        ranks.run([&](int lane) {
            ranks.start_together(lane, [&] { open = true; });
            early += open ? 0 : 1;
            return Status{};
        });
        CHECK(early == 0);
    }
}

void gives_the_first_lanes_error() {
    LocalRanks ranks(4, false);
    const auto work = [](int lane) {
        return lane < 2 ? Status{} : Status{"lane " + std::to_string(lane)};
    };
    CHECK(ranks.run(work).error == "lane 2");
    CHECK(ranks.run([](int) { return Status{}; }).ok());
}

}  // namespace

int main() {
    one_lane_is_the_callers_thread();
    every_lane_runs_each_time();
    none_starts_before_the_gate();
    gives_the_first_lanes_error();
    return check::result();
}
