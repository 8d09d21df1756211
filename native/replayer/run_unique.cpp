#include "run_unique.h"

#include <algorithm>

#include "checked_run.h"
#include "launch.h"
#include "progress.h"
#include "timing.h"

namespace collscope {

namespace {

// Bytes per rank of each class, of the rank that needs most.
std::vector<double> needs_of(Session& session) {
    const Plan& plan = session.plan;
    std::vector<double> needs(plan.classes.size(), 0);
    for (std::size_t i = 0; i < needs.size(); ++i) {
        if (!session.kept.finished.contains(plan.classes[i].id)) {
            const Launch launch =
                build_launch(plan, items_of(plan, i), session.control.first_rank(), session.ranks);
            needs[i] = static_cast<double>(launch.arena_bytes);
        }
    }
    session.control.max_each(needs);
    return needs;
}

Status verify(Session& session, const Launch& launch, std::size_t items, Row& row) {
    CheckResult result;
    const int rounds = std::max(session.options.verify, 1);  // once at least, to fill the buffers
    for (int i = 0; i < rounds; ++i) {
        const Status status =
            run_checked(session, launch, items, session.options.verify != 0, result);
        if (!status.ok()) {
            return status;
        }
    }
    if (session.options.verify == 0) {
        return {};
    }
    row.n_wrong = 0;
    for (const unsigned long long wrong : result.wrong) {
        *row.n_wrong += wrong;
    }
    row.checked = result.sampled ? "sample" : "all";
    if (*row.n_wrong != 0) {
        row.status = "wrong";
        row.message = result.first_wrong;
    }
    return {};
}

Status run_class(Session& session, std::size_t index, double need, Row& row) {
    const Class& cls = session.plan.classes[index];
    if (need > static_cast<double>(session.arena.capacity())) {
        return {session.arena.refusal()};
    }
    session.watchdog.waiting_for("creating communicators");
    if (const Status status = create_communicators(session, cls.comms); !status.ok()) {
        return status;
    }
    Launch launch = build_launch(session.plan, items_of(session.plan, index),
                                 session.control.first_rank(), session.ranks);
    launch.bind(session.arena);
    if (const Status status = verify(session, launch, cls.comms.size(), row); !status.ok()) {
        return status;
    }
    Measurement measured;
    if (const Status status = measure(session, launch, measured); !status.ok()) {
        return status;
    }
    row.samples_us = std::move(measured.samples_us);
    row.iterations = measured.iterations;
    set_place(session, measured.slowest_rank, row);
    return {};
}

}  // namespace

Status run_unique(Session& session, bool& failed) {
    const Plan& plan = session.plan;
    session.watchdog.start("before the first class");
    session.watchdog.waiting_for("allocating the buffers");
    const std::vector<double> needs = needs_of(session);
    session.arena.reserve(session.backend, session.control, needs);
    session.watchdog.stop();
    Progress progress(session.options.progress && session.control.writer(),
                      plan.classes.size() - session.kept.finished.size());
    for (std::size_t i = 0; i < plan.classes.size(); ++i) {
        if (session.kept.finished.contains(plan.classes[i].id)) {
            continue;
        }
        Row row = row_for(session, plan.classes[i]);
        row.method = method_name(session.options.timing);
        row.status = "timeout";
        session.current = {row};  // what the watchdog writes
        session.watchdog.start(title_of(row));
        row.status = "ok";
        const Status status = run_class(session, i, needs[i], row);
        session.watchdog.stop();
        if (!status.ok()) {
            row.status = "failed";
            row.message = status.error;
        }
        failed = failed || row.status != "ok";
        const Status written = session.control.agree(report(session, row));
        if (!written.ok()) {
            return written;
        }
        progress.finished(row);
    }
    return {};
}

}  // namespace collscope
