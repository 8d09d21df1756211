// What MPI reduces with: its own types and operators, and ours where it has none.
#pragma once

#include <mpi.h>

#include <map>
#include <utility>

#include "plan.h"

namespace collscope {

// Made on demand, freed at the end, which must come before MPI_Finalize.
class HostOps {
public:
    HostOps() = default;
    ~HostOps();
    HostOps(const HostOps&) = delete;
    HostOps& operator=(const HostOps&) = delete;

    MPI_Datatype type(Datatype type);
    // Avg is that of Sum.
    MPI_Op op(Datatype type, Redop redop);

private:
    std::map<Datatype, MPI_Datatype> types_;
    std::map<std::pair<Datatype, Redop>, MPI_Op> ops_;
};

}  // namespace collscope
