// A libcudart or libamdhip64 (FAKE_PREFIX) of a host with eight GPUs, which are memory of the host
// and whose time is what the collectives say. Of the eight a process sees those that
// ROCR_VISIBLE_DEVICES, of these those that HIP_VISIBLE_DEVICES name; with CUDA those of
// CUDA_VISIBLE_DEVICES.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "stream.h"

#ifndef FAKE_PREFIX
#define FAKE_PREFIX cuda
#endif
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define NAME(suffix) JOIN(FAKE_PREFIX, suffix)
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)

namespace {

// Those of `gpus` that a variable lists by their place; all of them where it is not set.
std::vector<int> visible(const std::vector<int>& gpus, const char* variable) {
    const char* list = std::getenv(variable);
    if (list == nullptr) {
        return gpus;
    }
    std::vector<int> out;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) {
        const std::size_t digits = std::min(word.find_first_of("0123456789"), word.size());
        const std::size_t place = std::strtoul(word.c_str() + digits, nullptr, 10);
        if (place < gpus.size()) {
            out.push_back(gpus[place]);
        }
    }
    return out;
}

std::vector<int> visible() {
    const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
    return std::string(TEXT_OF(FAKE_PREFIX)) == "hip"
               ? visible(visible(all, "ROCR_VISIBLE_DEVICES"), "HIP_VISIBLE_DEVICES")
               : visible(all, "CUDA_VISIBLE_DEVICES");
}

}  // namespace

extern "C" {
int NAME(SetDevice)(int device) { return device < static_cast<int>(visible().size()) ? 0 : 101; }
int NAME(DeviceGetPCIBusId)(char* out, int length, int device) {
    std::snprintf(out, static_cast<std::size_t>(length), "0000:%02x:00.0",
                  visible()[static_cast<std::size_t>(device)] + 16);
    return 0;
}
int NAME(GetDeviceProperties)(char* out, int device) {
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    const bool mig = list != nullptr && std::string(list).rfind("MIG", 0) == 0;
    std::snprintf(out, 256, "GPU %d%s", visible()[static_cast<std::size_t>(device)],
                  mig ? " MIG 1g.18gb" : "");
    return 0;
}
int NAME(RuntimeGetVersion)(int* version) {
    *version = TEXT_OF(FAKE_PREFIX)[0] == 'c' ? 12040 : 60443484;
    return 0;
}
int NAME(GetDeviceCount)(int* count) {
    *count = static_cast<int>(visible().size());
    return 0;
}
const char* NAME(GetErrorString)(int) { return "fake driver trouble"; }
int NAME(Malloc)(void** out, std::size_t bytes) {
    *out = std::malloc(bytes);
    return *out ? 0 : 2;
}
int NAME(Free)(void* memory) {
    std::free(memory);
    return 0;
}
int NAME(MemGetInfo)(std::size_t* free, std::size_t* total) {
    *free = *total = std::size_t{1} << 30;
    return 0;
}
int NAME(MemcpyAsync)(void* to, const void* from, std::size_t bytes, int, void*) {
    std::memcpy(to, from, bytes);
    return 0;
}
int NAME(MemsetAsync)(void* to, int byte, std::size_t bytes, void*) {
    std::memset(to, byte, bytes);
    return 0;
}
int NAME(StreamCreateWithFlags)(void** out, unsigned) {
    *out = new FakeStream;
    return 0;
}
int NAME(StreamCreateWithPriority)(void** out, unsigned flags, int) {
    return NAME(StreamCreateWithFlags)(out, flags);
}
int NAME(StreamDestroy)(void* stream) {
    delete static_cast<FakeStream*>(stream);
    return 0;
}
int NAME(EventCreateWithFlags)(void** out, unsigned) {
    *out = new double(0);
    return 0;
}
int NAME(EventDestroy)(void* event) {
    delete static_cast<double*>(event);
    return 0;
}
int NAME(EventRecord)(void* event, void* stream) {
    *static_cast<double*>(event) = static_cast<FakeStream*>(stream)->us;
    return 0;
}
int NAME(EventElapsedTime)(float* out, void* start, void* stop) {
    *out = static_cast<float>((*static_cast<double*>(stop) - *static_cast<double*>(start)) / 1000);
    return 0;
}
}
