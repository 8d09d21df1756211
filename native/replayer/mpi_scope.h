// Initialises MPI, and finalises it at the end of the scope.
#pragma once

#include <mpi.h>

namespace collscope {

class Mpi {
public:
    // MULTIPLE because the watchdog's thread may call MPI_Abort. It also makes MPICH yield
    // the processor while it waits; more ranks than cores would hardly progress otherwise.
    Mpi(int& argc, char**& argv) {
        int provided = MPI_THREAD_SINGLE;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    }
    ~Mpi() { MPI_Finalize(); }
    Mpi(const Mpi&) = delete;
    Mpi& operator=(const Mpi&) = delete;
};

}  // namespace collscope
