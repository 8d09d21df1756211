// A libcudart whose devices are memory of the host and whose time is what the collectives say.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "stream.h"

extern "C" {
int cudaRuntimeGetVersion(int* version) {
    *version = 12040;
    return 0;
}
int cudaGetDeviceCount(int* count) {
    *count = 8;
    return 0;
}
const char* cudaGetErrorString(int) { return "fake driver trouble"; }
int cudaMalloc(void** out, std::size_t bytes) {
    *out = std::malloc(bytes);
    return *out ? 0 : 2;
}
int cudaFree(void* memory) {
    std::free(memory);
    return 0;
}
int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = *total = std::size_t{1} << 30;
    return 0;
}
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void*) {
    std::memcpy(to, from, bytes);
    return 0;
}
int cudaMemsetAsync(void* to, int byte, std::size_t bytes, void*) {
    std::memset(to, byte, bytes);
    return 0;
}
int cudaStreamCreateWithFlags(void** out, unsigned) {
    *out = new FakeStream;
    return 0;
}
int cudaStreamCreateWithPriority(void** out, unsigned flags, int) {
    return cudaStreamCreateWithFlags(out, flags);
}
int cudaStreamDestroy(void* stream) {
    delete static_cast<FakeStream*>(stream);
    return 0;
}
int cudaEventCreateWithFlags(void** out, unsigned) {
    *out = new double(0);
    return 0;
}
int cudaEventDestroy(void* event) {
    delete static_cast<double*>(event);
    return 0;
}
int cudaEventRecord(void* event, void* stream) {
    *static_cast<double*>(event) = static_cast<FakeStream*>(stream)->us;
    return 0;
}
int cudaEventElapsedTime(float* out, void* start, void* stop) {
    *out = static_cast<float>((*static_cast<double*>(stop) - *static_cast<double*>(start)) / 1000);
    return 0;
}
}
