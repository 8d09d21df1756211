// Rows of an interference CSV. Columns: schemas/interference-csv.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csv.h"
#include "csv_text.h"

namespace collscope {

// What one rank measured of one class, round by round; times in microseconds.
struct Disturbance {
    // Baselines, one more than rounds: round i lies between baselines i and i + 1.
    std::vector<double> compute_alone_us, comm_alone_us;
    std::vector<double> compute_with_us, comm_with_us;
    int taken = 0;  // rounds, also those whose work or calls did not cover the other
};

struct InterferenceRow {
    Row of_class;  // key, label, round, backend, library, device, host, status, message
    int rank = 0;  // of the plan
    std::string compute, description, channels, priority, runtime, environment;
    std::optional<int> multiprocessors;
    Disturbance measured;
};

// alone / with of every round, the baseline being the mean of the two around it.
std::vector<double> relative(const std::vector<double>& alone, const std::vector<double>& with);
// 1.4826 times the median of |a/b - 1| over successive baselines: the standard deviation of the
// ratio of two undisturbed measurements. None with fewer than two.
std::optional<double> noise_of(const std::vector<double>& alone);

std::string line_of(const InterferenceRow& row);  // without the line's end
std::string interference_header();

}  // namespace collscope
