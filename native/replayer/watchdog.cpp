#include "watchdog.h"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace collscope {

namespace {

constexpr auto writers_lead = std::chrono::seconds(2);
constexpr auto time_for_messages = std::chrono::milliseconds(300);
constexpr unsigned last_resort_s = 10;

std::string seconds(double s) {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", s);
    return text;
}

}  // namespace

Watchdog::Watchdog(double timeout_s, bool writer, std::string where)
    : timeout_s_(timeout_s),
      writer_(writer),
      where_(std::move(where)),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Watchdog::on_expiry(std::function<void(const std::string&)> last_words) {
    const std::lock_guard lock(mutex_);
    last_words_ = std::move(last_words);
}

void Watchdog::start(std::string what) {
    progress();
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    running_ = true;
    changed_.notify_all();
}

void Watchdog::stop() {
    const std::lock_guard lock(mutex_);
    running_ = false;
}

void Watchdog::watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
        if (!running_) {
            changed_.wait(lock);
            continue;
        }
        const double left = touched_.load(std::memory_order_relaxed) + timeout_s_ - now_s();
        if (left <= 0) {
            expire();
        }
        changed_.wait_for(lock, std::chrono::duration<double>(left));
    }
}

// Every process reports what it waits for: look at the process that differs.
void Watchdog::expire() {
    const std::string message = what_ + ": no result on " + where_ + " within " +
                                seconds(timeout_s_) + ", while " + phase_.load() +
                                ". Raise --timeout if it may take so long.";
    std::fprintf(stderr, "%s\n", message.c_str());
    std::fflush(stderr);
    if (!writer_) {
        std::this_thread::sleep_for(writers_lead);
    }
    // Aborting may itself wait for what is stuck; the signal then ends the process.
    alarm(last_resort_s);
    if (last_words_) {
        last_words_(message);
    }
    std::this_thread::sleep_for(time_for_messages);
    MPI_Abort(MPI_COMM_WORLD, exit_replay);
    _exit(exit_replay);
}

}  // namespace collscope
