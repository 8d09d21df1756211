#include "interference/interference.h"

#include <algorithm>
#include <cstdio>

#include "checked_run.h"
#include "csv_text.h"
#include "interference/arguments.h"
#include "interference/measure.h"
#include "interference/rows.h"
#include "metadata.h"
#include "start.h"

namespace collscope {

namespace {

constexpr const char* version_line = "# collscope.interference_csv/1";

// The file, which several launches write to.
class RowFile {
public:
    Status open(const InterferenceOptions& options, const std::string& before) {
        const std::string kept = before.substr(0, before.rfind('\n') + 1);
        has_header_ = kept.find(interference_header() + '\n') != std::string::npos;
        if (!kept.empty() && !has_header_) {
            return {options.common.csv +
                    ": it is no interference CSV of this version. Choose another file with --csv."};
        }
        return file_.open(options.common.csv, kept);
    }
    Status write(const std::string& text) { return file_.write(text); }
    Status write_end() { return file_.write_end(); }
    void write_last(const std::string& text) { file_.write_last(text); }
    bool has_header() const { return has_header_; }

private:
    csv::TextFile file_;
    bool has_header_ = false;
};

// A run of the benchmark: a session of the replayer, with work beside its calls.
struct Run {
    const InterferenceOptions& options;
    Session& session;
    Compute& compute;
    RowFile& file;
};

std::string metadata_text(const Run& run) {
    std::string out = std::string(version_line) + '\n';
    for (const auto& [key, value] : metadata_of(run.session)) {
        if (key != "method" && key != "mode") {
            out += csv::comment(key, value) + '\n';
        }
    }
    out += csv::comment("method",
                        "Work of about 7.5 ms alone, then while calls run all the time on another "
                        "stream; calls alone, then while work runs all the time; by turns.") +
           '\n';
    return run.file.has_header() ? out : out + interference_header() + '\n';
}

// This rank's row. The session's current row has the class's key and status.
InterferenceRow row_of(const Run& run, const Row& of_class, Disturbance measured) {
    InterferenceRow out;
    out.of_class = of_class;
    out.rank = run.session.control.first_rank();
    set_place(run.session, out.rank, out.of_class);
    out.compute = run.compute.kind();
    out.description = run.compute.description();
    out.channels = run.options.channels;
    out.priority = run.session.backend.gpu(0) ? run.options.priority : "";
    out.runtime = run.session.backend.runtime();
    out.environment = environment();
    out.multiprocessors = run.compute.multiprocessors();
    out.measured = std::move(measured);
    if (out.of_class.status == "ok" && out.measured.compute_with_us.empty()) {
        out.of_class.status = "uncovered";
        out.of_class.message =
            "the calls or the work ended before the other, however many there "
            "were: nothing is known of them beside each other";
    }
    return out;
}

Status verify(Session& session, const Launch& launch, std::size_t items, Row& row) {
    CheckResult result;
    const Status status = run_checked(session, launch, items, session.options.verify != 0, result);
    const bool wrong =
        std::any_of(result.wrong.begin(), result.wrong.end(), [](auto n) { return n != 0; });
    if (status.ok() && wrong) {
        row.status = "wrong";
        row.message = result.first_wrong;
    }
    return status;
}

// `need` is that of the rank that needs most, so that all ranks refuse a class or none does.
Status measure_class(Run& run, std::size_t index, double need, const Launch& launch, Row& row,
                     Disturbance& out) {
    Session& session = run.session;
    const Class& cls = session.plan.classes[index];
    if (need > static_cast<double>(session.arena.capacity())) {
        return {session.arena.refusal()};
    }
    session.watchdog.waiting_for("creating communicators");
    Status status = create_communicators(session, cls.comms);
    status = status.ok() ? verify(session, launch, cls.comms.size(), row) : status;
    return status.ok() ? disturb(session, launch, run.compute, out) : status;
}

// Writes the rows of the ranks that have a part in the class.
Status report_rows(Run& run, const InterferenceRow& mine, bool member) {
    const std::string line = member ? line_of(mine) + '\n' : std::string();
    const std::vector<std::string> lines = run.session.control.gather_all(line);
    Status status;
    if (run.session.control.writer()) {
        std::string text;
        for (const std::string& each : lines) {
            text += each;
        }
        status = run.file.write(text);
        if (mine.of_class.status != "ok") {
            std::fprintf(stderr, "%s: %s: %s\n", title_of(mine.of_class).c_str(),
                         mine.of_class.status.c_str(), mine.of_class.message.c_str());
        }
    }
    return run.session.control.agree(status);
}

// A failed class leaves work on the stream that never ends; everything after it would wait.
Status run_class(Run& run, std::size_t index, double need, bool& failed, bool& lost) {
    Session& session = run.session;
    Launch launch = build_launch(session.plan, items_of(session.plan, index),
                                 session.control.first_rank(), session.ranks);
    launch.bind(session.arena);
    Row row = row_for(session, session.plan.classes[index]);
    row.status = "timeout";
    session.current = {row};  // what the watchdog writes
    session.watchdog.start(title_of(row));
    row.status = "ok";
    Disturbance measured;
    const Status status = measure_class(run, index, need, launch, row, measured);
    session.watchdog.stop();
    if (!status.ok()) {
        row.status = "failed";
        row.message = status.error;
        measured = {};
        lost = session.arena.refusal() != status.error;
    }
    const InterferenceRow mine = row_of(run, row, std::move(measured));
    failed = failed || mine.of_class.status != "ok";
    return report_rows(run, mine, !launch.lanes.front().calls.empty());
}

// The row of a class that comes after such a failure.
Status give_up(Run& run, std::size_t index) {
    Session& session = run.session;
    Row row = row_for(session, session.plan.classes[index]);
    row.status = "failed";
    row.message = "not measured, as a class before it failed in the same launch";
    const Launch launch = build_launch(session.plan, items_of(session.plan, index),
                                       session.control.first_rank(), session.ranks);
    return report_rows(run, row_of(run, row, {}), !launch.lanes.front().calls.empty());
}

Status run_classes(Run& run, bool& failed) {
    Session& session = run.session;
    const Plan& plan = session.plan;
    session.watchdog.start("before the first class");
    session.watchdog.waiting_for("allocating the buffers");
    std::vector<double> needs(plan.classes.size(), 0);
    for (std::size_t i = 0; i < needs.size(); ++i) {
        needs[i] = static_cast<double>(
            build_launch(plan, items_of(plan, i), session.control.first_rank(), session.ranks)
                .arena_bytes);
    }
    session.control.max_each(needs);
    session.arena.reserve(session.backend, session.control, needs);
    session.watchdog.stop();
    bool lost = false;
    for (std::size_t i = 0; i < plan.classes.size(); ++i) {
        const Status status = lost ? give_up(run, i) : run_class(run, i, needs[i], failed, lost);
        if (!status.ok()) {
            return status;
        }
        if (session.options.progress && session.control.writer()) {
            std::fprintf(stderr, "class %zu of %zu: done\n", i + 1, plan.classes.size());
        }
    }
    if (lost) {
        run.compute.leave();
        session.backend.abort();
    }
    return {};
}

int run_all(Run& run) {
    Session& session = run.session;
    session.watchdog.on_expiry([&run](const std::string& message) {
        if (run.session.control.writer()) {
            std::string text;
            for (Row& row : run.session.current) {
                row.message = message;
                text += line_of(row_of(run, row, {})) + '\n';
            }
            run.file.write_last(text);
        }
        run.session.backend.abort();
    });
    Status status = session.control.agree(
        session.control.writer() ? run.file.write(metadata_text(run)) : Status{});
    bool failed = false;
    status = status.ok() ? run_classes(run, failed) : status;
    status = status.ok() ? session.control.agree(run.file.write_end()) : status;
    if (!status.ok()) {
        return refuse(session.control, status.error, exit_input);
    }
    return failed ? exit_replay : 0;
}

std::unique_ptr<Compute> make_compute(const InterferenceOptions& options, Backend& backend,
                                      const Control& control, Status& status) {
    std::unique_ptr<Compute> out;
    std::string error;
    if (GpuDevice* gpu = backend.gpu(0)) {
        out = make_gpu_compute(*gpu, options.compute, error);
    } else {
        out = make_host_compute();
    }
    status = control.agree({error});
    return out;
}

int measure_plan(const InterferenceOptions& options, const Control& control, const Plan& plan) {
    const Options& common = options.common;
    Status status;
    const std::unique_ptr<Backend> backend = make_backend(common, plan, control, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_library);
    }
    const std::unique_ptr<Compute> compute = make_compute(options, *backend, control, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_library);
    }
    RowFile file;
    const std::string before =
        common.append ? read_everywhere(control, common.csv, false, status) : std::string();
    status = control.agree(control.writer() ? file.open(options, before) : Status{});
    if (!status.ok()) {
        return refuse(control, status.error, exit_input);
    }
    LocalRanks local_ranks(1, true);
    const int first = control.first_rank();
    Watchdog watchdog(common.timeout_s, control.writer(),
                      "rank " + std::to_string(first) + " on " + control.host(first));
    CsvWriter no_csv;
    Kept nothing_kept;
    Session session{common,
                    plan,
                    control,
                    *backend,
                    local_ranks,
                    watchdog,
                    no_csv,
                    nothing_kept,
                    {},
                    {},
                    device_names(*backend, control),
                    std::vector<std::string>(plan.comms.size()),
                    std::vector<bool>(plan.comms.size()),
                    std::vector<Staging>(1)};
    Run run{options, session, *compute, file};
    return run_all(run);
}

}  // namespace

int run_interference(int argc, char** argv) {
    const ParsedInterference parsed = parse_interference(argc, argv);
    const Control control(1);
    if (!parsed.error.empty()) {
        return refuse(control, parsed.error, exit_usage);
    }
    const InterferenceOptions& options = parsed.options;
    if (options.help) {
        if (control.writer()) {
            std::fputs(interference_usage(), stdout);
        }
        return 0;
    }
    const std::string& path = options.common.plan;
    Status status;
    const std::string text = read_everywhere(control, path, true, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_input);
    }
    const ParsedPlan plan = parse_plan(text);
    if (!plan.error.empty()) {
        return refuse(control, path + ": " + plan.error, exit_input);
    }
    if (plan.plan.sequence) {
        return refuse(control, path + ": a plan of mode sequence. Use one of mode unique.",
                      exit_input);
    }
    if (plan.plan.nranks != control.processes()) {
        return refuse(control,
                      path + ": it needs " + std::to_string(plan.plan.nranks) +
                          " ranks, there are " + std::to_string(control.processes()) +
                          ". Start as many processes.",
                      exit_input);
    }
    return measure_plan(options, control, plan.plan);
}

}  // namespace collscope
