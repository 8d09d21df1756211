// Native tests of the GPUs that a process takes, by the way the ranks were launched.
#include <string>
#include <vector>

#include "check.h"
#include "gpu_choice.h"

namespace {

using namespace collscope;

const std::vector<std::string> four = {"0000:0c:00.0", "0000:22:00.0", "0000:38:00.0",
                                       "0000:5c:00.0"};

Sight seen(std::initializer_list<int> gpus) {
    Sight out;
    for (const int gpu : gpus) {
        out.gpus.push_back(four[static_cast<std::size_t>(gpu)]);
    }
    return out;
}

bool takes(const std::vector<Sight>& here, int mine, int per_process, std::vector<int> devices) {
    const GpuChoice choice = choose_gpus(here, mine, per_process, false);
    return choice.error.empty() && choice.devices == devices;
}

std::string refusal(const std::vector<Sight>& here, int per_process, bool shared_names = false) {
    return choose_gpus(here, 0, per_process, shared_names).error;
}

void every_process_sees_all() {
    const std::vector<Sight> here(4, seen({0, 1, 2, 3}));
    CHECK(takes(here, 0, 1, {0}));
    CHECK(takes(here, 3, 1, {3}));
    CHECK(takes({here[0], here[1]}, 1, 2, {2, 3}));
    CHECK(takes({here[0]}, 0, 4, {0, 1, 2, 3}));
}

void every_process_has_its_own() {
    const std::vector<Sight> here = {seen({2}), seen({0}), seen({3}), seen({1})};
    for (int mine = 0; mine < 4; ++mine) {
        CHECK(takes(here, mine, 1, {0}));
    }
    CHECK(takes({seen({0, 1}), seen({2, 3})}, 1, 2, {0, 1}));
    // Two GPUs for each of four processes; the plan wants one.
    CHECK(takes({seen({0, 1}), seen({2, 3}), seen({1, 0}), seen({3, 2})}, 2, 1, {0}));
    // A runtime that names none, as of a partition of a GPU: what is counted out is believed.
    CHECK(takes({{{""}}, {{""}}}, 1, 1, {0}));
}

void too_few_gpus() {
    CHECK(refusal({seen({0, 1}), seen({0, 1}), seen({0, 1})}, 1) ==
          "3 GPUs are needed, but there are 2, which every process sees");
    CHECK(refusal({seen({1}), seen({1})}, 1) ==
          "2 GPUs are needed, but there is 1, which every process sees");
    CHECK(refusal({seen({0, 1}), seen({2}), seen({3})}, 2) == "a process needs 2 GPUs but sees 1");
    CHECK(refusal({seen({0, 1}), seen({1}), seen({0, 3})}, 1) ==
          "processes 0 and 2 of this host would both take the GPU 0000:0c:00.0");
    const Sight unnamed{{"", ""}};
    CHECK(refusal({unnamed, unnamed, unnamed}, 1) ==
          "3 GPUs are needed, but there are 2, which every process sees");
    CHECK(refusal({unnamed, {{"", "", ""}}, unnamed, unnamed}, 1)
              .starts_with("4 GPUs are needed, but processes see 2 each"));
    // Partitions of one GPU share its name; RCCL knows whether they are the same.
    CHECK(refusal({seen({1}), seen({1})}, 1, true).empty());
    CHECK(!refusal({seen({0, 1}), seen({0, 1}), seen({0, 1})}, 1, true).empty());
}

void travels_as_text() {
    CHECK(text_of(Sight{}).empty());
    CHECK(sight_of(text_of(Sight{})).gpus.empty());
    const Sight sight{{"0000:0c:00.0", "", "0000:22:00.0"}};
    CHECK(sight_of(text_of(sight)).gpus == sight.gpus);
}

}  // namespace

int main() {
    every_process_sees_all();
    every_process_has_its_own();
    too_few_gpus();
    travels_as_text();
    return check::result();
}
