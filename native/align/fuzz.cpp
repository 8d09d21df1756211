// Fuzz driver of the alignment and of the merged order: a libFuzzer target, or with
// COLLSCOPE_FUZZ_MAIN a program of its own that mutates seed files: fuzz ITERATIONS SEED_NUMBER
// FILE...
//
// Properties: nothing is undefined on any numbers; partners are equal and rise, also where the
// exact search gives way; an order has every node once, and agrees with each chain where none
// contradicts.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

#include "../fuzz_driver.h"
#include "align.h"
#include "merge_order.h"

namespace {

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.bin\n", what);
    std::ofstream("fuzz-failure.bin", std::ios::binary) << input;
    std::abort();
}

void check_match(std::string_view input, std::size_t choice) {
    const std::size_t cut = input.empty() ? 0 : choice % input.size();
    const std::vector<std::uint64_t> reference(input.begin(),
                                               input.begin() + static_cast<std::ptrdiff_t>(cut));
    const std::vector<std::uint64_t> sequence(input.begin() + static_cast<std::ptrdiff_t>(cut),
                                              input.end());
    for (const std::size_t limit : {align::edit_limit, std::size_t{0}, choice % 600}) {
        const std::vector<std::int32_t> partner = align::match(reference, sequence, limit);
        if (partner.size() != sequence.size()) {
            fail("an element without an answer", input);
        }
        std::int32_t last = -1;
        for (std::size_t k = 0; k < partner.size(); ++k) {
            if (partner[k] == -1) {
                continue;
            }
            if (partner[k] <= last || static_cast<std::size_t>(partner[k]) >= reference.size() ||
                reference[static_cast<std::size_t>(partner[k])] != sequence[k]) {
                fail("a partner that is none", input);
            }
            last = partner[k];
        }
    }
}

// Every byte but the last ones: in turn the chain and the node of a row.
void check_order(std::string_view input, std::size_t choice) {
    std::vector<std::int32_t> chain;
    std::vector<std::int32_t> node;
    for (std::size_t k = 0; k + 1 < input.size(); k += 2) {
        chain.push_back(static_cast<signed char>(input[k]));
        node.push_back(static_cast<signed char>(input[k + 1]));
    }
    const auto nodes = static_cast<std::int32_t>(choice % 130);
    align::ChainMerger merger(nodes);
    for (std::int32_t c = 0; c < 128; ++c) {
        std::vector<std::int32_t> own;
        for (std::size_t k = 0; k < chain.size(); ++k) {
            if (chain[k] == c) {
                own.push_back(node[k]);
            }
        }
        merger.add(own);
    }
    const align::MergedOrder merged = merger.merge();
    std::vector<std::size_t> place(static_cast<std::size_t>(nodes),
                                   std::numeric_limits<std::size_t>::max());
    for (std::size_t k = 0; k < merged.order.size(); ++k) {
        const std::int32_t here = merged.order[k];
        if (here < 0 || here >= nodes || place[static_cast<std::size_t>(here)] < k) {
            fail("a node that is none, or comes twice", input);
        }
        place[static_cast<std::size_t>(here)] = k;
    }
    if (merged.order.size() != static_cast<std::size_t>(nodes)) {
        fail("a node is left out", input);
    }
    if (merged.contradictions != 0) {
        return;
    }
    std::vector<std::int32_t> before(128, -1);
    std::vector<std::vector<bool>> seen(128, std::vector<bool>(static_cast<std::size_t>(nodes)));
    for (std::size_t k = 0; k < chain.size(); ++k) {
        if (chain[k] < 0 || node[k] < 0 || node[k] >= nodes) {
            continue;
        }
        const auto c = static_cast<std::size_t>(chain[k]);
        const auto n = static_cast<std::size_t>(node[k]);
        if (seen[c][n]) {
            continue;
        }
        seen[c][n] = true;
        if (before[c] >= 0 && place[static_cast<std::size_t>(before[c])] > place[n]) {
            fail("the order contradicts a chain", input);
        }
        before[c] = node[k];
    }
}

void check(std::string_view input, std::size_t choice) {
    check_match(input.substr(0, 600), choice);  // its time grows with the square of what differs
    check_order(input, choice);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    check(input, size == 0 ? 0 : data[0] + 256u * data[size - 1] + size);
    return 0;
}

#ifdef COLLSCOPE_FUZZ_MAIN
int main(int argc, char** argv) {
    const fuzz::Tricks tricks = {"a", "ab", "abc", "\x01", "\x02\x01", "\xff", "aaaaaaaa"};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
