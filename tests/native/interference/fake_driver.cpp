// A libcuda that takes the code of one fake compiler only, and counts launches.
#include <cstring>

extern "C" {
int fake_launches = 0;
int fake_unloads = 0;
static int granted_shared = 48 * 1024;

int cuModuleLoadData(void** out, const void* code) {
    *out = &fake_launches;
    return std::strcmp(static_cast<const char*>(code), "good code") == 0 ? 0 : 218;
}
int cuModuleGetFunction(void** out, void*, const char* name) {
    *out = &fake_launches;
    return std::strcmp(name, "collscope_load") == 0 ? 0 : 500;
}
int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared, void*, void** parameters, void**) {
    ++fake_launches;
    const int iterations = *static_cast<int*>(parameters[1]);
    // 8 multiprocessors; all the shared memory that a block may ask for.
    const bool good = x == 8 * 256 && y == 1 && z == 1 && threads == 1024 && shared == 227 * 1024 &&
                      granted_shared == 227 * 1024 &&
                      *static_cast<void**>(parameters[0]) != nullptr && iterations >= 1;
    return good ? 0 : 1;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
    if (attribute != 8 || value > 227 * 1024) {
        return 1;
    }
    granted_shared = value;
    return 0;
}
int cuModuleUnload(void*) {
    ++fake_unloads;
    return 0;
}
}
