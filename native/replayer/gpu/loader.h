// Finds, opens and resolves a GPU runtime and the collective library over it.
#pragma once

#include <string>
#include <vector>

#include "resolve.h"

namespace collscope::gpu {

// Both libraries of a vendor. They stay loaded until the process ends.
struct Libraries {
    Runtime runtime;
    Symbols runtime_symbols;  // wanted 0: the library was not opened
    CollectiveLibrary collectives;
    Symbols collective_symbols;
    std::string error;   // a sentence when something required is missing; the rest is then a report
    int devices = 0;     // usable GPUs
    std::string no_gpu;  // why there are none, in the runtime's words; empty otherwise

    bool ok() const { return error.empty(); }
    std::string runtime_name() const;      // "cuda 13.0"
    std::string collectives_name() const;  // "nccl 2.28.9"
};

// Opens `library` and `runtime` where given. Otherwise looks for them, newest first, by soname (as
// LD_LIBRARY_PATH and the system's configuration say), in the folders of COLLSCOPE_LIBRARY_PATH
// (parted by colons), and where the vendor installs them.
Libraries load_libraries(const Vendor& vendor, const std::string& library,
                         const std::string& runtime);

// The vendors that `backend` ("auto" or a vendor's name) and the file name of `library` leave open.
std::vector<const Vendor*> vendors_for(const std::string& backend, const std::string& library);

// Libraries of the first vendor with a usable GPU. Without any, `error` has a reason for each.
Libraries load_usable(const std::string& backend, const std::string& library,
                      const std::string& runtime);

// The runtime alone, without a collective library, of the first vendor with a usable GPU.
Libraries load_usable_runtime(const std::string& backend, const std::string& runtime);

}  // namespace collscope::gpu
