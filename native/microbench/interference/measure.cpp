#include "interference/measure.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "clock.h"

namespace collscope {

namespace {

constexpr double batch_us = 7500;  // of work, or of calls, in one measurement
constexpr double cover = 1.4;      // of what is expected to be enough
constexpr double more = 1.5;       // after what was not enough
constexpr int most_tries = 4;      // of a measurement until it is covered
constexpr int most_calls = 20000;
constexpr int most_units = 20000;
constexpr int trial_calls = 4;
constexpr int warm_ups = 3;
constexpr int least_rounds = 5;
constexpr int most_rounds = 101;

int at_most(double wanted, int most) {
    return static_cast<int>(std::clamp(std::ceil(wanted), 1.0, static_cast<double>(most)));
}

// What one measurement found on this rank.
struct Timed {
    double us = 0;        // of the work, or of one call
    double other_us = 0;  // one call beside the work; one unit beside the calls
    bool covered = true;
};

class Turns {
public:
    Turns(Session& session, const Launch& launch, Compute& compute)
        : session_(session),
          lane_(launch.lanes.front()),
          compute_(compute),
          member_(!lane_.calls.empty()) {}

    Status run(Disturbance& out);

private:
    Status together(const std::function<Status()>& work);
    Status enqueue_calls(int calls);
    Status compute_alone(double& us);
    Status comm_alone(int calls, double& us);
    Status compute_with(Timed& out);
    Status comm_with(Timed& out);
    Status until_covered(Status (Turns::*measure)(Timed&), int& beside, int most, Timed& out);
    Status compute_covered(Timed& out);
    Status comm_covered(Timed& out);
    Status warm_up();
    Status choose_lengths();
    Status round(Disturbance& out);

    Session& session_;
    const Launch::Lane& lane_;
    Compute& compute_;
    bool member_;
    int units_ = 1;         // of the measured work
    int calls_alone_ = 1;   // that are measured
    int calls_ = 1;         // that are measured beside work
    int calls_beside_ = 1;  // that cover the work
    int units_beside_ = 1;  // that cover the calls
};

// All ranks start after a barrier, and all of them have succeeded or none has.
Status Turns::together(const std::function<Status()>& work) {
    session_.watchdog.progress();
    session_.control.barrier();
    return session_.control.agree(placed(session_, 0, work()));
}

Status Turns::enqueue_calls(int calls) {
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) {
        status = enqueue(session_.backend, lane_);
    }
    return status;
}

Status Turns::compute_alone(double& us) {
    return together([&] {
        Status status = compute_.start(units_, false);
        status = status.ok() ? compute_.finish() : status;
        return status.ok() ? compute_.between_us(Mark::WorkBegin, Mark::WorkEnd, us) : status;
    });
}

Status Turns::comm_alone(int calls, double& us) {
    return together([&] {
        Status status = compute_.mark_calls(Mark::CallsBegin);
        status = status.ok() ? enqueue_calls(calls) : status;
        status = status.ok() ? compute_.mark_calls(Mark::CallsEnd) : status;
        status = status.ok() ? session_.backend.synchronise(0) : status;
        status = status.ok() ? compute_.between_us(Mark::CallsBegin, Mark::CallsEnd, us) : status;
        us /= calls;
        return status;
    });
}

// The work begins when the first call is done and must end before the last one is.
Status Turns::compute_with(Timed& out) {
    return together([&] {
        Status status = compute_.mark_calls(Mark::CallsBegin);
        status = status.ok() ? enqueue_calls(1) : status;
        status = status.ok() ? compute_.mark_calls(Mark::FirstCall) : status;
        status = status.ok() ? compute_.start(units_, true) : status;
        status = status.ok() ? enqueue_calls(calls_beside_ - 1) : status;
        status = status.ok() ? compute_.mark_calls(Mark::CallsEnd) : status;
        status = status.ok() ? session_.backend.synchronise(0) : status;
        status = status.ok() ? compute_.finish() : status;
        double begun = 0;
        double ended = 0;
        double last = 0;
        status =
            status.ok() ? compute_.between_us(Mark::CallsBegin, Mark::WorkBegin, begun) : status;
        status = status.ok() ? compute_.between_us(Mark::CallsBegin, Mark::WorkEnd, ended) : status;
        status = status.ok() ? compute_.between_us(Mark::CallsBegin, Mark::CallsEnd, last) : status;
        out = {ended - begun, last / calls_beside_, !member_ || last >= ended};
        return status;
    });
}

// The calls begin when the first unit of the work is done and must end before the last one is.
Status Turns::comm_with(Timed& out) {
    return together([&] {
        Status status = compute_.start(units_beside_, false);
        status = status.ok() ? compute_.calls_after_first_unit() : status;
        status = status.ok() ? compute_.mark_calls(Mark::CallsBegin) : status;
        status = status.ok() ? enqueue_calls(calls_) : status;
        status = status.ok() ? compute_.mark_calls(Mark::CallsEnd) : status;
        status = status.ok() ? session_.backend.synchronise(0) : status;
        status = status.ok() ? compute_.finish() : status;
        double begun = 0;
        double ended = 0;
        double last = 0;
        status =
            status.ok() ? compute_.between_us(Mark::WorkBegin, Mark::CallsBegin, begun) : status;
        status = status.ok() ? compute_.between_us(Mark::WorkBegin, Mark::CallsEnd, ended) : status;
        status = status.ok() ? compute_.between_us(Mark::WorkBegin, Mark::WorkEnd, last) : status;
        out = {(ended - begun) / calls_, last / units_beside_, !member_ || last >= ended};
        return status;
    });
}

// Repeats with more of `beside` until every rank was covered; the number stays for the next round.
Status Turns::until_covered(Status (Turns::*measure)(Timed&), int& beside, int most, Timed& out) {
    for (int i = 0;; ++i) {
        const Status status = (this->*measure)(out);
        if (!status.ok() || !session_.control.any(!out.covered)) {
            return status;
        }
        out.covered = false;
        if (i + 1 == most_tries) {
            return {};
        }
        beside = at_most(beside * more + 1, most);
    }
}

Status Turns::compute_covered(Timed& out) {
    return until_covered(&Turns::compute_with, calls_beside_, most_calls, out);
}

Status Turns::comm_covered(Timed& out) {
    return until_covered(&Turns::comm_with, units_beside_, most_units, out);
}

// First calls pay for connections, and clocks are low.
Status Turns::warm_up() {
    Status status;
    double us = 0;
    for (int i = 0; i < warm_ups && status.ok(); ++i) {
        status = compute_alone(us);
        status = status.ok() ? comm_alone(1, us) : status;
    }
    return status;
}

// Chooses the work and the calls of a measurement: as the slowest rank needs them, the same for
// all.
Status Turns::choose_lengths() {
    const Control& control = session_.control;
    Status status = warm_up();
    double unit = 1;
    double call = 1;
    for (int i = 0; i < 2 && status.ok(); ++i) {  // a rough estimate, then one of a whole batch
        status = compute_alone(unit);
        status = control.slowest(status, unit);
        unit = std::max(unit / units_, 0.1);
        units_ = at_most(batch_us / unit, most_units);
    }
    for (int i = 0; i < 2 && status.ok(); ++i) {
        status = comm_alone(calls_, call);
        status = control.slowest(status, call);
        call = std::max(call, 0.1);
        calls_ = at_most(batch_us / call, most_calls);
    }
    calls_alone_ = calls_;
    // Beside work a call may take a hundred times as long, so a few of them are enough for an
    // estimate.
    calls_ = std::min(calls_, trial_calls);
    units_beside_ = at_most(1 + cover * call * calls_ / unit, most_units);
    Timed trial;
    status = status.ok() ? comm_covered(trial) : status;
    status = control.slowest(status, trial.us);
    status = control.slowest(status, trial.other_us);
    call = std::max(trial.us, 0.1);
    calls_ = std::min(calls_alone_, at_most(batch_us / call, most_calls));
    calls_beside_ = at_most(1 + cover * unit * units_ / call, most_calls);
    units_beside_ = at_most(1 + cover * call * calls_ / std::max(trial.other_us, 0.1), most_units);
    // Makes longer what is still too short.
    status = status.ok() ? compute_covered(trial) : status;
    return status.ok() ? comm_covered(trial) : status;
}

Status Turns::round(Disturbance& out) {
    Timed compute;
    Timed comm;
    double compute_us = 0;
    double comm_us = 0;
    Status status = compute_covered(compute);
    status = status.ok() ? comm_covered(comm) : status;
    status = status.ok() ? compute_alone(compute_us) : status;
    status = status.ok() ? comm_alone(calls_alone_, comm_us) : status;
    if (!status.ok()) {
        return status;
    }
    ++out.taken;
    // A round that was not covered is not used; the baseline after it takes the place of the last.
    if (compute.covered && comm.covered) {
        out.compute_with_us.push_back(compute.us);
        out.comm_with_us.push_back(comm.us);
    } else {
        out.compute_alone_us.pop_back();
        out.comm_alone_us.pop_back();
    }
    out.compute_alone_us.push_back(compute_us);
    out.comm_alone_us.push_back(comm_us);
    return {};
}

Status Turns::run(Disturbance& out) {
    session_.watchdog.waiting_for("choosing how much to measure");
    Status status = choose_lengths();
    session_.watchdog.waiting_for("waiting for work and calls beside each other");
    double compute_us = 0;
    double comm_us = 0;
    status = status.ok() ? compute_alone(compute_us) : status;
    status = status.ok() ? comm_alone(calls_alone_, comm_us) : status;
    out.compute_alone_us.push_back(compute_us);
    out.comm_alone_us.push_back(comm_us);
    const double end = steady_us() + 1e6 * session_.options.budget_s;
    while (status.ok() && out.taken < most_rounds) {
        status = round(out);
        // All processes must decide alike.
        if (status.ok() && out.taken >= least_rounds && !session_.control.any(steady_us() < end)) {
            break;
        }
    }
    return status;
}

}  // namespace

Status disturb(Session& session, const Launch& launch, Compute& compute, Disturbance& out) {
    return Turns(session, launch, compute).run(out);
}

}  // namespace collscope
