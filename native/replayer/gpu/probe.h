// The action --probe: what can be learned of the GPU libraries without running anything on a GPU.
#pragma once

#include <ostream>
#include <string>

namespace collscope::gpu {

// One line per fact to `out`, for each vendor that `backend` (auto or a vendor's name) and the name
// of `library` leave open. Needs no MPI and no GPU. Returns the exit code: 0 when a vendor has both
// libraries with every required function and a unique id could be had, 5 otherwise.
int probe(const std::string& backend, const std::string& library, const std::string& runtime,
          std::ostream& out);

}  // namespace collscope::gpu
