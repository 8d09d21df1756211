// What computation and collectives cost each other when they run at the same time.
#pragma once

namespace collscope {

// MPI is initialised; argv[0] is the benchmark's name. Returns the exit code.
int run_interference(int argc, char** argv);

}  // namespace collscope
