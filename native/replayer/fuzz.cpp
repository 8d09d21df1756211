// Fuzz driver of the plan and of the result file that a replay goes on with: a libFuzzer target, or
// with COLLSCOPE_FUZZ_MAIN a program of its own that mutates seed files: fuzz ITERATIONS
// SEED_NUMBER FILE...
//
// Properties: nothing is undefined on any text, and no text takes memory out of proportion; a plan
// is refused with a sentence that names its line, or each of its numbers names what is there; and
// what is kept of a result file can be kept again.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "../fuzz_driver.h"
#include "csv.h"
#include "plan.h"

namespace {

using collscope::Class;
using collscope::Comm;
using collscope::Kept;
using collscope::ParsedPlan;
using collscope::Plan;
using collscope::Step;
using collscope::Transfer;

[[noreturn]] void fail(const char* what, std::string_view input) {
    std::fprintf(stderr, "%s; the input is written to fuzz-failure.txt\n", what);
    std::ofstream("fuzz-failure.txt", std::ios::binary) << input;
    std::abort();
}

bool in(int number, std::size_t end) {
    return number >= 0 && static_cast<std::size_t>(number) < end;
}

bool whole(const Class& cls, const Plan& plan) {
    for (std::size_t k = 0; k < cls.transfers.size(); ++k) {
        const Comm& comm = plan.comms[static_cast<std::size_t>(cls.comms[k])];
        for (const Transfer& t : cls.transfers[k]) {
            if (!in(t.src, comm.ranks.size()) || !in(t.dst, comm.ranks.size())) {
                return false;
            }
        }
    }
    return !cls.comms.empty() &&
           (cls.transfers.empty() || cls.transfers.size() == cls.comms.size());
}

bool whole(const Plan& plan) {
    for (const Comm& comm : plan.comms) {
        for (const int rank : comm.ranks) {
            if (!in(rank, static_cast<std::size_t>(plan.nranks)) || comm.rank_of(rank) < 0) {
                return false;
            }
        }
    }
    for (const Class& cls : plan.classes) {
        for (const int comm : cls.comms) {
            if (!in(comm, plan.comms.size())) {
                return false;
            }
        }
        if (!whole(cls, plan)) {
            return false;
        }
    }
    for (const Step& step : plan.steps) {
        for (const Step::Item& item : step.items) {
            if (!in(item.cls, plan.classes.size()) ||
                !in(item.comm, plan.classes[static_cast<std::size_t>(item.cls)].comms.size())) {
                return false;
            }
        }
    }
    return plan.nranks > 0;
}

void check(std::string_view input, std::size_t) {
    const std::vector<char> copy(input.begin(), input.end());
    const ParsedPlan parsed = collscope::parse_plan({copy.data(), copy.size()});
    if (!parsed.error.empty() && !parsed.error.starts_with("line ")) {
        fail("an error without its line", input);
    }
    if (parsed.error.empty() && !whole(parsed.plan)) {
        fail("a plan that names what is not there", input);
    }
    const std::string text = collscope::header_line() + '\n' + std::string(input);
    const Kept kept = collscope::keep_finished(text, "0123456789abcdef", "", "");
    if (kept.error.empty()) {
        const Kept again = collscope::keep_finished(kept.text, "0123456789abcdef", "", "");
        if (again.text != kept.text || again.finished != kept.finished) {
            fail("what was kept is not kept again", input);
        }
    }
    if (collscope::keep_all(text).text.size() > text.size()) {
        fail("more is kept than there is", input);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    check({reinterpret_cast<const char*>(data), size}, 0);
    return 0;
}

#ifdef COLLSCOPE_FUZZ_MAIN
int main(int argc, char** argv) {
    const fuzz::Tricks tricks = {"collscope-plan 1\n",
                                 "nranks 4\n",
                                 "mode sequence\n",
                                 "comm 0 0-3\n",
                                 "0-999999,",
                                 "-",
                                 ",",
                                 "=",
                                 "\n",
                                 " ",
                                 "\"",
                                 "18446744073709551616",
                                 "-1",
                                 "op=AllReduce",
                                 "shape=sendrecv",
                                 "comms=0-3",
                                 "step 0:0\n",
                                 "transfers",
                                 "count=1125899906842624",
                                 "Sequence",
                                 "ok"};
    return fuzz::run(argc, argv, tricks, check);
}
#endif
