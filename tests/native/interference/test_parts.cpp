// Ratios, noise and rows of an interference CSV, and its command line.
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "interference/arguments.h"
#include "interference/rows.h"

using namespace collscope;

namespace {

bool close(double a, double b) { return std::abs(a - b) < 1e-12; }

void ratios() {
    // Baselines that drift from 100 to 120: round 0 is held against 105, round 1 against 115.
    const std::vector<double> found = relative({100, 110, 120}, {210, 115});
    CHECK(found.size() == 2 && close(found[0], 0.5) && close(found[1], 1.0));
    CHECK(relative({}, {}).empty());
    CHECK(relative({100}, {}).empty());
}

void noise() {
    // |100/80 - 1| = 0.25, |80/100 - 1| = 0.2, |100/100 - 1| = 0: the median is 0.2.
    const auto found = noise_of({100, 80, 100, 100});
    CHECK(found && close(*found, 1.4826 * 0.2));
    CHECK(!noise_of({100}));
    CHECK(!noise_of({}));
}

std::string column(const std::string& line, const std::string& name) {
    const auto split = [](const std::string& text) {
        std::vector<std::string> out(1);
        for (const char c : text) {
            if (c == ',') {
                out.emplace_back();
            } else {
                out.back() += c;
            }
        }
        return out;
    };
    const std::vector<std::string> names = split(interference_header());
    const std::vector<std::string> values = split(line);
    CHECK(names.size() == values.size());
    for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) {
        if (names[i] == name) {
            return values[i];
        }
    }
    return "no such column";
}

void rows() {
    InterferenceRow row;
    row.of_class.op = "AllReduce";
    row.of_class.size_bytes = 1'000'000;
    row.of_class.nranks = 4;
    row.of_class.bus_factor = 1.5;
    row.of_class.status = "ok";
    row.rank = 3;
    row.measured = {{100, 100, 100}, {10, 10, 10}, {200, 400}, {20, 40}, 4};
    const std::string line = line_of(row);
    CHECK(column(line, "rank") == "3");
    CHECK(column(line, "relative_compute") == "0.375");
    CHECK(column(line, "relative_compute_mad") == "0.125");
    CHECK(column(line, "relative_compute_noise") == "0");
    CHECK(column(line, "relative_compute_samples") == "0.5;0.25");
    CHECK(column(line, "comm_with_us") == "30");
    CHECK(column(line, "busbw_alone_gbps") == "150");  // 1 MB in 10 us, times 1.5
    CHECK(column(line, "busbw_with_gbps") == "50");
    CHECK(column(line, "samples") == "4" && column(line, "covered") == "2");
    // Nothing was measured: empty, not zero.
    row.measured = {};
    const std::string empty = line_of(row);
    for (const char* name : {"compute_alone_us", "relative_compute", "relative_compute_noise",
                             "busbw_alone_gbps", "multiprocessors"}) {
        CHECK(column(empty, name).empty());
    }
}

std::string error_of(std::vector<const char*> words) {
    words.insert(words.begin(), "interference");
    return parse_interference(static_cast<int>(words.size()), words.data()).error;
}

void options() {
    const char* words[] = {"interference", "a.plan",     "--csv=o.csv", "--compute", "kernel",
                           "--channels=2", "--priority", "normal",      "--budget",  "0.5"};
    const ParsedInterference parsed = parse_interference(10, words);
    CHECK(parsed.error.empty());
    CHECK(parsed.options.common.plan == "a.plan" && parsed.options.common.csv == "o.csv");
    CHECK(parsed.options.compute.kind == "kernel" && parsed.options.channels == "2");
    CHECK(!parsed.options.common.urgent && parsed.options.common.budget_s == 0.5);
    CHECK(error_of({"p", "--csv", "o", "--compute", "magic"}).starts_with("--compute: `magic`"));
    CHECK(error_of({"p", "--csv", "o", "--priority=low"}).starts_with("--priority: `low`"));
    CHECK(error_of({"p", "--csv", "o", "--graph"}).starts_with("command line: `--graph`"));
    CHECK(error_of({"p", "--csv", "o", "--blas"}).starts_with("--blas: its value is missing"));
    CHECK(error_of({"p"}).starts_with("command line: the plan or --csv is missing"));
    CHECK(error_of({"p", "--csv", "o"}).empty());
}

}  // namespace

int main() {
    ratios();
    noise();
    rows();
    options();
    return check::result();
}
