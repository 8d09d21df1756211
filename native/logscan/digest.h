// A text form of a whole result, for tests and the fuzz driver: equal results, equal digests.
#pragma once

#include <string>

#include "result.h"

namespace logscan {

std::string digest(const Result& result);

}  // namespace logscan
