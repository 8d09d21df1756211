#include "start.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>

#include "gpu_backend.h"
#include "host_backend.h"
#include "host_machine.h"
#include "started_by.h"
#include "watchdog.h"

namespace collscope {

int guarded(const char* program, const std::function<int()>& work) {
    try {
        int processes = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &processes);
        const StartedBy started = started_by([](const char* name) { return std::getenv(name); });
        const std::string alone = processes > 1 ? "" : not_joined(started, mpi_library());
        if (!alone.empty()) {
            if (started.rank == 0) {
                std::fprintf(stderr, "%s\n", alone.c_str());
            }
            return exit_usage;
        }
        return work();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s. Use a smaller plan or smaller sizes, or report this.\n",
                     program, error.what());
        MPI_Abort(MPI_COMM_WORLD, exit_replay);
        return exit_replay;
    }
}

int refuse(const Control& control, const std::string& what, int code) {
    if (control.writer()) {
        std::fprintf(stderr, "%s\n", what.c_str());
    }
    return code;
}

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

namespace {

// `sights`: what each process sees, by process.
GpuChoice choose(const Control& control, const std::vector<std::string>& sights, int per_process,
                 const gpu::Vendor& vendor) {
    std::vector<Sight> here;
    int mine = 0;
    for (const int process : control.here()) {
        mine = process == control.process() ? static_cast<int>(here.size()) : mine;
        here.push_back(sight_of(sights[static_cast<std::size_t>(process)]));
    }
    GpuChoice out = choose_gpus(here, mine, per_process, vendor.partitions_share_address);
    if (!out.error.empty()) {
        out.error = control.host(control.first_rank()) + ": " + out.error +
                    ". Start as many processes as there are GPUs, give each its own (Slurm: "
                    "--gpus-per-task=1) or all of them to each (--gpus-per-node), or plan with "
                    "--scale-ranks.";
    }
    return out;
}

}  // namespace

std::unique_ptr<Backend> make_backend(const Options& options, const Plan& plan,
                                      const Control& control, Status& status) {
    GpuOptions gpu{options.backend,    options.library, options.runtime, {},
                   options.one_thread, options.urgent};
    std::unique_ptr<Backend> out;
    std::string error;
    bool host = options.backend == "host";
    GpuChoice choice;
    if (!host) {
        const gpu::Vendor* vendor = nullptr;
        const Sight mine = see_gpus(gpu, vendor, error);
        const std::vector<std::string> sights = control.gather_all(text_of(mine));
        const bool none = std::all_of(sights.begin(), sights.end(),
                                      [](const std::string& sight) { return sight.empty(); });
        // A library is named: a GPU is wanted.
        host = options.backend == "auto" && none && options.library.empty() &&
               options.gpus_per_process == 1;
        if (!host && !mine.gpus.empty()) {
            choice = choose(control, sights, options.gpus_per_process, *vendor);
            error = choice.error;
        }
    }
    if (host) {
        return make_host_backend(plan, control.processes_on_host());
    }
    if (error.empty()) {
        gpu.devices = choice.devices;
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

}  // namespace collscope
