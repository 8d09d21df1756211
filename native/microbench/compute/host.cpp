#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "compute/compute.h"

namespace collscope {

namespace {

constexpr std::size_t order = 64;  // of the matrices: three of them are within the first cache
constexpr int products = 4;        // of a unit

using Clock = std::chrono::steady_clock;

// The calls of the host's backend are done when they return, so all marks are times of the clock.
class HostCompute final : public Compute {
public:
    HostCompute()
        : a_(order * order, 1.25F),
          b_(order * order, 0.75F),
          c_(order * order, 0.0F),
          thread_([this] { work(); }) {}

    ~HostCompute() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    std::string kind() const override { return "host-thread"; }
    std::string description() const override {
        const std::string n = std::to_string(order);
        return "float32 " + n + "x" + n + "x" + n + ", " + std::to_string(products) +
               " products, one thread";
    }
    std::optional<int> multiprocessors() const override { return std::nullopt; }

    Status mark_calls(Mark mark) override {
        const std::lock_guard lock(mutex_);
        set(mark);
        return {};
    }
    Status start(int units, bool) override {
        {
            const std::lock_guard lock(mutex_);
            units_ = units;
            first_done_ = false;
        }
        changed_.notify_all();
        return {};
    }
    Status calls_after_first_unit() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return first_done_; });
        return {};
    }
    Status finish() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return units_ == 0; });
        return {};
    }
    Status between_us(Mark from, Mark to, double& out) override {
        const std::lock_guard lock(mutex_);
        out = std::chrono::duration<double, std::micro>(at(to) - at(from)).count();
        return {};
    }
    void leave() override {}

private:
    Clock::time_point& at(Mark mark) { return marks_[static_cast<std::size_t>(mark)]; }
    void set(Mark mark) { at(mark) = Clock::now(); }
    void work();
    void unit();

    std::vector<float> a_, b_, c_;
    std::array<Clock::time_point, n_marks> marks_{};
    std::mutex mutex_;
    std::condition_variable changed_;
    int units_ = 0;  // still to do; 0: idle
    bool first_done_ = false;
    bool ending_ = false;
    std::thread thread_;
};

void HostCompute::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || units_ > 0; });
        if (ending_) {
            return;
        }
        const int units = units_;
        set(Mark::WorkBegin);
        for (int i = 0; i < units; ++i) {
            lock.unlock();
            unit();
            lock.lock();
            if (i == 0) {
                set(Mark::FirstUnit);
                first_done_ = true;
                changed_.notify_all();
            }
        }
        set(Mark::WorkEnd);
        units_ = 0;
        changed_.notify_all();
    }
}

void HostCompute::unit() {
    for (int product = 0; product < products; ++product) {
        for (std::size_t i = 0; i < order; ++i) {
            for (std::size_t k = 0; k < order; ++k) {
                const float factor = a_[i * order + k];
                for (std::size_t j = 0; j < order; ++j) {
                    c_[i * order + j] += factor * b_[k * order + j];
                }
            }
        }
        // Read by the next product, so that the compiler keeps this one.
        a_[static_cast<std::size_t>(product)] = c_[0] * 1e-30F;
    }
    c_.assign(c_.size(), 0.0F);
}

}  // namespace

std::unique_ptr<Compute> make_host_compute() { return std::make_unique<HostCompute>(); }

}  // namespace collscope
