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
#include <memory>
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

struct FlagsOf {
    std::unique_ptr<bool[]> values;
    std::size_t size;

    FlagsOf(Bytes& bytes, std::size_t count) : values(new bool[count]), size(count) {
        for (std::size_t k = 0; k < count; ++k) {
            values[k] = (bytes.number() & 1) != 0;
        }
    }
    play::Flags view() const { return {values.get(), size}; }
};

void check(std::string_view input, std::size_t choice) {
    Bytes bytes(input);
    const std::size_t nodes = 2 + choice % 12;
    const std::size_t rows = choice / 12 % 6;
    const std::size_t parts = choice % 3;
    // Most edges begin where they may, and lead on: a graph that is refused shows little.
    std::vector<std::int64_t> first = {0};
    std::vector<std::int64_t> target;
    for (std::size_t k = 0; k < nodes + rows; ++k) {
        const std::int64_t more = bytes.number() & 3;
        first.push_back(first.back() + more);
        for (std::int64_t e = 0; e < more; ++e) {
            const auto since = static_cast<std::int64_t>(k < nodes ? k : nodes / 2);
            target.push_back(since + 1 + (bytes.number() & 3));
        }
    }
    const std::size_t edges = target.size();
    const std::vector<std::int64_t> lasted = bytes.numbers(edges);
    const FlagsOf host(bytes, edges);
    const std::vector<double> gap = bytes.times(edges);
    const std::vector<double> unexplained = bytes.times(edges);
    const std::vector<std::int64_t> trace = bytes.numbers(nodes + rows);
    const std::vector<std::int64_t> kernel = bytes.numbers(nodes);
    const std::vector<std::int64_t> change = bytes.numbers(nodes);
    const std::vector<std::int64_t> part = bytes.numbers(nodes);
    const std::vector<double> work = bytes.times(nodes - 2);
    const std::vector<double> lasting = bytes.times(rows);
    const std::vector<double> transfer = bytes.times(parts);
    const std::vector<double> alone = bytes.times(rows);
    const std::vector<double> pace = bytes.times(rows);
    const FlagsOf at_once(bytes, nodes - 2);
    const FlagsOf behind_host(bytes, choice % 2 == 0 ? 0 : nodes - 2);
    try {
        play::Player player(
            {first, target, lasted, host.view(), gap, unexplained, trace, kernel, change, part},
            parts);
        const std::vector<double> times =
            player.play({work, lasting, transfer, alone, pace, bytes.time(), at_once.view(),
                         behind_host.view()});
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
