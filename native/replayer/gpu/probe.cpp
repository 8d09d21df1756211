#include "probe.h"

#include <algorithm>
#include <vector>

#include "loader.h"

namespace collscope::gpu {
namespace {

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

// hip runtime: hip 5.7.31921, /usr/lib/libamdhip64.so.5
// hip runtime: 27 of 28 functions; not there, not required: hipGetDevicePropertiesR0600
void print_library(const std::string& what, const std::string& version, const std::string& path,
                   const Symbols& symbols, std::ostream& out) {
    if (symbols.wanted == 0) {
        out << what << ": not loaded\n";
        return;
    }
    out << what << ": " << version << ", " << path << '\n';
    out << what << ": " << symbols.resolved() << " of " << symbols.wanted << " functions";
    if (!symbols.missing_required.empty()) {
        out << "; MISSING: " << joined(symbols.missing_required);
    }
    if (!symbols.missing_optional.empty()) {
        out << "; not there, not required: " << joined(symbols.missing_optional);
    }
    out << '\n';
}

// False when the library gives no id, which it needs no GPU for.
bool print_unique_id(const std::string& what, const CollectiveLibrary& library, std::ostream& out) {
    UniqueId id{};
    const int rc = library.get_unique_id(&id);
    const bool blank = std::all_of(std::begin(id.internal), std::end(id.internal),
                                   [](char byte) { return byte == 0; });
    if (rc != collective_success) {
        const char* last = library.get_last_error ? library.get_last_error(nullptr) : "";
        out << what << ": no unique id: " << library.get_error_string(rc) << " (result " << rc
            << ") " << last << '\n';
    } else {
        out << what << ": unique id " << (blank ? "is blank" : "ok") << '\n';
    }
    return rc == collective_success && !blank;
}

bool probe_vendor(const Vendor& vendor, const std::string& library, const std::string& runtime,
                  std::ostream& out) {
    const Libraries found = load_libraries(vendor, library, runtime);
    const std::string prefix(vendor.name);
    print_library(prefix + " runtime", found.runtime_name(), found.runtime.path,
                  found.runtime_symbols, out);
    print_library(prefix + " collectives", found.collectives_name(), found.collectives.path,
                  found.collective_symbols, out);
    if (!found.ok()) {
        out << prefix << ": unusable: " << found.error << '\n';
        return false;
    }
    const bool has_id = print_unique_id(prefix + " collectives", found.collectives, out);
    out << prefix << " GPUs: ";
    if (found.devices > 0) {
        out << found.devices << '\n';
    } else {
        out << "no usable GPU: " << found.no_gpu << '\n';
    }
    return has_id;
}

}  // namespace

int probe(const std::string& backend, const std::string& library, const std::string& runtime,
          std::ostream& out) {
    bool usable = false;
    for (const Vendor* vendor : vendors_for(backend, library)) {
        usable = probe_vendor(*vendor, library, runtime, out) || usable;
        out.flush();
    }
    return usable ? 0 : 5;
}

}  // namespace collscope::gpu
