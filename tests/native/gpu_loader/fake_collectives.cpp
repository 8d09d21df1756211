// A libnccl or librccl that has nothing but what the loader asks for. Built in several versions:
// FAKE_VERSION  what ncclGetVersion returns
// FAKE_OLD      without ncclBroadcast
// FAKE_REDUCE_SCATTER  what ncclReduceScatter returns
// FAKE_ALL_TO_ALL  the name of the all-to-all
// FAKE_RUNTIME  a function of the runtime that it is linked to
#include <cstring>

#include "gpu/collective_api.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif
#ifndef FAKE_REDUCE_SCATTER
#define FAKE_REDUCE_SCATTER 0
#endif

using namespace collscope::gpu;

// How NCCL names the CUDA it was built with.
extern "C" const char fake_banner[] = "NCCL version 2.28.9+cuda12.4";

#ifdef FAKE_RUNTIME
extern "C" int FAKE_RUNTIME(int*);
extern "C" int fake_uses_runtime(int* value) { return FAKE_RUNTIME(value); }
#endif

extern "C" {
int ncclGetVersion(int* version) {
    *version = FAKE_VERSION;
    return 0;
}
int ncclGetUniqueId(UniqueId* id) {
    std::memset(id, 7, sizeof *id);
    return 0;
}
const char* ncclGetErrorString(int) { return "fake error"; }
int ncclCommInitRank(CommHandle*, int, UniqueId, int) { return 0; }
int ncclCommDestroy(CommHandle) { return 0; }
int ncclCommGetAsyncError(CommHandle, int*) { return 0; }
int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return 0; }
int ncclAllReduce() { return 0; }
int ncclAllGather() { return 0; }
int ncclReduceScatter() { return FAKE_REDUCE_SCATTER; }
#ifndef FAKE_OLD
int ncclBroadcast() { return 0; }
#endif
int ncclReduce() { return 0; }
int ncclSend() { return 0; }
int ncclRecv() { return 0; }
int ncclGather() { return 0; }
#ifdef FAKE_ALL_TO_ALL
int FAKE_ALL_TO_ALL() { return 0; }
#endif
}
