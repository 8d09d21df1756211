// A libcudart or libamdhip64 whose devices are memory of the host, copied when it is asked for and
// with no stream of its own. Built in several versions:
// FAKE_PREFIX   cuda or hip
// FAKE_VERSION  what RuntimeGetVersion returns
// FAKE_DEVICES  GPUs; negative: GetDeviceCount fails with that number and leaves the count alone
// FAKE_LIMIT    bytes that one Malloc gives at most (default: what there is)
// FAKE_LACKS    without peer access, IPC and pinned memory
// FAKE_TORN     copies leave out the last byte
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define NAME(suffix) JOIN(FAKE_PREFIX, suffix)

#ifndef FAKE_LIMIT
#define FAKE_LIMIT (std::size_t{1} << 40)
#endif

namespace {

constexpr int invalid = 1;
constexpr int out_of_memory = 2;
[[maybe_unused]] constexpr int already_enabled = 704;
[[maybe_unused]] constexpr int not_opened = 400;

// What an IPC handle holds; the memory of every device is a file that lives in memory.
struct Shared {
    int pid;
    int descriptor;
    std::size_t bytes;
};

std::map<void*, Shared>& allocations() {
    static std::map<void*, Shared> made;
    return made;
}

[[maybe_unused]] std::map<void*, std::size_t>& opened() {
    static std::map<void*, std::size_t> made;
    return made;
}

void* mapped(int descriptor, std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return at == MAP_FAILED ? nullptr : at;
}

[[maybe_unused]] thread_local int current = 0;

struct Mark {
    std::chrono::steady_clock::time_point at;
};

}  // namespace

extern "C" {
int NAME(RuntimeGetVersion)(int* version) {
    *version = FAKE_VERSION;
    return 0;
}
int NAME(GetDeviceCount)(int* count) {
    if (FAKE_DEVICES < 0) {
        return -(FAKE_DEVICES);
    }
    *count = FAKE_DEVICES;
    return 0;
}
const char* NAME(GetErrorString)(int) { return "fake driver trouble"; }
int NAME(SetDevice)(int device) {
    current = device;
    return device < FAKE_DEVICES ? 0 : invalid;
}
int NAME(GetLastError)() { return 0; }
int NAME(DeviceGetPCIBusId)(char* out, int length, int device) {
    std::snprintf(out, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return 0;
}
int NAME(Malloc)(void** out, std::size_t bytes) {
    if (bytes > FAKE_LIMIT) {
        return out_of_memory;
    }
    const int descriptor = memfd_create("fake-device", 0);
    if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
        return out_of_memory;
    }
    *out = mapped(descriptor, bytes);
    allocations()[*out] = {getpid(), descriptor, bytes};
    return *out ? 0 : out_of_memory;
}
int NAME(Free)(void* memory) {
    const auto found = allocations().find(memory);
    if (found == allocations().end()) {
        return invalid;
    }
    munmap(memory, found->second.bytes);
    close(found->second.descriptor);
    allocations().erase(found);
    return 0;
}
int NAME(MemGetInfo)(std::size_t* free, std::size_t* total) {
    *free = *total = FAKE_LIMIT;
    return 0;
}
int NAME(MemcpyAsync)(void* to, const void* from, std::size_t bytes, int, void*) {
#ifdef FAKE_TORN
    bytes -= 1;
#endif
    std::memcpy(to, from, bytes);
    return 0;
}
int NAME(MemsetAsync)(void* to, int byte, std::size_t bytes, void*) {
    std::memset(to, byte, bytes);
    return 0;
}
int NAME(StreamCreateWithFlags)(void** out, unsigned) {
    *out = nullptr;
    return 0;
}
int NAME(DeviceGetAttribute)(int* out, int attribute, int) {
    *out = attribute == 97 ? 227 * 1024 : 8;  // bytes of shared memory for a block
    return 0;
}
int NAME(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return 0;
}
int NAME(StreamCreateWithPriority)(void** out, unsigned, int) {
    *out = nullptr;
    return 0;
}
int NAME(StreamDestroy)(void*) { return 0; }
int NAME(StreamQuery)(void*) { return 0; }
int NAME(StreamSynchronize)(void*) { return 0; }
int NAME(StreamWaitEvent)(void*, void*, unsigned) { return 0; }
int NAME(StreamBeginCapture)() { return invalid; }
int NAME(StreamEndCapture)() { return invalid; }
int NAME(EventCreateWithFlags)(void** out, unsigned) {
    *out = new Mark;
    return 0;
}
int NAME(EventDestroy)(void* event) {
    delete static_cast<Mark*>(event);
    return 0;
}
int NAME(EventRecord)(void* event, void*) {
    static_cast<Mark*>(event)->at = std::chrono::steady_clock::now();
    return 0;
}
int NAME(EventQuery)(void*) { return 0; }
int NAME(EventElapsedTime)(float* out, void* start, void* stop) {
    const auto past = static_cast<Mark*>(stop)->at - static_cast<Mark*>(start)->at;
    *out = std::chrono::duration<float, std::milli>(past).count();
    return 0;
}
int NAME(GraphInstantiateWithFlags)() { return invalid; }
int NAME(GraphLaunch)() { return invalid; }
int NAME(GraphExecDestroy)() { return invalid; }
int NAME(GraphDestroy)() { return invalid; }

#ifndef FAKE_LACKS
struct FakeHandle {
    char reserved[64];
};

int NAME(DeviceCanAccessPeer)(int* out, int device, int peer) {
    *out = device != peer;
    return 0;
}
int NAME(DeviceEnablePeerAccess)(int peer, unsigned) {
    static bool enabled[64][64];
    if (peer == current) {
        return invalid;
    }
    const bool before = enabled[current][peer];
    enabled[current][peer] = true;
    return before ? already_enabled : 0;
}
int NAME(IpcGetMemHandle)(FakeHandle* out, void* memory) {
    const auto found = allocations().find(memory);
    if (found == allocations().end()) {
        return invalid;
    }
    std::memcpy(out->reserved, &found->second, sizeof found->second);
    return 0;
}
int NAME(IpcOpenMemHandle)(void** out, FakeHandle handle, unsigned) {
    Shared shared{};
    std::memcpy(&shared, handle.reserved, sizeof shared);
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", shared.pid, shared.descriptor);
    const int descriptor = open(path, O_RDWR);
    if (descriptor < 0) {
        return invalid;
    }
    *out = mapped(descriptor, shared.bytes);
    close(descriptor);
    opened()[*out] = shared.bytes;
    return *out ? 0 : out_of_memory;
}
int NAME(IpcCloseMemHandle)(void* memory) {
    const auto found = opened().find(memory);
    if (found == opened().end()) {
        return not_opened;
    }
    munmap(memory, found->second);
    opened().erase(found);
    return 0;
}
int pinned_alloc(void** out, std::size_t bytes, unsigned) {
    *out = std::malloc(bytes);
    return *out ? 0 : out_of_memory;
}
int pinned_free(void* memory) {
    std::free(memory);
    return 0;
}
int cudaHostAlloc(void** out, std::size_t bytes, unsigned flags) {
    return pinned_alloc(out, bytes, flags);
}
int cudaFreeHost(void* memory) { return pinned_free(memory); }
int hipHostMalloc(void** out, std::size_t bytes, unsigned flags) {
    return pinned_alloc(out, bytes, flags);
}
int hipHostFree(void* memory) { return pinned_free(memory); }
#endif
}
