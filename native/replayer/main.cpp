// collscope-replayer: runs a plan of collectives on this machine and writes what they took.
#include <mpi.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "gpu/probe.h"
#include "metadata.h"
#include "mpi_scope.h"
#include "run_sequence.h"
#include "run_unique.h"
#include "start.h"

namespace collscope {

namespace {

Status open_csv(const Options& options, const Control& control, const Plan& plan, CsvWriter& csv,
                Kept& kept) {
    if (options.resume || options.append) {
        Status status;
        const std::string text = read_everywhere(control, options.csv, false, status);
        kept = options.resume ? keep_finished(text, plan.digest, options.label, options.round)
                              : keep_all(text);
        if (!kept.error.empty()) {
            return {options.csv + ": " + kept.error + ". Choose another file with --csv."};
        }
    }
    return control.agree(control.writer() ? csv.open(options.csv, kept.text) : Status{});
}

int run(Session& session) {
    session.watchdog.on_expiry([&session](const std::string& message) {
        if (session.control.writer()) {
            for (Row& row : session.current) {
                row.message = row.status == "timeout" ? message : row.message;
            }
            session.csv.write_last(session.current);
        }
        session.backend.abort();
    });
    Status status;
    if (session.control.writer()) {
        status = session.csv.write_metadata(metadata_of(session));
    }
    status = session.control.agree(status);
    bool failed = false;
    if (status.ok()) {
        status =
            session.plan.sequence ? run_sequence(session, failed) : run_unique(session, failed);
    }
    if (status.ok()) {
        status = session.control.agree(session.csv.write_end());
    }
    if (!status.ok()) {
        return refuse(session.control, status.error, exit_input);
    }
    return failed ? exit_replay : 0;
}

int replay(const Options& options) {
    const Control control(options.gpus_per_process);
    Status status;
    const std::string text = read_everywhere(control, options.plan, true, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_input);
    }
    const ParsedPlan parsed = parse_plan(text);
    if (!parsed.error.empty()) {
        return refuse(control, options.plan + ": " + parsed.error, exit_input);
    }
    const Plan& plan = parsed.plan;
    const int ranks = control.processes() * options.gpus_per_process;
    if (ranks != plan.nranks) {
        return refuse(control,
                      options.plan + ": it needs " + std::to_string(plan.nranks) +
                          " ranks, and there are " + std::to_string(ranks) +
                          ". Start as many processes, or plan with --scale-ranks.",
                      exit_input);
    }
    const std::unique_ptr<Backend> backend = make_backend(options, plan, control, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_library);
    }
    if (options.timing == Timing::Graph && !backend->has_graphs()) {
        return refuse(control,
                      "--graph: the " + backend->name() + " backend has no graphs. Leave it out.",
                      exit_usage);
    }
    CsvWriter csv;
    Kept kept;
    status = open_csv(options, control, plan, csv, kept);
    if (!status.ok()) {
        return refuse(control, status.error, exit_input);
    }
    LocalRanks local_ranks(backend->local_ranks(), options.one_thread);
    const int first = control.first_rank();
    Watchdog watchdog(options.timeout_s, control.writer(),
                      "rank " + std::to_string(first) + " on " + control.host(first));
    Session session{options,
                    plan,
                    control,
                    *backend,
                    local_ranks,
                    watchdog,
                    csv,
                    kept,
                    {},
                    {},
                    device_names(*backend, control),
                    std::vector<std::string>(plan.comms.size()),
                    std::vector<bool>(plan.comms.size()),
                    std::vector<Staging>(static_cast<std::size_t>(backend->local_ranks()))};
    return run(session);
}

}  // namespace

}  // namespace collscope

int main(int argc, char** argv) {
    using namespace collscope;
    const ParsedOptions parsed = parse_options(argc, argv);
    const Options& options = parsed.options;
    if (options.version) {
        std::puts("collscope-replayer " COLLSCOPE_VERSION);
        return 0;
    }
    if (options.help) {
        std::fputs(usage(), stdout);
        return 0;
    }
    if (options.probe && parsed.error.empty()) {
        return gpu::probe(options.backend, options.library, options.runtime, std::cout);
    }
    const Mpi mpi(argc, argv);
    if (!parsed.error.empty()) {
        int process = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &process);
        if (process == 0) {
            std::fprintf(stderr, "%s\n", parsed.error.c_str());
        }
        return exit_usage;
    }
    return guarded("collscope-replayer", [&options] { return replay(options); });
}
