#include "process.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

namespace collscope::recorder {

namespace {

std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// A library that the process has loaded, or null; nothing is loaded.
void* loaded(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (void* found = dlopen(name, RTLD_NOW | RTLD_NOLOAD); found != nullptr) {
            return found;
        }
    }
    return nullptr;
}

template <typename Function>
Function symbol(void* library, const char* name) {
    return reinterpret_cast<Function>(dlsym(library, name));
}

void* hip_runtime() { return loaded({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"}); }

std::string first_of(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
            return value;
        }
    }
    return "";
}

// The device by three functions that both runtimes have in the same form.
Device device_of(void* library, const char* get_name, const char* bus_name, const char* name_name) {
    Device found;
    const auto get = symbol<int (*)(int*)>(library, get_name);
    const auto bus = symbol<int (*)(char*, int, int)>(library, bus_name);
    const auto name = symbol<int (*)(char*, int, int)>(library, name_name);
    std::array<char, 64> text{};
    const int size = static_cast<int>(text.size());
    if (get == nullptr || get(&found.number) != 0) {
        return {};
    }
    if (bus != nullptr && bus(text.data(), size, found.number) == 0) {
        found.bus_id = text.data();
    }
    if (name != nullptr && name(text.data(), size, found.number) == 0) {
        found.name = text.data();
    }
    return found;
}

}  // namespace

std::string host_name() {
    std::array<char, 256> text{};
    gethostname(text.data(), text.size() - 1);
    return text.data();
}

std::string world_rank() {
    return first_of({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
}

std::uint32_t world_size() {
    const std::string text =
        first_of({"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
    return static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
}

int library_version(const void* inside) {
    Dl_info info{};
    if (dladdr(inside, &info) == 0 || info.dli_fname == nullptr) {
        return 0;
    }
    void* library = loaded({info.dli_fname});
    if (library == nullptr) {
        return 0;
    }
    const auto ask = symbol<int (*)(int*)>(library, "ncclGetVersion");
    int version = 0;
    return ask != nullptr && ask(&version) == 0 ? version : 0;
}

bool has_hip() { return hip_runtime() != nullptr; }

Device current_device() {
    if (void* hip = hip_runtime(); hip != nullptr) {
        return device_of(hip, "hipGetDevice", "hipDeviceGetPCIBusId", "hipDeviceGetName");
    }
    if (void* driver = loaded({"libcuda.so.1"}); driver != nullptr) {
        return device_of(driver, "cuCtxGetDevice", "cuDeviceGetPCIBusId", "cuDeviceGetName");
    }
    return {};
}

std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t real_ns() { return clock_ns(CLOCK_REALTIME); }
std::uint64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace collscope::recorder
