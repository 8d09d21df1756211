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

// Of several spellings the first that the library has; nothing is wanted where there is none.
template <typename Function>
void resolve(void* handle, const Spellings& names, bool required, Function*& out,
             Symbols& symbols) {
    const char* wanted = names[0];
    for (const char* name : names) {
        if (name && dlsym(handle, name)) {
            wanted = name;
            break;
        }
    }
    if (wanted) {
        resolve(handle, std::string(wanted), required, out, symbols);
    }
}

std::string path_of(void* symbol, const std::string& opened) {
    Dl_info info{};
    if (!symbol || !dladdr(symbol, &info) || !info.dli_fname) {
        return opened;
    }
    return info.dli_fname;
}

std::string lacks(std::string_view what, const std::string& path, const Symbols& symbols) {
    std::string names;
    for (const std::string& name : symbols.missing_required) {
        names += (names.empty() ? "" : ", ") + name;
    }
    return std::string(what) + ": " + path + " lacks " + names + ". Use a newer one.";
}

}  // namespace

std::string resolve_collectives(void* handle, const Vendor& vendor, const std::string& opened,
                                CollectiveLibrary& api, Symbols& symbols) {
#define COLLSCOPE_RESOLVE(member, name, parameters) \
    resolve(handle, #name, required, api.member, symbols);
    bool required = true;
    COLLSCOPE_COLLECTIVE_REQUIRED(COLLSCOPE_RESOLVE)
    resolve(handle, "ncclGetErrorString", required, api.get_error_string, symbols);
    required = false;
    COLLSCOPE_COLLECTIVE_OPTIONAL(COLLSCOPE_RESOLVE)
#undef COLLSCOPE_RESOLVE
#define COLLSCOPE_RESOLVE(member, parameters) \
    resolve(handle, vendor.member, required, api.member, symbols);
    COLLSCOPE_COLLECTIVE_SPELLED(COLLSCOPE_RESOLVE)
#undef COLLSCOPE_RESOLVE
    resolve(handle, "ncclGetLastError", required, api.get_last_error, symbols);
    api.name = vendor.library_name;
    api.path = path_of(reinterpret_cast<void*>(api.get_version), opened);
    if (!symbols.missing_required.empty()) {
        return lacks(vendor.library_label, api.path, symbols);
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

std::string resolve_runtime(void* handle, const Vendor& vendor, const std::string& opened,
                            Runtime& api, Symbols& symbols) {
    api.vendor = &vendor;
#define COLLSCOPE_RESOLVE(member, name, parameters) \
    resolve(handle, api.function(#name), required, api.member, symbols);
    bool required = true;
    COLLSCOPE_RUNTIME_REQUIRED(COLLSCOPE_RESOLVE)
    resolve(handle, api.function("GetErrorString"), required, api.get_error_string, symbols);
    required = false;
    COLLSCOPE_RUNTIME_OPTIONAL(COLLSCOPE_RESOLVE)
#undef COLLSCOPE_RESOLVE
#define COLLSCOPE_RESOLVE(member, parameters)                                        \
    if (vendor.member) {                                                             \
        resolve(handle, api.function(vendor.member), required, api.member, symbols); \
    }
    COLLSCOPE_RUNTIME_SPELLED(COLLSCOPE_RESOLVE)
#undef COLLSCOPE_RESOLVE
    api.path = path_of(reinterpret_cast<void*>(api.runtime_get_version), opened);
    if (!symbols.missing_required.empty()) {
        return lacks(vendor.runtime_label, api.path, symbols);
    }
    if (const int rc = api.runtime_get_version(&api.version); rc != success) {
        return api.path + ": " + api.function("RuntimeGetVersion") + " failed with " +
               std::to_string(rc) + ". Use another one.";
    }
    return {};
}

std::string format_collective_version(int version) {
    // 1000 * major before 2.9 (2708), 10000 * major since (22809).
    const int major = version >= 10000 ? 10000 : 1000;
    return std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." +
           std::to_string(version % 100);
}

}  // namespace collscope::gpu
