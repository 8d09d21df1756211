// Fuzz driver of the tuner's CSV and table: a libFuzzer target, or with COLLSCOPE_FUZZ_MAIN a
// program of its own that mutates seed files: fuzz ITERATIONS SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any text; a text gives rows or an error; and the index finds
// the row that looking at one after the other finds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

#include "../fuzz_driver.h"
#include "table.h"

namespace {

using collscope::tuner::Parsed;
using collscope::tuner::Row;
using collscope::tuner::Table;

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.csv\n", what);
    std::ofstream("fuzz-failure.csv", std::ios::binary) << input;
    std::abort();
}

const Row* first_of(const std::vector<Row>& rows, int collective, std::uint64_t bytes,
                    std::int64_t nranks, std::int64_t nnodes) {
    for (const Row& row : rows) {
        if (row.collective == collective && (row.nranks == -1 || row.nranks == nranks) &&
            (row.nnodes == -1 || row.nnodes == nnodes) && row.suits(bytes, 1, 0)) {
            return &row;
        }
    }
    return nullptr;
}

void check(std::string_view input, std::size_t choice) {
    const std::vector<char> copy(input.begin(), input.end());
    const Parsed parsed = collscope::tuner::parse_csv({copy.data(), copy.size()});
    if (parsed.rows.empty() == parsed.error.empty()) {
        fail("neither rows nor an error, or both", input);
    }
    const std::size_t nranks = 1 + choice % 9;
    const std::size_t nnodes = 1 + choice / 9 % 3;
    const Table table(parsed.rows, nranks, nnodes);
    std::vector<std::uint64_t> sizes = {0, 1, std::numeric_limits<std::uint64_t>::max()};
    for (const Row& row : parsed.rows) {
        for (const std::uint64_t bytes : {row.min_bytes, row.max_bytes}) {
            sizes.insert(sizes.end(), {bytes - 1, bytes, bytes + 1});
        }
    }
    for (int collective = -1; collective <= 5; ++collective) {
        for (const std::uint64_t bytes : sizes) {
            const Row* found = table.find(collective, bytes, 1, 0, [](const Row&) { return true; });
            const Row* wanted =
                first_of(parsed.rows, collective, bytes, static_cast<std::int64_t>(nranks),
                         static_cast<std::int64_t>(nnodes));
            if ((found == nullptr ? -1 : found->line) != (wanted == nullptr ? -1 : wanted->line)) {
                fail("the index finds another row", input);
            }
            if (found != nullptr && table.first_time(*found, 0, bytes) &&
                table.first_time(*found, 0, bytes)) {
                fail("a first time comes twice", input);
            }
        }
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
    const fuzz::Tricks tricks = {",",
                                 "\n",
                                 "-1",
                                 "0",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "allreduce",
                                 "ring",
                                 "ll128",
                                 "#",
                                 "\r",
                                 " ",
                                 "\xef\xbb\xbf",
                                 "allreduce,0,65536,tree,ll,8,1,8,-1,-1\n"};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
