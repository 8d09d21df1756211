// The benchmark of plain copies: what a library's transfer could reach at best.
#pragma once

namespace collscope {

// `argv[0]` is the word `memcpy`. MPI is initialised; one process measures what needs no second
// one, two measure everything. Returns the exit code that --help lists. Collective.
int run_memcpy(int argc, char** argv);

}  // namespace collscope
