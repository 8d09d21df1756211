// Fuzz driver of the scanner: a libFuzzer target, or with COLLSCOPE_FUZZ_MAIN a program of its own
// that mutates seed files: fuzz ITERATIONS SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any input; events lie in the text, one behind the other;
// a text that is taken is not taken when it ends inside an event; and twice the text is twice the
// events. The seeds have an event in each line, and a line that is cut at the end is left out: else
// hardly a mutated text would be taken.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "../fuzz_driver.h"
#include "scan.h"

namespace {

using tracescan::Events;

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.json\n", what);
    std::ofstream("fuzz-failure.json", std::ios::binary) << input;
    std::abort();
}

// The scan of a copy of exact size, so that reading past it is seen by the sanitizer. The views of
// the result are not looked at.
std::optional<Events> scanned(std::string_view input, bool exact) {
    const std::vector<char> copy(input.begin(), input.end());
    return tracescan::scan({copy.data(), copy.size()}, exact, 0);
}

bool in_order(const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& end,
              std::string_view input) {
    std::int64_t last = 0;
    for (std::size_t k = 0; k < begin.size(); ++k) {
        const auto size = static_cast<std::int64_t>(input.size());
        if (begin[k] < last || end[k] <= begin[k] || end[k] > size ||
            input[static_cast<std::size_t>(begin[k])] != '{' ||
            input[static_cast<std::size_t>(end[k] - 1)] != '}') {
            return false;
        }
        last = end[k];
    }
    return true;
}

bool between_events(std::string_view rest) {
    const std::size_t next = rest.find_first_not_of(" \t\r\n");
    return next == std::string_view::npos || rest[next] == ',';
}

void check(std::string_view text, std::size_t choice) {
    scanned(text, false);
    const std::size_t last = text.rfind(",\n");
    const std::string_view input = text.substr(0, last == std::string_view::npos ? 0 : last);
    const bool exact = choice % 2 == 1;
    const std::optional<Events> whole = scanned(input, exact);
    if (!whole) {
        return;
    }
    if (!in_order(whole->gpu.begin, whole->gpu.end, input) ||
        !in_order(whole->others.begin, whole->others.end, input)) {
        fail("an event lies where none is", input);
    }
    const std::size_t cut = input.empty() ? 0 : choice / 2 % input.size();
    const std::string_view before = input.substr(0, cut);
    if (before.find('{') != std::string_view::npos && !between_events(input.substr(cut)) &&
        scanned(before, exact)) {
        fail("a text that ends inside an event was taken", input);
    }
    if (input.find('{') == std::string_view::npos) {
        return;
    }
    std::string twice(input);
    twice.append(",").append(input);
    const std::optional<Events> both = scanned(twice, exact);
    if (!both || both->gpu.kind.size() != 2 * whole->gpu.kind.size() ||
        both->calls.name.size() != 2 * whole->calls.name.size() ||
        both->others.event.size() != 2 * whole->others.event.size() ||
        both->bad != 2 * whole->bad || both->names.values.size() != whole->names.values.size()) {
        fail("the same events again are others", input);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    check(input, size == 0 ? 0 : data[0] + 256u * data[size - 1] + size);
    return 0;
}

#ifdef COLLSCOPE_FUZZ_MAIN
int main(int argc, char** argv) {
    const fuzz::Tricks tricks = {"\"",
                                 "\\",
                                 "{",
                                 "}",
                                 "[",
                                 "]",
                                 ",",
                                 ":",
                                 "},{",
                                 "\\ud800",
                                 "\\u00e9",
                                 "\xc3\xa9",
                                 "\xff",
                                 "1e999",
                                 "-0",
                                 "0.5",
                                 "00",
                                 "null",
                                 "true",
                                 "\"ph\": \"X\"",
                                 "\"cat\": \"kernel\"",
                                 "\"ts\": 1682725898236567.123",
                                 "\"args\": {\"correlation\": 9}",
                                 "999999999999999999"};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
