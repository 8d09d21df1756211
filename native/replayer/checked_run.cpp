#include "checked_run.h"

#include "test_hooks.h"

namespace collscope {

namespace {

// Runs `work(call, part)` for each call of a lane until one fails.
template <typename Work>
Status each_call(Session& session, const Launch& launch, Work work) {
    return session.ranks.run([&](int number) {
        const Launch::Lane& lane = launch.lanes[static_cast<std::size_t>(number)];
        Status status;
        for (std::size_t i = 0; i < lane.calls.size() && status.ok(); ++i) {
            status = placed(session, lane.calls[i].local, work(lane.calls[i], lane.parts[i]));
        }
        return status;
    });
}

RankCall rank_call(const Call& call, const CallPart& part) {
    return {*call.cls, call.which, part.rank, part.nranks, call.buffers};
}

Status fill(Session& session, const Launch& launch) {
    session.watchdog.waiting_for("filling the buffers");
    return each_call(session, launch, [&](const Call& call, const CallPart& part) {
        Status status = fill_inputs(session.backend, call.local, rank_call(call, part),
                                    session.verify_options(call.local));
        return status.ok() ? session.backend.synchronise(call.local) : status;
    });
}

Status run_once(Session& session, const Launch& launch) {
    session.watchdog.waiting_for("waiting for the verified call");
    test_hooks::before_call(session, launch);
    return session.ranks.run([&](int number) {
        const Launch::Lane& lane = launch.lanes[static_cast<std::size_t>(number)];
        const int first = lane.locals.empty() ? 0 : lane.locals.front();
        Status status = placed(session, first, enqueue(session.backend, lane));
        for (const int local : lane.locals) {
            if (status.ok()) {
                status = placed(session, local, session.backend.synchronise(local));
            }
        }
        return status;
    });
}

struct Counts {
    std::vector<unsigned long long> wrong;
    bool sampled = false;
    Status first_wrong;
};

// Calls of several lanes are checked at the same time, so each lane counts for itself.
Status count_wrong(Session& session, const Launch& launch, std::vector<Counts>& by_lane) {
    session.watchdog.waiting_for("checking the results");
    return session.ranks.run([&](int number) {
        const Launch::Lane& lane = launch.lanes[static_cast<std::size_t>(number)];
        Counts& counts = by_lane[static_cast<std::size_t>(number)];
        for (std::size_t i = 0; i < lane.calls.size(); ++i) {
            const Call& call = lane.calls[i];
            const Checked checked =
                check_outputs(session.backend, call.local, rank_call(call, lane.parts[i]),
                              session.verify_options(call.local),
                              session.staging[static_cast<std::size_t>(call.local)]);
            if (!checked.status.ok()) {
                return placed(session, call.local, checked.status);
            }
            counts.wrong[static_cast<std::size_t>(lane.parts[i].item)] += checked.n_wrong;
            counts.sampled = counts.sampled || checked.sampled;
            if (counts.first_wrong.ok() && checked.n_wrong != 0) {
                counts.first_wrong = placed(session, call.local, {checked.first_wrong});
            }
        }
        return Status{};
    });
}

}  // namespace

Status run_checked(Session& session, const Launch& launch, std::size_t items, bool check,
                   CheckResult& out) {
    out.wrong.resize(items, 0);
    Status status = session.control.agree(fill(session, launch));
    if (!status.ok()) {
        return status;
    }
    status = session.control.agree(run_once(session, launch));
    if (!status.ok() || !check) {
        return status;
    }
    test_hooks::before_check(session, launch);
    std::vector<Counts> by_lane(launch.lanes.size(),
                                {std::vector<unsigned long long>(items, 0), false, {}});
    status = session.control.agree(count_wrong(session, launch, by_lane));
    if (!status.ok()) {
        return status;
    }
    std::vector<unsigned long long> sums(items + 1, 0);  // the last: was any a sample
    Status first_wrong;
    for (const Counts& counts : by_lane) {
        for (std::size_t i = 0; i < items; ++i) {
            sums[i] += counts.wrong[i];
        }
        sums[items] += counts.sampled ? 1 : 0;
        first_wrong = first_wrong.ok() ? counts.first_wrong : first_wrong;
    }
    session.control.sum_each(sums);
    bool any_wrong = false;
    for (std::size_t i = 0; i < items; ++i) {
        out.wrong[i] += sums[i];
        any_wrong = any_wrong || sums[i] != 0;
    }
    out.sampled = out.sampled || sums[items] != 0;
    if (any_wrong && out.first_wrong.empty()) {
        out.first_wrong = session.control.agree(first_wrong).error;
    }
    return {};
}

}  // namespace collscope
