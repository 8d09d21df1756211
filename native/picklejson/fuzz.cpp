// Fuzz driver of the conversion of pickles: a libFuzzer target, or with COLLSCOPE_FUZZ_MAIN a
// program of its own that mutates seed files: fuzz ITERATIONS SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any bytes; a text keeps the limits, and its brackets close.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "../fuzz_driver.h"
#include "picklejson.h"

namespace {

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.bin\n", what);
    std::ofstream("fuzz-failure.bin", std::ios::binary) << input;
    std::abort();
}

void check_text(std::string_view input, const picklejson::Omission& omission) {
    const auto text = picklejson::convert(input, omission);
    if (!text) {
        return;
    }
    if (text->size() >
        input.size() * (picklejson::most_times + 8) + picklejson::most_beside + 1024) {
        fail("a text above the limit", input);
    }
    int depth = 0;
    bool quoted = false;
    for (std::size_t k = 0; k < text->size(); ++k) {
        const char byte = (*text)[k];
        if (quoted && byte == '\\') {
            ++k;
        } else if (byte == '"') {
            quoted = !quoted;
        } else if (!quoted && (byte == '[' || byte == '{')) {
            ++depth;
        } else if (!quoted && (byte == ']' || byte == '}')) {
            --depth;
        }
        if (depth < 0 || depth > picklejson::deepest) {
            fail("brackets that do not match", input);
        }
    }
    if (depth != 0 || quoted) {
        fail("a text that does not end", input);
    }
}

void check(std::string_view input, std::size_t) {
    check_text(input, {});
    check_text(input, {"frames", "state", "completed"});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    check({reinterpret_cast<const char*>(data), size}, 0);
    return 0;
}

#ifdef COLLSCOPE_FUZZ_MAIN
int main(int argc, char** argv) {
    const fuzz::Tricks tricks = {"\x80\x02", "}(", "](", "u", "e", "\x86", "h", "q", "."};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
