// MPI calls with 64-bit counts: MPI-4's own where the library has them, else in parts.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

namespace collscope::mpi {

// COLLSCOPE_MPI_MOST (elements or bytes) asks for parts also where they are not needed: for tests.
#if MPI_VERSION >= 4 && !defined(COLLSCOPE_MPI_MOST)
#define COLLSCOPE_MPI_COUNTS_64 1
using OpCount = MPI_Count;  // as an operator's function gets it
int create_op(MPI_User_function_c* function, MPI_Op& out);
#else
using OpCount = int;
int create_op(MPI_User_function* function, MPI_Op& out);
#endif

// Every function returns MPI's error code. `send` may be MPI_IN_PLACE as MPI allows.
int allreduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm);
int reduce(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
           int root, MPI_Comm comm);
// `count` elements for each rank; `send` holds those of all ranks and is not MPI_IN_PLACE.
int reduce_scatter(const void* send, void* recv, std::uint64_t count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm);

// `bytes` per rank.
int broadcast(void* data, std::uint64_t bytes, int root, MPI_Comm comm);
int allgather(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm);
int gather(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm);
int scatter(const void* send, void* recv, std::uint64_t bytes, int root, MPI_Comm comm);
int alltoall(const void* send, void* recv, std::uint64_t bytes, MPI_Comm comm);
int isend(const void* send, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request);
int irecv(void* recv, std::uint64_t bytes, int peer, MPI_Comm comm, MPI_Request& request);

}  // namespace collscope::mpi
