// Ends a run that makes no progress, instead of waiting for ever.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "clock.h"

namespace collscope {

inline constexpr int exit_replay = 6;

class Watchdog {
public:
    // `where`: the rank and its host, for the message. The writer ends the run a little before the
    // other processes would, so that its last row is on disk by then.
    Watchdog(double timeout_s, bool writer, std::string where);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // Called on expiry before MPI_Abort, on the watchdog's thread; must not wait for the others.
    void on_expiry(std::function<void(const std::string& message)> last_words);

    // From now on `what` has `timeout_s` to finish.
    void start(std::string what);
    void stop();
    // Gives another `timeout_s`; cheap.
    void progress() { touched_.store(now_s(), std::memory_order_relaxed); }
    // What is being waited for; a literal, because the other thread reads it.
    void waiting_for(const char* phase) { phase_.store(phase, std::memory_order_relaxed); }

private:
    static double now_s() { return steady_us() / 1e6; }
    void watch();
    [[noreturn]] void expire();

    double timeout_s_;
    bool writer_;
    std::string where_;
    std::function<void(const std::string&)> last_words_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool running_ = false;
    bool ending_ = false;
    std::string what_;
    std::atomic<double> touched_{0};
    std::atomic<const char*> phase_{""};
    std::thread thread_;
};

}  // namespace collscope
