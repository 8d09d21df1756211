#include "start.h"

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>

#include "gpu_backend.h"
#include "host_backend.h"
#include "watchdog.h"

namespace collscope {

int guarded(const char* program, const std::function<int()>& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s. Use a smaller plan or smaller sizes, or report this.\n", program,
                     error.what());
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

std::unique_ptr<Backend> make_backend(const Options& options, const Plan& plan,
                                      const Control& control, Status& status) {
    GpuOptions gpu{options.backend, options.library, options.runtime, {}, options.one_thread,
                   options.urgent};
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

}  // namespace collscope
