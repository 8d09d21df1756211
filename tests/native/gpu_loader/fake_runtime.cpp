// A libcudart or libamdhip64 that has nothing but what the loader asks for. Built in several
// versions:
// FAKE_PREFIX   cuda or hip
// FAKE_VERSION  what RuntimeGetVersion says
// FAKE_DEVICES  GPUs; negative: GetDeviceCount fails with that number and leaves the count alone
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define NAME(suffix) JOIN(FAKE_PREFIX, suffix)

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
int NAME(SetDevice)() { return 0; }
int NAME(GetLastError)() { return 0; }
int NAME(Malloc)() { return 0; }
int NAME(Free)() { return 0; }
int NAME(MemGetInfo)() { return 0; }
int NAME(MemcpyAsync)() { return 0; }
int NAME(MemsetAsync)() { return 0; }
int NAME(StreamCreateWithFlags)() { return 0; }
int NAME(StreamDestroy)() { return 0; }
int NAME(StreamQuery)() { return 0; }
int NAME(StreamSynchronize)() { return 0; }
int NAME(StreamBeginCapture)() { return 0; }
int NAME(StreamEndCapture)() { return 0; }
int NAME(EventCreateWithFlags)() { return 0; }
int NAME(EventDestroy)() { return 0; }
int NAME(EventRecord)() { return 0; }
int NAME(EventQuery)() { return 0; }
int NAME(EventElapsedTime)() { return 0; }
int NAME(GraphInstantiateWithFlags)() { return 0; }
int NAME(GraphLaunch)() { return 0; }
int NAME(GraphExecDestroy)() { return 0; }
int NAME(GraphDestroy)() { return 0; }
}
