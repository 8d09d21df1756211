// Resolves the functions of an opened library and asks for its version.
#pragma once

#include <string>
#include <vector>

#include "collective_api.h"
#include "runtime_api.h"

namespace collscope::gpu {

// What came of resolving the functions of one library.
struct Symbols {
    int wanted = 0;
    std::vector<std::string> missing_required;
    std::vector<std::string> missing_optional;

    int resolved() const {
        return wanted - static_cast<int>(missing_required.size() + missing_optional.size());
    }
};

// Both return a sentence when the library cannot be used; `api` and `symbols` then have the rest.
// `handle` is from dlopen, `opened` the name it was opened by.
std::string resolve_collectives(void* handle, const Vendor& vendor, const std::string& opened,
                                CollectiveLibrary& api, Symbols& symbols);
std::string resolve_runtime(void* handle, const Vendor& vendor, const std::string& opened,
                            Runtime& api, Symbols& symbols);

// 22809 -> "2.28.9" (NCCL_VERSION)
std::string format_collective_version(int version);

}  // namespace collscope::gpu
