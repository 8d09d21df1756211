#include "loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "resolve.h"
#include "search.h"

namespace collscope::gpu {
namespace {

LibraryFile collective_file(Vendor vendor) {
    if (vendor == Vendor::Cuda) {
        return {"libnccl", {"libnccl.so.2"}, ""};
    }
    const char* rocm = std::getenv("ROCM_PATH");
    return {"librccl", {"librccl.so.1"}, std::string(rocm ? rocm : "/opt/rocm") + "/lib"};
}

LibraryFile runtime_file(Vendor vendor) {
    if (vendor == Vendor::Cuda) {
        return {"libcudart", {"libcudart.so.13", "libcudart.so.12"}, ""};
    }
    const char* rocm = std::getenv("ROCM_PATH");
    return {"libamdhip64",
            {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
            std::string(rocm ? rocm : "/opt/rocm") + "/lib"};
}

void* open(const std::string& name, std::string& reason) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) {
        return handle;
    }
    const std::string text = dlerror();
    // A file that exists and does not load says more than a name that is not there.
    const bool absent = text.starts_with(name + ": cannot open shared object file");
    if (!absent || name.find('/') != std::string::npos) {
        reason = text;
    }
    return nullptr;
}

std::string not_found(const LibraryFile& file, Vendor vendor, bool runtime, std::string reason) {
    if (reason.empty()) {
        for (const std::string& soname : file.sonames) {
            reason += (reason.empty() ? "" : ", ") + soname;
        }
        reason += " not found";
    }
    return std::string(label(vendor, runtime)) + ": " + reason + ". Give its path with " +
           (runtime ? "--runtime" : "--library") + ", or its folder in LD_LIBRARY_PATH.";
}

void count_devices(Libraries& out) {
    // CUDA leaves the count alone when it fails, so it has to start at 0.
    int count = 0;
    const int rc = out.runtime.get_device_count(&count);
    const std::string function = std::string(name_of(out.runtime.vendor)) + "GetDeviceCount";
    if (rc == success && count > 0) {
        out.devices = count;
        out.no_gpu.clear();
    } else if (rc == success) {
        out.no_gpu = function + " found none";
    } else {
        // 35 (no driver, or one older than the runtime) and 100 (no device) among others.
        out.no_gpu = std::string(out.runtime.get_error_string(rc)) + " (" + function + ": error " +
                     std::to_string(rc) + ")";
        out.runtime.get_last_error();
    }
}

// Names of the runtime in the order to try them.
std::vector<std::string> runtime_candidates(Vendor vendor, const std::string& nccl_path) {
    std::vector<std::string> names = candidates(runtime_file(vendor));
    if (vendor == Vendor::Cuda) {
        // NCCL carries a runtime of its own and takes streams of any other, since both share the
        // driver's primary context; one of the same major needs no newer driver than NCCL does.
        const std::string major = ".so." + std::to_string(cuda_major_of_nccl(nccl_path));
        std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
            const std::size_t at = name.find(major);
            return at != std::string::npos && (at + major.size() == name.size() ||
                                               name[at + major.size()] == '.');
        });
    }
    return names;
}

// HIP's streams are objects of the runtime, so it has to be the one that RCCL was linked to.
void* runtime_of_rccl() {
    for (const std::string& soname : runtime_file(Vendor::Hip).sonames) {
        if (void* handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
            return handle;
        }
    }
    return nullptr;
}

void use_runtime(void* handle, Vendor vendor, const std::string& opened, Libraries& out) {
    out.error = resolve_runtime(handle, vendor, opened, out.runtime, out.runtime_symbols);
    if (out.ok()) {
        count_devices(out);
    }
}

void find_runtime(Vendor vendor, Libraries& out) {
    if (void* linked = vendor == Vendor::Hip ? runtime_of_rccl() : nullptr) {
        use_runtime(linked, vendor, runtime_file(vendor).stem, out);
        return;
    }
    // The first that works is taken, unless a later one sees GPUs: an old driver refuses a new one.
    enum Worth { Absent, Unusable, Works, SeesGpus } best = Absent;
    std::string reason;
    Libraries chosen;
    for (const std::string& name : runtime_candidates(vendor, out.collectives.path)) {
        void* handle = best == SeesGpus ? nullptr : open(name, reason);
        if (!handle) {
            continue;
        }
        Libraries tried;
        use_runtime(handle, vendor, name, tried);
        const Worth worth = !tried.ok() ? Unusable : tried.devices == 0 ? Works : SeesGpus;
        if (worth > best) {
            best = worth;
            chosen = std::move(tried);
        }
    }
    if (best == Absent) {
        out.error = not_found(runtime_file(vendor), vendor, true, reason);
        return;
    }
    out.runtime = std::move(chosen.runtime);
    out.runtime_symbols = std::move(chosen.runtime_symbols);
    out.error = std::move(chosen.error);
    out.devices = chosen.devices;
    out.no_gpu = std::move(chosen.no_gpu);
}

void open_runtime(Vendor vendor, const std::string& path, Libraries& out) {
    std::string reason;
    void* handle = open(path, reason);
    if (!handle) {
        out.error = not_found(runtime_file(vendor), vendor, true, reason);
        return;
    }
    use_runtime(handle, vendor, path, out);
}

void find_collectives(Vendor vendor, const std::string& path, Libraries& out) {
    const LibraryFile file = collective_file(vendor);
    std::string reason;
    for (const std::string& name : path.empty() ? candidates(file) : std::vector{path}) {
        void* handle = open(name, reason);
        if (!handle) {
            continue;
        }
        out.error = resolve_collectives(handle, vendor, name, out.collectives,
                                        out.collective_symbols);
        return;
    }
    out.error = not_found(file, vendor, false, reason);
}

// Those of the first vendor that `load` finds a usable GPU with; else `error` tells why, for each.
template <typename Load>
Libraries first_usable(const std::vector<Vendor>& vendors, Load load) {
    std::string errors;
    for (const Vendor vendor : vendors) {
        Libraries loaded = load(vendor);
        if (loaded.ok() && loaded.devices > 0) {
            return loaded;
        }
        const std::string error =
            loaded.ok() ? std::string(name_of(vendor)) + ": no usable GPU: " + loaded.no_gpu +
                              ". Check the driver, or use --backend host."
                        : loaded.error;
        errors += (errors.empty() ? "" : " ") + error;
    }
    Libraries none;
    none.error = errors;
    return none;
}

// A runtime that was named tells its vendor by its file name.
std::vector<Vendor> vendors_for_runtime(const std::string& backend, const std::string& runtime) {
    if (backend == "auto" && !runtime.empty()) {
        const std::string name = runtime.substr(runtime.find_last_of('/') + 1);
        return {name.find("hip") != std::string::npos ? Vendor::Hip : Vendor::Cuda};
    }
    return vendors_for(backend, "");
}

}  // namespace

Libraries load_libraries(Vendor vendor, const std::string& library, const std::string& runtime) {
    Libraries out;
    out.runtime.vendor = vendor;
    // A runtime that was asked for is opened first, so that RCCL is linked to it.
    if (!runtime.empty()) {
        open_runtime(vendor, runtime, out);
    }
    if (out.ok()) {
        find_collectives(vendor, library, out);
    }
    if (runtime.empty()) {
        const std::string error = out.error;
        find_runtime(vendor, out);
        if (!error.empty()) {
            out.error = error;
        }
    }
    if (vendor == Vendor::Hip && out.ok()) {
        const std::vector<std::string> files = loaded_files("libamdhip64.so");
        if (files.size() > 1) {
            out.error = "HIP runtime: " + files[0] + " and " + files[1] +
                        " are both loaded. Use an RCCL that was built for the runtime.";
        }
    }
    return out;
}

std::vector<Vendor> vendors_for(const std::string& backend, const std::string& library) {
    if (backend == "cuda") {
        return {Vendor::Cuda};
    }
    if (backend == "hip") {
        return {Vendor::Hip};
    }
    const std::string name = library.substr(library.find_last_of('/') + 1);
    if (name.find("rccl") != std::string::npos) {
        return {Vendor::Hip};
    }
    if (name.find("nccl") != std::string::npos) {
        return {Vendor::Cuda};
    }
    return {Vendor::Cuda, Vendor::Hip};
}

Libraries load_usable(const std::string& backend, const std::string& library,
                      const std::string& runtime) {
    return first_usable(vendors_for(backend, library), [&](Vendor vendor) {
        return load_libraries(vendor, library, runtime);
    });
}

Libraries load_usable_runtime(const std::string& backend, const std::string& runtime) {
    return first_usable(vendors_for_runtime(backend, runtime), [&](Vendor vendor) {
        Libraries out;
        out.runtime.vendor = vendor;
        if (runtime.empty()) {
            find_runtime(vendor, out);
        } else {
            open_runtime(vendor, runtime, out);
        }
        return out;
    });
}

std::string Libraries::runtime_name() const {
    return std::string(name_of(runtime.vendor)) + " " +
           format_runtime_version(runtime.vendor, runtime.version);
}

std::string Libraries::collectives_name() const {
    return collectives.name + " " + format_collective_version(collectives.version);
}

}  // namespace collscope::gpu
