// The local ranks of a process and the threads that drive them.
//
// A lane is a thread with its ranks: either one lane for all, which is the caller's thread, or a
// lane for each. Lane 0 is the caller's thread, so that it alone may use MPI.
#pragma once

#include <barrier>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend.h"

namespace collscope {

class LocalRanks {
public:
    LocalRanks(int local_ranks, bool one_thread);
    ~LocalRanks();
    LocalRanks(const LocalRanks&) = delete;
    LocalRanks& operator=(const LocalRanks&) = delete;

    int lanes() const { return lanes_; }
    // The local ranks of a lane: first, and one past the last.
    int first(int lane) const { return lanes_ == 1 ? 0 : lane; }
    int last(int lane) const { return lanes_ == 1 ? local_ranks_ : lane + 1; }

    // Runs `work(lane)` on every lane; the error of the first lane that has one. Work must not
    // throw.
    Status run(const std::function<Status(int lane)>& work);

    // For work that starts together: lane 0 runs `gate` while the others, awake already, wait for
    // it.
    template <typename Gate>
    void start_together(int lane, Gate gate) {
        if (lanes_ > 1) {
            together_.arrive_and_wait();
        }
        if (lane == 0) {
            gate();
        }
        if (lanes_ > 1) {
            together_.arrive_and_wait();
        }
    }

private:
    void worker(int lane);

    int local_ranks_;
    int lanes_;
    std::barrier<> together_;
    std::mutex mutex_;
    std::condition_variable changed_;
    const std::function<Status(int)>* work_ = nullptr;
    std::uint64_t round_ = 0;  // rises with each run
    int busy_ = 0;             // workers that have not finished the round
    bool ending_ = false;
    std::vector<Status> results_;
    std::vector<std::thread> threads_;
};

}  // namespace collscope
