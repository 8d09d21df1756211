// Fuzz driver of the scanner: a libFuzzer target, or with COLLSCOPE_FUZZ_MAIN a program of its own
// that mutates seed files: fuzz ITERATIONS SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any input; how a log is cut into pieces does not change the
// result; cutting a log at any byte loses no record of an earlier line.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "../fuzz_driver.h"
#include "digest.h"
#include "scanner.h"

namespace {

using logscan::Result;
using logscan::Scanner;

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.log\n", what);
    std::ofstream("fuzz-failure.log", std::ios::binary) << input;
    std::abort();
}

Result scan(std::string_view input, std::size_t piece) {
    Scanner scanner;
    for (std::size_t at = 0; at < input.size(); at += piece) {
        // A copy of exact size, so that reading past a piece is seen by the sanitizer.
        const std::vector<char> copy(
            input.begin() + static_cast<std::ptrdiff_t>(at),
            input.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, input.size())));
        scanner.feed({copy.data(), copy.size()});
    }
    return scanner.finish();
}

template <class Column>
bool starts_with(const Column& whole, const Column& part, std::size_t rows) {
    return whole.size() >= rows && part.size() >= rows &&
           std::equal(part.data(), part.data() + rows, whole.data());
}

void check_cut(const Result& whole, std::string_view input, std::size_t cut) {
    const Result part = scan(input.substr(0, cut), cut);
    const auto lines =
        std::count(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    const auto until = [lines](const logscan::Column<std::uint32_t>& column) {
        std::size_t rows = 0;
        while (rows < column.size() && column[rows] <= static_cast<std::uint64_t>(lines)) {
            ++rows;
        }
        return rows;
    };
    const std::size_t calls = until(whole.calls.line);
    const bool same_calls = calls == 0 || (starts_with(whole.calls.line, part.calls.line, calls) &&
                                           starts_with(whole.calls.sig, part.calls.sig, calls) &&
                                           starts_with(whole.calls.comm, part.calls.comm, calls));
    const std::size_t kernels = until(whole.kernels.line);
    const std::size_t messages = until(whole.messages.line);
    if (!same_calls ||
        (kernels > 0 && !starts_with(whole.kernels.time_ns, part.kernels.time_ns, kernels)) ||
        (messages > 0 && !starts_with(whole.messages.kind, part.messages.kind, messages))) {
        fail("a cut lost an earlier record", input);
    }
}

void check(std::string_view input, std::size_t choice) {
    const Result whole = scan(input, input.size() + 1);
    const std::size_t piece = 1 + choice % (choice % 3 == 0 ? 7 : 300);
    if (logscan::digest(scan(input, piece)) != logscan::digest(whole)) {
        fail("the result depends on the pieces", input);
    }
    if (!input.empty()) {
        check_cut(whole, input, 1 + choice / 7 % input.size());
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
    const fuzz::Tricks tricks = {std::string_view("\0", 1),
                                 "\r",
                                 "\x1b[32m",
                                 "\xff\xfe",
                                 "NCCL INFO ",
                                 " [0] NCCL INFO ",
                                 "(nil)",
                                 "99999999999999999999",
                                 "0x",
                                 "-",
                                 ":",
                                 "[nranks=",
                                 "\n",
                                 "18446744073709551615",
                                 "## [",
                                 " NCCL CALL nccl",
                                 "[FATAL ERROR]",
                                 " Bytes -> ",
                                 "NCCL WARN ",
                                 " -> "};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
