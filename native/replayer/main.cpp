// collscope-replayer: runs a plan of collectives on this machine and writes what they took.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "gpu/probe.h"
#include "gpu_backend.h"
#include "host_backend.h"
#include "metadata.h"
#include "run_sequence.h"
#include "run_unique.h"

namespace collscope {

namespace {

constexpr int exit_usage = 2;
constexpr int exit_input = 3;
constexpr int exit_library = 5;

// MPI from here to the end of the scope.
class Mpi {
public:
    // MULTIPLE because the watchdog's thread may call MPI_Abort. It also makes MPICH give way to
    // others while it waits, without which more ranks than cores hardly get on.
    Mpi(int& argc, char**& argv) {
        int provided = MPI_THREAD_SINGLE;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    }
    ~Mpi() { MPI_Finalize(); }
    Mpi(const Mpi&) = delete;
    Mpi& operator=(const Mpi&) = delete;
};

// Says on the writer what is wrong, and returns `code`.
int refuse(const Control& control, const std::string& what, int code) {
    if (control.writer()) {
        std::fprintf(stderr, "%s\n", what.c_str());
    }
    return code;
}

// Text of a file on every process, read by the writer; `error` when there is none.
std::string read_everywhere(const Control& control, const std::string& path, bool must_be,
                            Status& status) {
    std::string text;
    Status mine;
    if (control.writer()) {
        std::ifstream file(path, std::ios::binary);
        if (file) {
            text.assign(std::istreambuf_iterator<char>(file), {});
        }
        if (must_be && !file) {
            mine.error = path + ": it cannot be read. Give a plan that collscope replay wrote.";
        }
    }
    status = control.agree(mine);
    return control.broadcast(std::move(text));
}

// The backend all processes use: `auto` means GPUs where every process has some, else the host.
std::unique_ptr<Backend> make_backend(const Options& options, const Plan& plan,
                                      const Control& control, Status& status) {
    GpuOptions gpu{options.backend, options.library, options.runtime, {}, options.one_thread};
    const int wanted = control.processes_on_host() * options.gpus_per_process;
    std::unique_ptr<Backend> out;
    std::string error;
    bool host = options.backend == "host";
    if (!host) {
        const int gpus = count_gpus(gpu, error);
        const bool none = !control.any(gpus > 0);
        // Who names a library means a GPU.
        host = options.backend == "auto" && none && options.library.empty() &&
               options.gpus_per_process == 1;
        if (!host && gpus > 0 && gpus < wanted) {
            error = control.host(control.first_rank()) + ": " + std::to_string(wanted) +
                    " GPUs are needed, there are " + std::to_string(gpus) +
                    ". Start fewer processes here, or plan with --scale-ranks.";
        }
    }
    if (host) {
        return make_host_backend(plan, control.processes_on_host());
    }
    if (error.empty()) {
        for (int i = 0; i < options.gpus_per_process; ++i) {
            gpu.devices.push_back(control.process_on_host() * options.gpus_per_process + i);
        }
        out = make_gpu_backend(gpu, plan, error);
    }
    status = control.agree({error});
    return out;
}

std::vector<std::string> device_names(const Backend& backend, const Control& control) {
    std::string mine;
    for (int local = 0; local < backend.local_ranks(); ++local) {
        mine += backend.device(local) + '\n';
    }
    std::vector<std::string> out;
    for (const std::string& text : control.gather_all(mine)) {
        for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
            out.push_back(text.substr(begin, text.find('\n', begin) - begin));
        }
    }
    return out;
}

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
            session.current.message = message;
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
        status = session.plan.sequence ? run_sequence(session, failed) : run_unique(session, failed);
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
                          " ranks, there are " + std::to_string(ranks) +
                          ". Start as many processes, or plan with --scale-ranks.",
                      exit_input);
    }
    const std::unique_ptr<Backend> backend = make_backend(options, plan, control, status);
    if (!status.ok()) {
        return refuse(control, status.error, exit_library);
    }
    if (options.timing == Timing::Graph && !backend->has_graphs()) {
        return refuse(control,
                      "--graph: the " + backend->name() + " backend has none. Leave it out.",
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
    Session session{options, plan, control, *backend, local_ranks, watchdog, csv, kept, {}, {},
                    device_names(*backend, control),
                    std::vector<std::string>(plan.comms.size()),
                    std::vector<bool>(plan.comms.size()),
                    std::vector<Staging>(static_cast<std::size_t>(backend->local_ranks()))};
    return run(session);
}

int guarded(const Options& options) {
    try {
        return replay(options);
    } catch (const std::exception& error) {
        // The others wait for this process: they must not do so for ever.
        std::fprintf(stderr, "collscope-replayer: %s. Use a smaller plan, or report this.\n",
                     error.what());
        MPI_Abort(MPI_COMM_WORLD, exit_replay);
        return exit_replay;
    }
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
    return guarded(options);
}
