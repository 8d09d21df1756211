#include "resolve.h"

#include <dlfcn.h>

namespace collscope::gpu {
namespace {

template <typename Function>
void resolve(void* handle, const std::string& name, bool required, Function*& out,
             Symbols& symbols) {
    ++symbols.wanted;
    out = reinterpret_cast<Function*>(dlsym(handle, name.c_str()));
    if (!out) {
        (required ? symbols.missing_required : symbols.missing_optional).push_back(name);
    }
}

std::string path_of(void* symbol, const std::string& opened) {
    Dl_info info{};
    if (!symbol || !dladdr(symbol, &info) || !info.dli_fname) {
        return opened;
    }
    return info.dli_fname;
}

std::string lacks(const std::string& what, const std::string& path, const Symbols& symbols) {
    std::string names;
    for (const std::string& name : symbols.missing_required) {
        names += (names.empty() ? "" : ", ") + name;
    }
    return what + ": " + path + " lacks " + names + ". Use a newer one.";
}

}  // namespace

const char* label(Vendor vendor, bool runtime) {
    if (runtime) {
        return vendor == Vendor::Cuda ? "CUDA runtime" : "HIP runtime";
    }
    return vendor == Vendor::Cuda ? "NCCL" : "RCCL";
}

std::string resolve_collectives(void* handle, Vendor vendor, const std::string& opened,
                                CollectiveLibrary& api, Symbols& symbols) {
    const bool cuda = vendor == Vendor::Cuda;
#define COLLSCOPE_RESOLVE(member, name, parameters) \
    resolve(handle, #name, required, api.member, symbols);
    bool required = true;
    COLLSCOPE_COLLECTIVE_REQUIRED(COLLSCOPE_RESOLVE)
    resolve(handle, "ncclGetErrorString", required, api.get_error_string, symbols);
    required = false;
    COLLSCOPE_COLLECTIVE_OPTIONAL(COLLSCOPE_RESOLVE)
    if (cuda) {
        COLLSCOPE_COLLECTIVE_NCCL_ONLY(COLLSCOPE_RESOLVE)
    } else {
        COLLSCOPE_COLLECTIVE_RCCL_ONLY(COLLSCOPE_RESOLVE)
    }
    resolve(handle, "ncclGetLastError", required, api.get_last_error, symbols);
#undef COLLSCOPE_RESOLVE
    api.name = cuda ? "nccl" : "rccl";
    api.path = path_of(reinterpret_cast<void*>(api.get_version), opened);
    if (!symbols.missing_required.empty()) {
        return lacks(label(vendor, false), api.path, symbols);
    }
    if (const int rc = api.get_version(&api.version); rc != collective_success) {
        return api.path + ": ncclGetVersion failed with " + std::to_string(rc) +
               ". Use another one.";
    }
    if (api.version < oldest_collective_version) {
        return api.path + ": version " + format_collective_version(api.version) +
               " is too old. Use 2.10 or newer.";
    }
    return {};
}

std::string resolve_runtime(void* handle, Vendor vendor, const std::string& opened, Runtime& api,
                            Symbols& symbols) {
    const std::string prefix = name_of(vendor);
#define COLLSCOPE_RESOLVE(member, name, parameters) \
    resolve(handle, prefix + #name, required, api.member, symbols);
    bool required = true;
    COLLSCOPE_RUNTIME_REQUIRED(COLLSCOPE_RESOLVE)
    resolve(handle, prefix + "GetErrorString", required, api.get_error_string, symbols);
    required = false;
    COLLSCOPE_RUNTIME_OPTIONAL(COLLSCOPE_RESOLVE)
    if (vendor == Vendor::Hip) {
        COLLSCOPE_RUNTIME_HIP_PINNED(COLLSCOPE_RESOLVE)
        COLLSCOPE_RUNTIME_HIP_ONLY(COLLSCOPE_RESOLVE)
    } else {
        COLLSCOPE_RUNTIME_CUDA_PINNED(COLLSCOPE_RESOLVE)
    }
#undef COLLSCOPE_RESOLVE
    api.vendor = vendor;
    api.path = path_of(reinterpret_cast<void*>(api.runtime_get_version), opened);
    if (!symbols.missing_required.empty()) {
        return lacks(label(vendor, true), api.path, symbols);
    }
    if (const int rc = api.runtime_get_version(&api.version); rc != success) {
        return api.path + ": " + prefix + "RuntimeGetVersion failed with " + std::to_string(rc) +
               ". Use another one.";
    }
    return {};
}

std::string format_collective_version(int version) {
    // 1000 * major before 2.9 (2708), 10000 * major since (22809).
    const int major = version >= 10000 ? 10000 : 1000;
    return std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." +
           std::to_string(version % 100);
}

std::string format_runtime_version(Vendor vendor, int version) {
    if (vendor == Vendor::Cuda) {
        return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    }
    return std::to_string(version / 10000000) + "." + std::to_string(version % 10000000 / 100000) +
           "." + std::to_string(version % 100000);
}

}  // namespace collscope::gpu
