// The backend of machines without a GPU: MPI on CPU memory, one rank per process.
#pragma once

#include <memory>

#include "backend.h"

namespace collscope {

// MPI must be initialised; `plan` must outlive the backend. `processes_here`: number of processes
// on this host, which share its memory.
std::unique_ptr<Backend> make_host_backend(const Plan& plan, int processes_here);

}  // namespace collscope
