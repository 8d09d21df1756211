// Lines in the library's log, or on stderr when the library gives no logger.
#pragma once

#include <cstdio>

#include "plugin_api.h"

namespace collscope::tuner {

// `format` is a literal of printf; nothing is formatted where the library drops the line.
template <typename... Values>
void say(Logger log, int level, const char* format, Values... values) {
    char text[1024];
    if constexpr (sizeof...(values) == 0) {
        std::snprintf(text, sizeof text, "%s", format);
    } else {
        std::snprintf(text, sizeof text, format, values...);
    }
    if (log != nullptr) {
        log(level, log_tuning, "collscope-tuner", 0, "TUNER/collscope: %s", text);
    } else if (level == log_warn) {
        std::fprintf(stderr, "TUNER/collscope: %s\n", text);
    }
}

}  // namespace collscope::tuner
