#include "timing.h"

#include <algorithm>
#include <cmath>

#include "clock.h"

namespace collscope {

namespace {

constexpr int warm_up_calls = 3;
constexpr int most_estimates = 5;
constexpr int most_samples = 21;
constexpr int least_samples = 5;
constexpr int most_isolated = 101;
constexpr double batch_us = 5000;
constexpr int batch_calls = 20;
constexpr int most_batch_calls = 1000;
constexpr int most_graph_calls = 200;

class Timer {
public:
    Timer(Session& session, const Launch& launch)
        : session_(session),
          launch_(launch),
          own_us_(static_cast<std::size_t>(session.backend.local_ranks()), 0) {}

    Status run(Measurement& out);

private:
    using Lane = Launch::Lane;

    // Runs `lane_work` on all lanes after a common start; gives microseconds of the slowest rank,
    // divided by `calls`.
    template <typename LaneWork>
    Status together(int calls, LaneWork lane_work, double& us);
    Status batch(int calls, double& us);
    Status isolated(double& us);
    Status graph_batch(int calls, double& us);
    Status capture(int calls);
    Status sample(int calls, double& us);
    Status warm_up(double& us);

    template <typename Work>
    Status between_marks(const Lane& lane, Work work);
    Status take_times(const Lane& lane);

    Session& session_;
    const Launch& launch_;
    std::vector<double> own_us_;  // of the last run, by local rank
};

template <typename LaneWork>
Status Timer::together(int calls, LaneWork lane_work, double& us) {
    const Status mine = session_.ranks.run([&](int number) {
        session_.ranks.start_together(number, [&] { session_.control.barrier(); });
        return lane_work(launch_.lanes[static_cast<std::size_t>(number)]);
    });
    us = 0;
    for (double& own : own_us_) {
        own /= calls;
        us = std::max(us, own);
    }
    return session_.control.slowest(mine, us);
}

template <typename Work>
Status Timer::between_marks(const Lane& lane, Work work) {
    Backend& backend = session_.backend;
    for (const int local : lane.locals) {
        if (const Status status = backend.mark_start(local, 0); !status.ok()) {
            return placed(session_, local, status);
        }
    }
    Status status = work();
    for (const int local : lane.locals) {
        if (status.ok()) {
            status = backend.mark_stop(local, 0);
        }
    }
    if (!status.ok()) {
        return placed(session_, lane.locals.front(), status);
    }
    return take_times(lane);
}

Status Timer::take_times(const Lane& lane) {
    for (const int local : lane.locals) {
        double& us = own_us_[static_cast<std::size_t>(local)];
        if (const Status status = session_.backend.elapsed_us(local, 0, us); !status.ok()) {
            return placed(session_, local, status);
        }
    }
    return {};
}

Status Timer::batch(int calls, double& us) {
    const auto lane_work = [&](const Lane& lane) {
        return between_marks(lane, [&] {
            Status status;
            for (int i = 0; i < calls && status.ok(); ++i) {
                status = enqueue(session_.backend, lane);
            }
            return status;
        });
    };
    return together(calls, lane_work, us);
}

Status Timer::graph_batch(int calls, double& us) {
    const auto lane_work = [&](const Lane& lane) {
        return between_marks(lane, [&] {
            Status status;
            for (const int local : lane.locals) {
                status = status.ok() ? session_.backend.graph_launch(local) : status;
            }
            return status;
        });
    };
    return together(calls, lane_work, us);
}

Status Timer::isolated(double& us) {
    const auto lane_work = [&](const Lane& lane) {
        const double begin = steady_us();
        Status status = enqueue(session_.backend, lane);
        for (const int local : lane.locals) {
            status = status.ok() ? session_.backend.synchronise(local) : status;
            own_us_[static_cast<std::size_t>(local)] = steady_us() - begin;
        }
        return lane.locals.empty() ? status : placed(session_, lane.locals.front(), status);
    };
    return together(1, lane_work, us);
}

Status Timer::capture(int calls) {
    const Status mine = session_.ranks.run([&](int number) {
        const Lane& lane = launch_.lanes[static_cast<std::size_t>(number)];
        Status status;
        for (const int local : lane.locals) {
            status = status.ok() ? session_.backend.capture_begin(local) : status;
        }
        for (int i = 0; i < calls && status.ok(); ++i) {
            status = enqueue(session_.backend, lane);
        }
        for (const int local : lane.locals) {
            const Status ended = session_.backend.capture_end(local);
            status = status.ok() ? ended : status;
        }
        return lane.locals.empty() ? status : placed(session_, lane.locals.front(), status);
    });
    return session_.control.agree(mine);
}

Status Timer::sample(int calls, double& us) {
    switch (session_.options.timing) {
        case Timing::Graph:
            return graph_batch(calls, us);
        case Timing::Isolated:
            return isolated(us);
        default:
            return batch(calls, us);
    }
}

// First calls pay for connections, buffers and clocks: repeats until the time no longer falls.
Status Timer::warm_up(double& us) {
    Status status;
    const double end = steady_us() + session_.options.budget_s * 1e6 / 4;
    for (int i = 0; i < warm_up_calls && status.ok(); ++i) {
        status = batch(1, us);
    }
    bool more = us < session_.options.budget_s * 1e6 / 8;
    for (int i = 0; i < most_estimates && status.ok() && more; ++i) {
        const double before = us;
        const double calls = std::clamp(batch_us / 2 / std::max(us, 0.1), 1.0, double{batch_calls});
        status = batch(static_cast<int>(calls), us);
        // All processes must decide alike, so one with a slower clock may not end alone.
        more = session_.control.any(steady_us() < end) && us < 0.9 * before;
    }
    return status;
}

Status Timer::run(Measurement& out) {
    session_.watchdog.waiting_for("waiting for the warm-up calls");
    double us = 0;
    Status status = warm_up(us);
    const Options& options = session_.options;
    const Schedule schedule = schedule_for(us, options.budget_s, options.timing);
    if (status.ok() && options.timing == Timing::Graph) {
        session_.watchdog.waiting_for("capturing the graph");
        status = capture(schedule.calls);
        if (status.ok()) {
            status = graph_batch(schedule.calls, us);  // the first launch uploads the graph
        }
    }
    session_.watchdog.waiting_for("waiting for the timed calls");
    std::vector<double> sums(own_us_.size(), 0);
    for (int i = 0; i < schedule.samples && status.ok(); ++i) {
        session_.watchdog.progress();  // the budget may be larger than the timeout
        status = sample(schedule.calls, us);
        out.samples_us.push_back(us);
        for (std::size_t local = 0; local < sums.size(); ++local) {
            sums[local] += own_us_[local];
        }
    }
    if (!status.ok()) {
        out.samples_us.clear();
        return status;
    }
    out.iterations = static_cast<std::uint64_t>(schedule.calls) * out.samples_us.size();
    const auto worst = std::max_element(sums.begin(), sums.end());
    const int rank = session_.control.first_rank() + static_cast<int>(worst - sums.begin());
    out.slowest_rank = session_.control.slowest_rank({*worst, rank}).rank;
    return {};
}

}  // namespace

Schedule schedule_for(double us, double budget_s, Timing timing) {
    us = std::max(us, 0.1);
    const double affordable = std::max(budget_s * 1e6 / us, 1.0);  // calls within the budget
    if (timing == Timing::Isolated) {
        return {1, static_cast<int>(std::clamp(affordable, 1.0, double{most_isolated}))};
    }
    const double most = timing == Timing::Graph ? most_graph_calls : most_batch_calls;
    double calls = std::clamp(std::ceil(batch_us / us), double{batch_calls}, most);
    calls = std::clamp(std::floor(affordable / most_samples), 1.0, calls);
    const double least = std::min<double>(least_samples, std::floor(affordable));
    const double samples = std::clamp(std::floor(affordable / calls), least, double{most_samples});
    return {static_cast<int>(calls), static_cast<int>(samples)};
}

const char* method_name(Timing timing) {
    switch (timing) {
        case Timing::Graph:
            return "graph";
        case Timing::Isolated:
            return "isolated";
        default:
            return "batch";
    }
}

Status measure(Session& session, const Launch& launch, Measurement& out) {
    return Timer(session, launch).run(out);
}

}  // namespace collscope
