#include "stubs.h"

#ifndef FAKE_PREFIX
#define FAKE_PREFIX cuda
#endif
#define JOINED_STUB(prefix, name) TUNE_WEAK(prefix, name)
#define TUNE_RUNTIME_STUB(member, name, parameters) JOINED_STUB(FAKE_PREFIX, name)

COLLSCOPE_RUNTIME_REQUIRED(TUNE_RUNTIME_STUB)
