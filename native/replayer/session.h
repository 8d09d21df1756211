// What every part of a run works with.
#pragma once

#include <string>
#include <vector>

#include "arena.h"
#include "backend.h"
#include "control.h"
#include "csv.h"
#include "local_ranks.h"
#include "options.h"
#include "plan.h"
#include "verify.h"
#include "watchdog.h"

namespace collscope {

struct Session {
    const Options& options;
    const Plan& plan;
    const Control& control;
    Backend& backend;
    LocalRanks& ranks;
    Watchdog& watchdog;
    CsvWriter& csv;
    Kept& kept;                // what was finished before, with --resume
    std::vector<Row> current;  // being measured, for the watchdog; set while it rests
    Arena arena;
    std::vector<std::string> devices;      // by rank of the plan
    std::vector<std::string> comm_errors;  // by communicator; empty: made, or not tried yet
    std::vector<bool> comm_tried;
    std::vector<Staging> staging;  // by local rank

    VerifyOptions verify_options(int local) const {
        const auto rank = static_cast<std::size_t>(control.first_rank() + local);
        return {options.verify_limit, fp8_form_of(devices[rank])};
    }
};

// "class 3 (AllReduce Float32, 4096 bytes, 4 ranks)"
std::string title_of(const Row& row);

// The row of a class before it is measured; only the writer's matters.
Row row_for(const Session& session, const Class& cls);
// Device and host of the rank that was slowest.
void set_place(const Session& session, int rank, Row& row);
// Hosts on which the members of these communicators (indices) run, of the one with most.
int hosts_of(const Session& session, const std::vector<int>& comms);

// Makes those communicators that are not there yet. Collective over all processes.
Status create_communicators(Session& session, const std::vector<int>& comms);

// "rank 3 on host a: " before an error, so that its reader knows where to look.
Status placed(const Session& session, int local, Status status);

// Writes the finished row; prints what went wrong.
Status report(Session& session, const Row& row);

}  // namespace collscope
