// Whether a launcher meant this process to be one of several, by its variables.
#pragma once

#include <functional>
#include <string>

namespace collscope {

using Getenv = std::function<const char*(const char*)>;  // null: not set

// A launch of several processes. size 0: there is none, or the variables do not show it.
struct StartedBy {
    std::string launcher;  // "Slurm (srun)"
    int rank = 0;
    int size = 0;
    bool pmi = false;   // it offers PMI-1 or PMI-2
    bool pmix = false;  // it offers PMIx
};

StartedBy started_by(const Getenv& get);

// A sentence for a process that was meant to be one of several and that MPI takes for a job of its
// own; empty when it was not. `mpi`: of mpi_library(), as "mpich 5.0.2".
std::string not_joined(const StartedBy& started, const std::string& mpi);

}  // namespace collscope
