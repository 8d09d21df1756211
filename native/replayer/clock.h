// Microseconds of a clock that only goes forward.
#pragma once

#include <chrono>

namespace collscope {

inline double steady_us() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(since).count();
}

}  // namespace collscope
