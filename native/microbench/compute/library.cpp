#include "compute/library.h"

#include <dlfcn.h>

namespace collscope::gpu {

namespace {

template <typename Function>
void find(void* handle, const char* name, Function*& out, std::string& missing) {
    out = reinterpret_cast<Function*>(dlsym(handle, name));
    if (!out && missing.empty()) {
        missing = std::string("it lacks ") + name;
    }
}

}  // namespace

#define COLLSCOPE_FIND(member, name, parameters) find(handle, #name, api.member, missing);
#define COLLSCOPE_BIND(Api, LIST)              \
    std::string bind(void* handle, Api& api) { \
        std::string missing;                   \
        LIST(COLLSCOPE_FIND)                   \
        return missing;                        \
    }
COLLSCOPE_BIND(Cublas, COLLSCOPE_CUBLAS)
COLLSCOPE_BIND(Rocblas, COLLSCOPE_ROCBLAS)
COLLSCOPE_BIND(Nvrtc, COLLSCOPE_NVRTC)
COLLSCOPE_BIND(Hiprtc, COLLSCOPE_HIPRTC)
COLLSCOPE_BIND(CudaModule, COLLSCOPE_CUDA_MODULE)
COLLSCOPE_BIND(HipModule, COLLSCOPE_HIP_MODULE)

std::string first_that_works(const LibraryFile& file, const std::string& given,
                             const std::function<std::string(void* handle)>& use) {
    std::string reason;
    for (const std::string& name : given.empty() ? candidates(file) : std::vector{given}) {
        void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        const std::string wrong = handle ? use(handle) : dlerror();
        if (wrong.empty()) {
            return {};
        }
        // A soname that does not exist must not hide the error of a file that does.
        if ((handle || !given.empty()) && reason.empty()) {
            reason = name + ": " + wrong;
        }
    }
    return reason.empty() ? std::string(file.stem) + ": not found" : reason;
}

}  // namespace collscope::gpu
