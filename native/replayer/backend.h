// What the engine asks of a machine: memory, communicators, calls, and the time they took.
//
// A backend serves the local ranks of one process: local rank l is rank `first_rank + l` of the
// plan. Functions that can fail return a Status; they never throw. Functions of one local rank may
// be called from that rank's own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan.h"

namespace collscope {

// Success, or the text of whoever refused (the library's own words, with the function's name).
struct Status {
    std::string error;
    bool ok() const { return error.empty(); }
};

// Where one rank's call reads and writes: the start of its send and receive data.
struct Buffers {
    std::byte* send = nullptr;
    std::byte* recv = nullptr;
};

class GpuDevice;

// A communicator of one local rank; ids are indices into Plan::comms.
class Backend {
public:
    virtual ~Backend() = default;

    virtual std::string name() const = 0;     // cuda, hip, host
    virtual std::string library() const = 0;  // "nccl 2.28.9", "rccl 2.22.3", "mpich 5.0.2"
    virtual std::string library_path() const = 0;
    virtual std::string runtime() const = 0;  // "cuda 13.0"; empty on the host
    virtual std::string device(
        int local) const = 0;  // "NVIDIA H200" where the runtime has a name, else "sm_90"
    virtual int local_ranks() const = 0;
    // The GPU of a local rank, for work beside the calls; null on the host.
    virtual GpuDevice* gpu(int) { return nullptr; }

    // Memory of a local rank's device, on a 512-byte boundary. One allocation each, kept until the
    // end.
    virtual Status allocate(int local, std::size_t bytes, std::byte*& out) = 0;
    virtual Status copy_in(int local, std::byte* device, const std::byte* host,
                           std::size_t bytes) = 0;
    virtual Status copy_out(int local, std::byte* host, const std::byte* device,
                            std::size_t bytes) = 0;
    virtual Status copy_within(int local, std::byte* to, const std::byte* from,
                               std::size_t bytes) = 0;
    virtual Status fill(int local, std::byte* device, unsigned char byte, std::size_t bytes) = 0;

    // Creates communicator `comm` (index into Plan::comms) for all local ranks that are members.
    // Collective over the processes with a member; the others do not call it.
    virtual Status create_communicator(int comm) = 0;

    // Brackets calls that belong together: a group of Send and Recv, or several local ranks in one
    // thread.
    virtual Status group_start() = 0;
    virtual Status group_end() = 0;
    // Enqueues one call of a class on the `which`-th of its communicators.
    virtual Status enqueue(int local, const Class& cls, int which, Buffers buffers) = 0;

    // Marks on the local rank's stream; elapsed waits for the second and gives microseconds between
    // them. `slot` separates pairs (0 … 1023); waiting polls for errors of the library.
    virtual Status mark_start(int local, int slot) = 0;
    virtual Status mark_stop(int local, int slot) = 0;
    virtual Status elapsed_us(int local, int slot, double& out) = 0;
    virtual Status synchronise(int local) = 0;

    // Graphs: everything enqueued between begin and end; false where the backend has none.
    virtual bool has_graphs() const = 0;
    virtual Status capture_begin(int local) = 0;
    virtual Status capture_end(int local) = 0;  // replaces the local rank's graph
    virtual Status graph_launch(int local) = 0;

    // Gives up everything in flight, so that the process can end. May be called from another
    // thread.
    virtual void abort() = 0;
};

}  // namespace collscope
