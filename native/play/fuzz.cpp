// Fuzz driver of the graph's player: a libFuzzer target, or with COLLSCOPE_FUZZ_MAIN a program of
// its own that mutates seed files: fuzz ITERATIONS SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any numbers; a graph is refused, or everything in it has a
// time.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "../fuzz_driver.h"
#include "play.h"

namespace {

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.bin\n", what);
    std::ofstream("fuzz-failure.bin", std::ios::binary) << input;
    std::abort();
}

// Numbers out of bytes, and 0 behind their end.
class Bytes {
public:
    explicit Bytes(std::string_view input) : input_(input) {}

    std::int64_t number() {
        const std::int64_t value = at_ < input_.size() ? static_cast<signed char>(input_[at_]) : 0;
        ++at_;
        return value == 127    ? std::numeric_limits<std::int64_t>::max()
               : value == -128 ? std::numeric_limits<std::int64_t>::min()
                               : value;
    }

    double time() {
        const std::int64_t value = number();
        return value == std::numeric_limits<std::int64_t>::min()
                   ? std::numeric_limits<double>::quiet_NaN()
               : value == std::numeric_limits<std::int64_t>::max()
                   ? std::numeric_limits<double>::infinity()
                   : static_cast<double>(value) / 4;
    }

    std::vector<std::int64_t> numbers(std::size_t count) {
        std::vector<std::int64_t> out(count);
        for (std::int64_t& value : out) {
            value = number();
        }
        return out;
    }

    std::vector<double> times(std::size_t count) {
        std::vector<double> out(count);
        for (double& value : out) {
            value = time();
        }
        return out;
    }

private:
    std::string_view input_;
    std::size_t at_ = 0;
};

void check(std::string_view input, std::size_t choice) {
    Bytes bytes(input);
    const std::size_t nodes = choice % 12;
    const std::size_t rows = choice / 12 % 6;
    // Most edges begin where they may: a graph that is refused shows little.
    std::vector<std::int64_t> first = {0};
    for (std::size_t k = 0; k < nodes + rows; ++k) {
        first.push_back(first.back() + (bytes.number() & 3));
    }
    const auto edges = static_cast<std::size_t>(first.back());
    const std::vector<std::int64_t> target = bytes.numbers(edges);
    const std::vector<std::int64_t> causes = bytes.numbers(nodes);
    const std::vector<std::int64_t> trace = bytes.numbers(nodes + rows);
    const std::vector<std::int64_t> kernel = bytes.numbers(nodes);
    const std::vector<std::int64_t> change = bytes.numbers(nodes);
    const std::int64_t origin = bytes.number();
    const std::vector<double> gap = bytes.times(edges);
    const std::vector<double> work = bytes.times(rows);
    const std::vector<double> pace = bytes.times(rows);
    try {
        const std::vector<double> times =
            play::play({first, target, causes, trace, kernel, change}, gap, work, pace, origin);
        if (times.size() != nodes + rows) {
            fail("something has no time", input);
        }
    } catch (const std::invalid_argument&) {
        return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    if (size > 1) {
        check({reinterpret_cast<const char*>(data + 1), size - 1}, data[0]);
    }
    return 0;
}

#ifdef COLLSCOPE_FUZZ_MAIN
int main(int argc, char** argv) {
    const fuzz::Tricks tricks = {"\x01", "\x02", "\xff", "\x7f", "\x80", "\x01\x01\x01"};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
