#include "host_machine.h"

#include <mpi.h>
#include <sys/statvfs.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace collscope {

// The message of the processor's model line in Linux; "cpu" elsewhere.
std::string processor() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) {
            const std::size_t colon = line.find(": ");
            return colon == std::string::npos ? "cpu" : line.substr(colon + 2);
        }
    }
    return "cpu";
}

// MPICH Version:      5.0.2\nMPICH Release date: …
// Open MPI v5.0.8, package: …
// Intel(R) MPI Library 2021.10 for Linux* OS
// MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)
std::string mpi_library() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string all(text.data());
    const std::size_t digit = all.find_first_of("0123456789");
    const std::size_t end = all.find_first_of(" ,\t\r\n", digit);
    const std::string version = digit == std::string::npos ? "" : all.substr(digit, end - digit);
    const bool cray = all.find("CRAY MPICH") != std::string::npos;
    return (all.starts_with("Open MPI")   ? "openmpi "
            : all.starts_with("Intel(R)") ? "intelmpi "
            : cray                        ? "cray-mpich "
                                          : "mpich ") +
           version;
}

Status mpi_status(int code, const char* function) {
    if (code == MPI_SUCCESS) [[likely]] {
        return {};
    }
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    return {std::string(function) + ": " + text.data()};
}

// MemAvailable:   12345678 kB
std::size_t available_bytes() {
    std::ifstream info("/proc/meminfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("MemAvailable:")) {
            return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
        }
    }
    return SIZE_MAX;
}

std::size_t shareable_bytes() {
    struct statvfs found {};
    return statvfs("/dev/shm", &found) == 0 ? found.f_bavail * found.f_frsize : SIZE_MAX;
}

}  // namespace collscope
