#include "local_ranks.h"

namespace collscope {

LocalRanks::LocalRanks(int local_ranks, bool one_thread)
    : local_ranks_(local_ranks),
      lanes_(one_thread ? 1 : local_ranks),
      together_(lanes_),
      results_(static_cast<std::size_t>(lanes_)) {
    for (int lane = 1; lane < lanes_; ++lane) {
        threads_.emplace_back([this, lane] { worker(lane); });
    }
}

LocalRanks::~LocalRanks() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

Status LocalRanks::run(const std::function<Status(int lane)>& work) {
    if (lanes_ == 1) {
        return work(0);
    }
    {
        const std::lock_guard lock(mutex_);
        work_ = &work;
        busy_ = lanes_ - 1;
        ++round_;
    }
    changed_.notify_all();
    results_[0] = work(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return busy_ == 0; });
    for (const Status& result : results_) {
        if (!result.ok()) {
            return result;
        }
    }
    return {};
}

void LocalRanks::worker(int lane) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || round_ != seen; });
        if (ending_) {
            return;
        }
        seen = round_;
        const std::function<Status(int)>& work = *work_;
        lock.unlock();
        Status result = work(lane);
        lock.lock();
        results_[static_cast<std::size_t>(lane)] = std::move(result);
        if (--busy_ == 0) {
            changed_.notify_all();
        }
    }
}

}  // namespace collscope
