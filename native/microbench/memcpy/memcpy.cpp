#include "memcpy/memcpy.h"

#include <cstdio>

#include "gpu/loader.h"
#include "host_machine.h"
#include "memcpy/gpu.h"
#include "memcpy/host.h"
#include "memcpy/ipc.h"
#include "start.h"

namespace collscope {

namespace {

// Calls `work` with every size of every round.
template <typename Work>
void for_each_size(const CopyOptions& options, CopyRows& rows, Work work) {
    for (int round = 0; round < options.rounds; ++round) {
        rows.set_round(round);
        for (const std::uint64_t size : options.sizes) {
            work(size);
        }
    }
}

int ended(const Control& control, CopyRows& rows) {
    rows.write_end();
    const Status disk = control.agree(rows.disk());
    if (!disk.ok()) {
        return refuse(control, disk.error, exit_input);
    }
    return control.any(rows.failed()) ? exit_replay : 0;
}

CopyRow base_row(const CopyOptions& options, const Control& control) {
    CopyRow row;
    row.label = options.label;
    row.hostname = control.host(0);
    return row;
}

int run_host(const CopyOptions& options, const Control& control) {
    CopyRow base = base_row(options, control);
    base.device = processor();
    base.runtime = mpi_library();
    CopyRows rows(options, control, base);
    const Status opened = rows.open({{"label", options.label},
                                     {"backend", "host"},
                                     {"copy", "memcpy; MPI_Win_allocate_shared; MPI_Send"},
                                     {"processes", std::to_string(control.processes())},
                                     {"sizes", std::to_string(options.sizes.size())},
                                     {"rounds", std::to_string(options.rounds)}});
    if (!opened.ok()) {
        return refuse(control, opened.error, exit_input);
    }
    HostCopies copies(options, control, rows);
    for_each_size(options, rows, [&](std::uint64_t size) { copies.run(size); });
    return ended(control, rows);
}

// Devices of the pair that IPC is measured between.
std::pair<int, int> ipc_pair(const CopyOptions& options, int devices) {
    return options.pairs.empty() ? std::pair{0, devices > 1 ? 1 : 0} : options.pairs.front();
}

int run_gpu(const CopyOptions& options, const Control& control, const gpu::Libraries& found) {
    CopyRow base = base_row(options, control);
    base.runtime = found.runtime_name();
    CopyRows rows(options, control, base);
    const std::string backend(found.runtime.vendor->name);
    GpuCopies copies(options, found.runtime, rows);
    Status status = control.agree(control.writer() ? copies.open(found.devices) : Status{});
    if (!status.ok()) {
        return refuse(control, status.error, exit_library);
    }
    status = rows.open({{"label", options.label},
                        {"backend", backend},
                        {"copy", found.runtime.function("MemcpyAsync") + " of kind Default"},
                        {"runtime", found.runtime_name() + " " + found.runtime.path},
                        {"processes", std::to_string(control.processes())},
                        {"sizes", std::to_string(options.sizes.size())},
                        {"rounds", std::to_string(options.rounds)}});
    if (!status.ok()) {
        return refuse(control, status.error, exit_input);
    }
    IpcCopies ipc(control, found.runtime, ipc_pair(options, found.devices), rows);
    if (options.groups.ipc) {
        ipc.open({found.error});
    }
    for_each_size(options, rows, [&](std::uint64_t size) {
        if (control.writer()) {
            copies.run(size);
        }
        if (options.groups.ipc) {
            ipc.run(size);
        }
    });
    return ended(control, rows);
}

int run_on(const CopyOptions& options, const Control& control) {
    if (control.processes() > 2) {
        return refuse(control,
                      "memcpy: " + std::to_string(control.processes()) +
                          " processes were started. Start one or two.",
                      exit_usage);
    }
    if (options.backend == "host") {
        return run_host(options, control);
    }
    const gpu::Libraries found = gpu::load_usable_runtime(options.backend, options.runtime);
    // Process 0 decides; the other one reports when it cannot do its part.
    const bool any = control.broadcast(found.ok() ? "gpu" : "") == "gpu";
    if (any) {
        return run_gpu(options, control, found);
    }
    if (options.backend == "auto" && options.runtime.empty()) {
        return run_host(options, control);
    }
    return refuse(control, found.error, exit_library);
}

}  // namespace

int run_memcpy(int argc, char** argv) {
    const Control control(1);
    const ParsedCopyOptions parsed = parse_copy_options(argc, argv);
    if (parsed.options.help) {
        if (control.writer()) {
            std::fputs(copy_usage(), stdout);
        }
        return 0;
    }
    if (!parsed.error.empty()) {
        return refuse(control, parsed.error, exit_usage);
    }
    return run_on(parsed.options, control);
}

}  // namespace collscope
