// Finds and binds the shared libraries that the GPU work needs.
#pragma once

#include <functional>
#include <string>

#include "compute/api.h"
#include "gpu/search.h"

namespace collscope::gpu {

// Binds the functions of an opened library; the name of the first that it lacks, else empty.
std::string bind(void* handle, Cublas& api);
std::string bind(void* handle, Rocblas& api);
std::string bind(void* handle, Nvrtc& api);
std::string bind(void* handle, Hiprtc& api);
std::string bind(void* handle, CudaModule& api);
std::string bind(void* handle, HipModule& api);

// Opens `given`, or the candidates of `file` one after the other, until `use` returns an empty
// text; otherwise `use` returns what is wrong. When none works, returns the error of `given`, else
// of the first candidate that exists, else "not found".
std::string first_that_works(const LibraryFile& file, const std::string& given,
                             const std::function<std::string(void* handle)>& use);

}  // namespace collscope::gpu
