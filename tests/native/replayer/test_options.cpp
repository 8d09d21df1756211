// Native tests of the command line.
#include <string>
#include <vector>

#include "check.h"
#include "options.h"

namespace {

using namespace collscope;

ParsedOptions parse(std::vector<const char*> words) {
    words.insert(words.begin(), "collscope-replayer");
    return parse_options(static_cast<int>(words.size()), words.data());
}

void has_documented_defaults() {
    const ParsedOptions parsed = parse({"a.plan", "--csv", "b.csv"});
    CHECK(parsed.error.empty());
    const Options& o = parsed.options;
    CHECK(o.plan == "a.plan" && o.csv == "b.csv" && o.backend == "auto");
    CHECK(o.gpus_per_process == 1 && !o.one_thread && o.budget_s == 1.0);
    CHECK(o.timing == Timing::Batch && o.verify == 1 && o.verify_limit == 268435456);
    CHECK(o.repeat == 3 && o.timeout_s == 60 && !o.resume && !o.append && !o.progress);
}

void reads_every_option() {
    const ParsedOptions parsed = parse({"--csv=b.csv",
                                        "--backend",
                                        "hip",
                                        "--library",
                                        "l.so",
                                        "--runtime=r.so",
                                        "--gpus-per-process",
                                        "8",
                                        "--threads",
                                        "one",
                                        "--budget",
                                        "0.25",
                                        "--graph",
                                        "--verify",
                                        "0",
                                        "--verify-limit",
                                        "4096",
                                        "--repeat",
                                        "5",
                                        "--timeout=2.5",
                                        "--resume",
                                        "--append",
                                        "--label",
                                        "x y",
                                        "--round",
                                        "2",
                                        "--progress",
                                        "a.plan"});
    CHECK(parsed.error.empty());
    const Options& o = parsed.options;
    CHECK(o.plan == "a.plan" && o.csv == "b.csv" && o.backend == "hip" && o.library == "l.so");
    CHECK(o.runtime == "r.so" && o.gpus_per_process == 8 && o.one_thread && o.budget_s == 0.25);
    CHECK(o.timing == Timing::Graph && o.verify == 0 && o.verify_limit == 4096 && o.repeat == 5);
    CHECK(o.timeout_s == 2.5 && o.resume && o.append && o.label == "x y" && o.round == "2");
    CHECK(o.progress);
}

void refuses() {
    const std::vector<std::vector<const char*>> bad = {
        {},
        {"a.plan"},
        {"--csv", "b.csv"},
        {"a.plan", "--csv"},
        {"a.plan", "--csv", "b.csv", "c.plan"},
        {"a.plan", "--csv", "b.csv", "--fast"},
        {"a.plan", "--csv", "b.csv", "--backend", "tpu"},
        {"a.plan", "--csv", "b.csv", "--threads", "two"},
        {"a.plan", "--csv", "b.csv", "--budget", "0"},
        {"a.plan", "--csv", "b.csv", "--budget", "1s"},
        {"a.plan", "--csv", "b.csv", "--budget", "nan"},
        {"a.plan", "--csv", "b.csv", "--timeout", "inf"},
        {"a.plan", "--csv", "b.csv", "--verify", "-1"},
        {"a.plan", "--csv", "b.csv", "--repeat", "0"},
        {"a.plan", "--csv", "b.csv", "--gpus-per-process", "0"},
        {"a.plan", "--csv", "b.csv", "--round", "two"},
        {"a.plan", "--csv", "b.csv", "--graph", "--isolated"},
        {"a.plan", "--csv", "b.csv", "--backend", "host", "--gpus-per-process", "2"},
        {"a.plan", "--csv", "b.csv", "--graph=1"},
    };
    for (const std::vector<const char*>& words : bad) {
        const ParsedOptions parsed = parse(words);
        CHECK(!parsed.error.empty() && parsed.error.ends_with("."));
    }
}

void asks_without_a_plan() {
    CHECK(parse({"--probe"}).error.empty() && parse({"--probe"}).options.probe);
    CHECK(parse({"--version"}).options.version && parse({"--help"}).error.empty());
    CHECK(std::string(usage()).find("--verify-limit") != std::string::npos);
}

}  // namespace

int main() {
    has_documented_defaults();
    reads_every_option();
    refuses();
    asks_without_a_plan();
    return check::result();
}
