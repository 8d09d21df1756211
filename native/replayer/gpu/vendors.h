// The vendors of GPUs that the replayer knows: one row each.
//
// A runtime with CUDA's functions under a prefix of its own, and a library with NCCL's functions,
// need a row here, its place in `vendors`, and a row in collscope/gpu_vendors.py. A test holds
// both tables equal. Where the vendor's headers are at hand, check_abi/ compares them.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace collscope::gpu {

// A library as the loader knows it.
struct LibraryFile {
    const char* stem = "";                 // "libnccl"
    std::array<const char*, 4> sonames{};  // newest first; null behind the last
    // The folder to look into last; null: none. Where the variable is set, it is DIR/lib instead.
    const char* installed_in = nullptr;
    const char* root_variable = nullptr;  // ROCM_PATH
};

// Libraries of computation that `bench interference` loads beside the collectives.
enum class Toolkit { None, Cuda, Rocm };

// Names of one function. A library has one or several of them; null where there are fewer.
using Spellings = std::array<const char*, 2>;

struct Vendor {
    std::string_view name;           // the backend's name and the prefix of the runtime's functions
    std::string_view runtime_label;  // in messages
    LibraryFile runtime;
    std::string_view library_name;   // in results, and a part of the library's file name
    std::string_view library_label;  // in messages
    LibraryFile library;
    std::string (*runtime_version)(int version);  // "13.0" of what RuntimeGetVersion gives

    // Names that vendors spell differently; null: there is no such function. Those of the runtime
    // stand without its prefix.
    const char* host_alloc;  // pinned host memory
    const char* host_free;
    const char* new_device_properties;  // taken before GetDeviceProperties
    // Of the collectives' library, the newest spelling first.
    Spellings all_to_all;
    Spellings all_to_allv;

    int multiprocessor_count;           // number of the attribute of a device
    unsigned (*ipc_flag)(int version);  // the only one that IpcOpenMemHandle takes
    // The library takes only streams of the runtime that it is linked to. Otherwise it carries a
    // runtime of its own, and takes streams of any.
    bool linked_to_runtime;
    bool partitions_share_address;  // parts of a GPU have its PCI address
    const char* architecture;       // begins its name in the device's properties; null: none there
    Toolkit toolkit;
};

// CUDART_VERSION: 13000 is 13.0
inline std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// HIP_VERSION: 50731921 is 5.7.31921
inline std::string hip_version(int version) {
    return std::to_string(version / 10000000) + "." + std::to_string(version % 10000000 / 100000) +
           "." + std::to_string(version % 100000);
}

inline constexpr Vendor cuda = {
    .name = "cuda",
    .runtime_label = "CUDA runtime",
    .runtime = {"libcudart", {"libcudart.so.13", "libcudart.so.12"}},
    .library_name = "nccl",
    .library_label = "NCCL",
    .library = {"libnccl", {"libnccl.so.2"}},
    .runtime_version = cuda_version,
    .host_alloc = "HostAlloc",
    .host_free = "FreeHost",
    .new_device_properties = nullptr,
    .all_to_all = {"ncclAlltoAll"},
    .all_to_allv = {},
    .multiprocessor_count = 16,
    .ipc_flag = [](int) { return 1U; },
    .linked_to_runtime = false,
    .partitions_share_address = false,
    .architecture = nullptr,
    .toolkit = Toolkit::Cuda,
};

inline constexpr Vendor hip = {
    .name = "hip",
    .runtime_label = "HIP runtime",
    .runtime = {"libamdhip64",
                {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
                "/opt/rocm/lib",
                "ROCM_PATH"},
    .library_name = "rccl",
    .library_label = "RCCL",
    .library = {"librccl", {"librccl.so.1"}, "/opt/rocm/lib", "ROCM_PATH"},
    .runtime_version = hip_version,
    .host_alloc = "HostMalloc",
    .host_free = "HostFree",
    .new_device_properties = "GetDevicePropertiesR0600",  // since HIP 6, by a macro of its header
    // RCCL 2.30 (rocm-bindings-systems 10.0) has both, and calls the second ones deprecated.
    .all_to_all = {"ncclAlltoAll", "ncclAllToAll"},
    .all_to_allv = {"ncclAlltoAllv", "ncclAllToAllv"},
    .multiprocessor_count = 63,
    .ipc_flag = [](int version) { return version < 60000000 ? 0U : 1U; },  // 0 in HIP 5.7's header
    .linked_to_runtime = true,
    .partitions_share_address = true,
    .architecture = "gfx",  // as in gfx942:sramecc+:xnack-
    .toolkit = Toolkit::Rocm,
};

// In the order in which `--backend auto` tries them.
inline constexpr std::array vendors = {&cuda, &hip};

// That of a backend; null for `auto`, `host` and names of none.
const Vendor* vendor_named(std::string_view backend);

// "auto", "host" or a vendor's name.
bool is_backend(std::string_view name);

// "cuda, hip", for texts of usage.
std::string vendor_names();

}  // namespace collscope::gpu
