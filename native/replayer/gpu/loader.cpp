#include "loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

#include "resolve.h"
#include "search.h"

namespace collscope::gpu {
namespace {

void* open(const std::string& name, std::string& reason) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) {
        return handle;
    }
    const std::string text = dlerror();
    // A file that exists and does not load is a better reason than a missing name.
    const bool absent = text.starts_with(name + ": cannot open shared object file");
    if (!absent || name.find('/') != std::string::npos) {
        reason = text;
    }
    return nullptr;
}

std::string not_found(std::string_view label, const LibraryFile& file, const char* option,
                      std::string reason) {
    if (reason.empty()) {
        for (const std::string& soname : sonames_of(file)) {
            reason += (reason.empty() ? "" : ", ") + soname;
        }
        reason += " not found";
    }
    return std::string(label) + ": " + reason + ". Give its path with " + option +
           ", or its folder in LD_LIBRARY_PATH.";
}

std::string runtime_not_found(const Vendor& vendor, const std::string& reason) {
    return not_found(vendor.runtime_label, vendor.runtime, "--runtime", reason);
}

void count_devices(Libraries& out) {
    // CUDA leaves the count alone when it fails, so it has to start at 0.
    int count = 0;
    const int rc = out.runtime.get_device_count(&count);
    const std::string function = out.runtime.function("GetDeviceCount");
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
std::vector<std::string> runtime_candidates(const Vendor& vendor, const std::string& nccl_path) {
    std::vector<std::string> names = candidates(vendor.runtime);
    if (!vendor.linked_to_runtime) {
        // NCCL takes streams of another runtime than its own, since both share the driver's primary
        // context. One of the same major version needs no newer driver than NCCL does.
        const std::string major = ".so." + std::to_string(cuda_major_of_nccl(nccl_path));
        std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
            const std::size_t at = name.find(major);
            return at != std::string::npos &&
                   (at + major.size() == name.size() || name[at + major.size()] == '.');
        });
    }
    return names;
}

// The runtime that came with the library.
void* linked_runtime(const Vendor& vendor) {
    for (const std::string& soname : sonames_of(vendor.runtime)) {
        if (void* handle = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
            return handle;
        }
    }
    return nullptr;
}

void use_runtime(void* handle, const Vendor& vendor, const std::string& opened, Libraries& out) {
    out.error = resolve_runtime(handle, vendor, opened, out.runtime, out.runtime_symbols);
    if (out.ok()) {
        count_devices(out);
    }
}

void find_runtime(const Vendor& vendor, Libraries& out) {
    if (void* linked = vendor.linked_to_runtime ? linked_runtime(vendor) : nullptr) {
        use_runtime(linked, vendor, vendor.runtime.stem, out);
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
        out.error = runtime_not_found(vendor, reason);
        return;
    }
    out.runtime = std::move(chosen.runtime);
    out.runtime_symbols = std::move(chosen.runtime_symbols);
    out.error = std::move(chosen.error);
    out.devices = chosen.devices;
    out.no_gpu = std::move(chosen.no_gpu);
}

void open_runtime(const Vendor& vendor, const std::string& path, Libraries& out) {
    std::string reason;
    void* handle = open(path, reason);
    if (!handle) {
        out.error = runtime_not_found(vendor, reason);
        return;
    }
    use_runtime(handle, vendor, path, out);
}

void find_collectives(const Vendor& vendor, const std::string& path, Libraries& out) {
    std::string reason;
    for (const std::string& name : path.empty() ? candidates(vendor.library) : std::vector{path}) {
        void* handle = open(name, reason);
        if (!handle) {
            continue;
        }
        out.error =
            resolve_collectives(handle, vendor, name, out.collectives, out.collective_symbols);
        return;
    }
    out.error = not_found(vendor.library_label, vendor.library, "--library", reason);
}

// Those of the first vendor that `load` finds a usable GPU with; else `error` has a reason for
// each.
template <typename Load>
Libraries first_usable(const std::vector<const Vendor*>& open, Load load) {
    std::string errors;
    for (const Vendor* vendor : open) {
        Libraries loaded = load(*vendor);
        if (loaded.ok() && loaded.devices > 0) {
            return loaded;
        }
        const std::string error = loaded.ok() ? std::string(vendor->name) +
                                                    ": no usable GPU: " + loaded.no_gpu +
                                                    ". Check the driver, or use --backend host."
                                              : loaded.error;
        errors += (errors.empty() ? "" : " ") + error;
    }
    Libraries none;
    none.error = errors;
    return none;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The file name of a named runtime shows its vendor, such as libamdhip64.so.
std::vector<const Vendor*> vendors_for_runtime(const std::string& backend,
                                               const std::string& runtime) {
    if (backend != "auto" || runtime.empty()) {
        return vendors_for(backend, "");
    }
    const auto named = std::ranges::find_if(vendors, [&](const Vendor* vendor) {
        return file_name(runtime).find(vendor->name) != std::string_view::npos;
    });
    return {named == vendors.end() ? vendors.front() : *named};
}

}  // namespace

Libraries load_libraries(const Vendor& vendor, const std::string& library,
                         const std::string& runtime) {
    Libraries out;
    out.runtime.vendor = &vendor;
    // A runtime that was asked for is opened first, so that the library is linked to it.
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
    if (vendor.linked_to_runtime && out.ok()) {
        const std::vector<std::string> files =
            loaded_files(std::string(vendor.runtime.stem) + ".so");
        if (files.size() > 1) {
            out.error = std::string(vendor.runtime_label) + ": " + files[0] + " and " + files[1] +
                        " are both loaded. Use an " + std::string(vendor.library_label) +
                        " that was built for the runtime.";
        }
    }
    return out;
}

std::vector<const Vendor*> vendors_for(const std::string& backend, const std::string& library) {
    if (const Vendor* named = vendor_named(backend)) {
        return {named};
    }
    for (const Vendor* vendor : vendors) {
        if (file_name(library).find(vendor->library_name) != std::string_view::npos) {
            return {vendor};
        }
    }
    return {vendors.begin(), vendors.end()};
}

Libraries load_usable(const std::string& backend, const std::string& library,
                      const std::string& runtime) {
    return first_usable(vendors_for(backend, library), [&](const Vendor& vendor) {
        return load_libraries(vendor, library, runtime);
    });
}

Libraries load_usable_runtime(const std::string& backend, const std::string& runtime) {
    return first_usable(vendors_for_runtime(backend, runtime), [&](const Vendor& vendor) {
        Libraries out;
        out.runtime.vendor = &vendor;
        if (runtime.empty()) {
            find_runtime(vendor, out);
        } else {
            open_runtime(vendor, runtime, out);
        }
        return out;
    });
}

std::string Libraries::runtime_name() const {
    return std::string(runtime.vendor->name) + " " +
           runtime.vendor->runtime_version(runtime.version);
}

std::string Libraries::collectives_name() const {
    return collectives.name + " " + format_collective_version(collectives.version);
}

}  // namespace collscope::gpu
