// What the host backend and the microbenchmarks ask of this host and its MPI.
#pragma once

#include <cstddef>
#include <string>

#include "backend.h"

namespace collscope {

std::string processor();    // its model; "cpu" where the system has none
std::string mpi_library();  // "mpich 5.0.2", "openmpi 5.0.8", "intelmpi 2021.10", "cray-mpich 8.1"

// Success, or "MPI_Bcast: <MPI's text>".
Status mpi_status(int code, const char* function);

// Memory that can be had; Linux grants more than that and kills the process on use.
std::size_t available_bytes();
// Memory that processes can share (/dev/shm): more is granted there too, and kills on use.
std::size_t shareable_bytes();

}  // namespace collscope
