// What the loader asks for and these libraries do not need: a weak function of each name.
#pragma once

#include "gpu/collective_api.h"
#include "gpu/runtime_api.h"

#define TUNE_WEAK(prefix, name) \
    extern "C" __attribute__((weak)) int prefix##name(...) { return 0; }
#define TUNE_COLLECTIVE_STUB(member, name, parameters) TUNE_WEAK(, name)
