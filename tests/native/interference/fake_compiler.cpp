// A libnvrtc and a libcuda, or a libhiprtc, that pass on a text instead of code.
// FAKE_RTC     nvrtc or hiprtc
// FAKE_GET     what follows nvrtcGet or hiprtcGet
// FAKE_OPTION  the only option that compiles
// FAKE_CODE    what it gives
#include <cstddef>
#include <cstring>
#include <string>

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define NAME(suffix) JOIN(FAKE_RTC, suffix)

namespace {

constexpr const char* complaint = "no such architecture";

struct Program {
    std::string source;
};

}  // namespace

extern "C" {
int NAME(CreateProgram)(void** out, const char* source, const char*, int headers, const void*,
                        const void*) {
    *out = new Program{source};
    return headers == 0 ? 0 : 1;
}
int NAME(CompileProgram)(void* program, int n, const char* const* options) {
    const bool kernel = static_cast<Program*>(program)->source.find(
                            "__global__ void collscope_load") != std::string::npos;
    return n == 1 && kernel && std::strcmp(options[0], FAKE_OPTION) == 0 ? 0 : 6;
}
int JOIN(NAME(Get), JOIN(FAKE_GET, Size))(void*, std::size_t* out) {
    *out = sizeof FAKE_CODE;
    return 0;
}
int JOIN(NAME(Get), FAKE_GET)(void*, char* out) {
    std::memcpy(out, FAKE_CODE, sizeof FAKE_CODE);
    return 0;
}
int NAME(GetProgramLogSize)(void*, std::size_t* out) {
    *out = std::strlen(complaint) + 1;
    return 0;
}
int NAME(GetProgramLog)(void*, char* out) {
    std::strcpy(out, complaint);
    return 0;
}
int NAME(DestroyProgram)(void** program) {
    delete static_cast<Program*>(*program);
    return 0;
}
}
