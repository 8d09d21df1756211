// What can be known of the process and its GPU without linking a GPU runtime: what is loaded
// already is asked.
#pragma once

#include <cstdint>
#include <string>

namespace collscope::recorder {

struct Device {
    int number = -1;  // as the application counts; -1 not known
    std::string bus_id;
    std::string name;
};

std::string host_name();

// World rank and size of the launcher's environment; "" and 0 where none has them.
std::string world_rank();
std::uint32_t world_size();

// The version of the library in which an address lies; 0 where it does not say.
int library_version(const void* inside);

// True where the HIP runtime is loaded.
bool has_hip();

// The device that is current on this thread.
Device current_device();

// ns of the host's clocks.
std::uint64_t monotonic_ns();
std::uint64_t real_ns();

// CPU time of this thread in ns.
std::uint64_t thread_cpu_ns();

}  // namespace collscope::recorder
