#include "vendors.h"

#include <algorithm>

namespace collscope::gpu {

const Vendor* vendor_named(std::string_view backend) {
    const auto found = std::ranges::find(vendors, backend, &Vendor::name);
    return found == vendors.end() ? nullptr : *found;
}

bool is_backend(std::string_view name) {
    return name == "auto" || name == "host" || vendor_named(name);
}

std::string vendor_names() {
    std::string names;
    for (const Vendor* vendor : vendors) {
        names += (names.empty() ? "" : ", ") + std::string(vendor->name);
    }
    return names;
}

}  // namespace collscope::gpu
