// Assertions for the native tests: a failed one prints where and what, and the program fails.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace check {

inline int failures = 0;

inline int result() {
    if (failures != 0) {
        std::fprintf(stderr, "%d checks failed\n", failures);
        return EXIT_FAILURE;
    }
    std::puts("all checks passed");
    return EXIT_SUCCESS;
}

}  // namespace check

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            ++check::failures;                                                   \
        }                                                                        \
    } while (false)
