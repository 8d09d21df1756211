#include "run_sequence.h"

#include <algorithm>
#include <set>
#include <span>

#include "checked_run.h"
#include "launch.h"
#include "steps.h"
#include "timing.h"

namespace collscope {

namespace {

constexpr std::size_t marked_at_once = 512;  // of the backend's 1024 slots
constexpr std::size_t steps_per_touch = 64;  // of the watchdog

// What is known of a class: its row, and whether a step has it.
struct ClassState {
    Row row;
    bool used = false;
};

// Of a call among those of its group; 1 more, for calls without data.
double weight(const Call& call) { return static_cast<double>(call.cls->size_bytes + 1); }

class Sequence {
public:
    explicit Sequence(Session& session) : session_(session) {}

    Status run(bool& failed);

private:
    void find_classes();
    void reserve();
    void try_all();
    Status try_one(Distinct& step);
    void drop(const Distinct& step, const std::string& why);
    void add_wrong(const Distinct& step, const CheckResult& result);
    Status pass(double& us);
    Status marked_pass();
    Status marked_chunk(std::size_t begin, std::size_t end);
    Status take_shares(const Launch::Lane& lane, int slot, std::span<double> shares);
    Status write_rows(bool& failed);
    Status write_total(bool& failed);
    void measure_all();
    void watch();

    Class const& class_of(const Step::Item& item) const {
        return session_.plan.classes[static_cast<std::size_t>(item.cls)];
    }
    ClassState& state_of(const Step::Item& item) {
        return classes_[static_cast<std::size_t>(item.cls)];
    }

    Session& session_;
    std::vector<ClassState> classes_;
    std::vector<Distinct> distinct_;
    std::vector<std::size_t> order_;  // steps as indices into distinct_
    std::vector<double> own_us_;      // by local rank, of the last pass
    std::vector<double> passes_us_;
    std::size_t left_out_ = 0;
    Row total_;
    Status status_;  // of the passes
};

void Sequence::find_classes() {
    for (const Class& cls : session_.plan.classes) {
        classes_.push_back({row_for(session_, cls), false});
        classes_.back().row.method = "sequence";
        classes_.back().row.status = "ok";
    }
    for (const Distinct& step : distinct_) {
        for (const Step::Item& item : step.items) {
            state_of(item).used = true;
        }
    }
}

void Sequence::reserve() {
    std::vector<double> needs;
    for (const Distinct& step : distinct_) {
        needs.push_back(static_cast<double>(step.launch.arena_bytes));
    }
    session_.control.max_each(needs);
    session_.arena.reserve(session_.backend, session_.control, needs);
    for (std::size_t i = 0; i < distinct_.size(); ++i) {
        if (needs[i] > static_cast<double>(session_.arena.capacity())) {
            drop(distinct_[i], session_.arena.refusal());
            distinct_[i].runs = false;
        } else {
            distinct_[i].launch.bind(session_.arena);
        }
    }
}

// Runs each distinct step once, checked: what a library refuses is known before the passes.
void Sequence::try_all() {
    for (Distinct& step : distinct_) {
        session_.watchdog.progress();
        if (step.runs) {
            if (const Status status = try_one(step); !status.ok()) {
                drop(step, status.error);
                step.runs = false;
            }
        }
    }
}

Status Sequence::try_one(Distinct& step) {
    session_.watchdog.waiting_for("creating communicators");
    std::vector<int> comms;
    for (const Step::Item& item : step.items) {
        comms.push_back(class_of(item).comms[static_cast<std::size_t>(item.comm)]);
    }
    std::sort(comms.begin(), comms.end());  // the same order on all processes
    comms.erase(std::unique(comms.begin(), comms.end()), comms.end());
    if (const Status status = create_communicators(session_, comms); !status.ok()) {
        return status;
    }
    CheckResult result;
    const bool check = session_.options.verify != 0;
    for (int i = 0; i < std::max(session_.options.verify, 1); ++i) {
        const Status status = run_checked(session_, step.launch, step.items.size(), check, result);
        if (!status.ok()) {
            return status;
        }
    }
    if (check) {
        add_wrong(step, result);
    }
    return {};
}

void Sequence::add_wrong(const Distinct& step, const CheckResult& result) {
    for (std::size_t i = 0; i < step.items.size(); ++i) {
        Row& row = state_of(step.items[i]).row;
        row.n_wrong = row.n_wrong.value_or(0) + result.wrong[i];
        row.checked = result.sampled || row.checked == "sample" ? "sample" : "all";
        if (result.wrong[i] != 0 && row.status == "ok") {
            row.status = "wrong";
            row.message = result.first_wrong;
        }
    }
}

void Sequence::drop(const Distinct& step, const std::string& why) {
    for (const Step::Item& item : step.items) {
        Row& row = state_of(item).row;
        row.status = "failed";
        row.message = why;
    }
}

// All steps between one pair of marks on each rank.
Status Sequence::pass(double& us) {
    Backend& backend = session_.backend;
    const Status mine = session_.ranks.run([&](int number) {
        session_.ranks.start_together(number, [&] { session_.control.barrier(); });
        Status status;
        const int first = session_.ranks.first(number);
        const int last = session_.ranks.last(number);
        for (int local = first; local < last && status.ok(); ++local) {
            status = backend.mark_start(local, 0);
        }
        for (std::size_t i = 0; i < order_.size() && status.ok(); ++i) {
            const Distinct& step = distinct_[order_[i]];
            if (step.runs) {
                status = enqueue(backend, step.launch.lanes[static_cast<std::size_t>(number)]);
            }
            if (i % steps_per_touch == 0) {
                session_.watchdog.progress();
            }
        }
        for (int local = first; local < last && status.ok(); ++local) {
            status = backend.mark_stop(local, 0);
        }
        for (int local = first; local < last && status.ok(); ++local) {
            status = backend.elapsed_us(local, 0, own_us_[static_cast<std::size_t>(local)]);
        }
        return placed(session_, first, status);
    });
    us = *std::max_element(own_us_.begin(), own_us_.end());
    return session_.control.slowest(mine, us);
}

// Time of each step, in chunks that fit the backend's slots.
Status Sequence::marked_pass() {
    for (std::size_t begin = 0; begin < order_.size(); begin += marked_at_once) {
        session_.watchdog.progress();
        const std::size_t end = std::min(begin + marked_at_once, order_.size());
        if (const Status status = marked_chunk(begin, end); !status.ok()) {
            return status;
        }
    }
    return {};
}

Status Sequence::marked_chunk(std::size_t begin, std::size_t end) {
    std::vector<std::size_t> offsets;  // of each step's items among the chunk's
    std::size_t items = 0;
    for (std::size_t i = begin; i < end; ++i) {
        offsets.push_back(items);
        items += distinct_[order_[i]].items.size();
    }
    // By item; each lane has its own, as several local ranks may share an item.
    std::vector<std::vector<double>> shares(static_cast<std::size_t>(session_.ranks.lanes()),
                                            std::vector<double>(items, 0));
    Status status = session_.ranks.run([&](int number) {
        session_.ranks.start_together(number, [&] { session_.control.barrier(); });
        Backend& backend = session_.backend;
        const auto l = static_cast<std::size_t>(number);
        Status lane_status;
        for (std::size_t i = begin; i < end; ++i) {
            const Distinct& step = distinct_[order_[i]];
            const Launch::Lane& lane = step.launch.lanes[l];
            const int slot = static_cast<int>(i - begin);
            for (std::size_t j = 0; step.runs && j < lane.locals.size() && lane_status.ok(); ++j) {
                lane_status = backend.mark_start(lane.locals[j], slot);
            }
            if (step.runs && lane_status.ok()) {
                lane_status = enqueue(backend, lane);
            }
            for (std::size_t j = 0; step.runs && j < lane.locals.size() && lane_status.ok(); ++j) {
                lane_status = backend.mark_stop(lane.locals[j], slot);
            }
        }
        for (std::size_t i = begin; i < end && lane_status.ok(); ++i) {
            const Distinct& step = distinct_[order_[i]];
            if (step.runs) {
                lane_status = take_shares(step.launch.lanes[l], static_cast<int>(i - begin),
                                          std::span(shares[l]).subspan(offsets[i - begin]));
            }
        }
        return placed(session_, session_.ranks.first(number), lane_status);
    });
    status = session_.control.agree(status);
    if (!status.ok()) {
        return status;
    }
    for (std::size_t l = 1; l < shares.size(); ++l) {
        for (std::size_t i = 0; i < items; ++i) {
            shares[0][i] = std::max(shares[0][i], shares[l][i]);
        }
    }
    session_.control.max_each(shares[0]);
    for (std::size_t i = begin; i < end; ++i) {
        const Distinct& step = distinct_[order_[i]];
        for (std::size_t j = 0; j < step.items.size(); ++j) {
            if (step.runs) {
                state_of(step.items[j]).row.samples_us.push_back(shares[0][offsets[i - begin] + j]);
            }
        }
    }
    return {};
}

// A rank's time of a step is shared by the calls that it makes in it, by their size.
Status Sequence::take_shares(const Launch::Lane& lane, int slot, std::span<double> shares) {
    for (const int local : lane.locals) {
        double us = 0;
        if (const Status status = session_.backend.elapsed_us(local, slot, us); !status.ok()) {
            return status;
        }
        double weights = 0;
        for (const Call& call : lane.calls) {
            weights += call.local == local ? weight(call) : 0;
        }
        for (std::size_t i = 0; i < lane.calls.size(); ++i) {
            double& share = shares[static_cast<std::size_t>(lane.parts[i].item)];
            if (lane.calls[i].local == local) {
                share = std::max(share, us * weight(lane.calls[i]) / weights);
            }
        }
    }
    return {};
}

void Sequence::measure_all() {
    session_.watchdog.waiting_for("waiting for a pass over all steps");
    own_us_.assign(static_cast<std::size_t>(session_.backend.local_ranks()), 0);
    std::vector<double> sums(own_us_.size(), 0);
    double us = 0;
    status_ = pass(us);  // warm-up
    for (int i = 0; i < session_.options.repeat && status_.ok(); ++i) {
        session_.watchdog.progress();
        status_ = pass(us);
        if (status_.ok()) {
            passes_us_.push_back(us);
        }
        for (std::size_t local = 0; local < sums.size(); ++local) {
            sums[local] += own_us_[local];
        }
    }
    const auto worst = std::max_element(sums.begin(), sums.end());
    const int rank = session_.control.first_rank() + static_cast<int>(worst - sums.begin());
    set_place(session_, session_.control.slowest_rank({*worst, rank}).rank, total_);
    if (status_.ok()) {
        session_.watchdog.waiting_for("waiting for the pass with marks");
        status_ = marked_pass();
    }
}

Status Sequence::write_rows(bool& failed) {
    for (ClassState& state : classes_) {
        Row& row = state.row;
        if (!state.used) {
            continue;
        }
        if (!status_.ok() && row.status == "ok") {
            row.status = "failed";
            row.message = status_.error;
        }
        row.iterations = row.samples_us.size();
        failed = failed || row.status != "ok";
        const Status written = session_.control.agree(report(session_, row));
        if (!written.ok()) {
            return written;
        }
    }
    return write_total(failed);
}

Status Sequence::write_total(bool& failed) {
    for (const std::size_t index : order_) {
        left_out_ += distinct_[index].runs ? 0 : 1;
    }
    total_.status = "ok";
    if (!status_.ok()) {
        total_.status = "failed";
        total_.message = status_.error;
    } else if (left_out_ != 0) {
        total_.status = "failed";
        total_.message = std::to_string(left_out_) + " of " + std::to_string(order_.size()) +
                         " steps were left out, see their classes";
    }
    total_.samples_us = passes_us_;
    total_.iterations = passes_us_.size();
    failed = failed || total_.status != "ok";
    return session_.control.agree(report(session_, total_));
}

// Starts the watchdog, which writes the rows of all classes: none has a time before the last pass
// has ended.
void Sequence::watch() {
    session_.watchdog.stop();
    session_.current.clear();
    for (const ClassState& state : classes_) {
        if (state.used) {
            session_.current.push_back(state.row);
        }
    }
    session_.current.push_back(total_);
    for (Row& row : session_.current) {
        row.status = row.status == "failed" || row.status == "wrong" ? row.status : "timeout";
    }
    session_.watchdog.start("the sequence of " + std::to_string(order_.size()) + " steps");
}

Status Sequence::run(bool& failed) {
    const Plan& plan = session_.plan;
    total_.op = "Sequence";
    total_.count = plan.steps.size();
    total_.nranks = plan.nranks;
    total_.calls = 1;
    total_.method = "sequence";
    total_.backend = session_.backend.name();
    total_.library = session_.backend.library();
    total_.label = session_.options.label;
    total_.round = session_.options.round;
    total_.scaled_from = plan.scaled_from;
    const std::vector<std::string>& hosts = session_.control.hosts();
    total_.nnodes = static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
    order_ = distinct_steps(plan, session_.control.first_rank(), session_.ranks, distinct_);
    find_classes();
    watch();
    session_.watchdog.waiting_for("allocating the buffers");
    reserve();
    try_all();
    watch();
    measure_all();
    session_.watchdog.stop();
    return write_rows(failed);
}

}  // namespace

Status run_sequence(Session& session, bool& failed) {
    if (session.kept.sequence_finished) {
        return {};
    }
    return Sequence(session).run(failed);
}

}  // namespace collscope
