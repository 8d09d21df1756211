// The backend of CUDA with NCCL and of HIP with RCCL, both bound at run time.
//
// The unique id of a communicator travels by MPI: create_communicator makes an MPI communicator of
// the processes with a member (MPI_Comm_create_group on MPI_COMM_WORLD, tag = index of the
// communicator), so MPI must be initialised, at the level MPI_THREAD_FUNNELED or above, and only
// the thread that initialised MPI may call create_communicator. Rank w of the plan lives in process
// w / G of MPI_COMM_WORLD, G = local ranks of a process (the same number in all of them).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "gpu/runtime_api.h"
#include "gpu_choice.h"

namespace collscope {

struct GpuOptions {
    std::string backend = "auto";  // auto or a vendor's name
    std::string library;           // path of NCCL or RCCL; empty: look for it
    std::string runtime;           // path of the GPU runtime; empty: look for it
    std::vector<int> devices;      // device of each local rank
    bool one_thread = false;       // all local ranks are driven by one thread
    bool urgent = false;           // the streams have the highest priority
};

// GPUs that the backend of `options` sees (its `devices` are not looked at), by their PCI
// addresses; an instance of a GPU has none of its own. None with a sentence in `error` when a
// library is missing, lacks a symbol, or sees no usable GPU. `vendor` is that of the library. Needs
// no MPI.
Sight see_gpus(const GpuOptions& options, const gpu::Vendor*& vendor, std::string& error);

// The backend of this process's local ranks with a stream and 1024 pairs of events for each; null
// with a sentence in `error` when a library is missing or a device cannot be used. `plan` must
// outlive it. copy_in and copy_out return when the data is there; copy_within, fill and enqueue are
// ordered on the local rank's stream.
std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options, const Plan& plan,
                                          std::string& error);

}  // namespace collscope
