// How one row comes about: checked once, warmed up, then samples within the budget.
#pragma once

#include <functional>
#include <string>

#include "control.h"
#include "memcpy/arguments.h"
#include "memcpy/rows.h"
#include "options.h"
#include "watchdog.h"

namespace collscope {

// Something that can be repeated and timed by this process alone.
struct Timed {
    // Batch: a sample is the mean of many repetitions; Isolated: of one.
    Timing timing = Timing::Batch;
    // Repeats it `calls` times; gives microseconds of one.
    std::function<Status(int calls, double& us)> run;
    // Copies known bytes once and adds the wrong ones to its argument. Empty: nothing is copied.
    std::function<Status(std::uint64_t& n_wrong)> check;
};

// Why a row is not measured at all.
struct Refusal {
    std::string status;  // failed, skipped
    std::string message;
    bool too_large = false;  // the size does not fit: no failure of the run
};

// The refusal of a row for an error. Too little memory concerns only the row's size.
Refusal refusal_of(const Status& status, bool too_large = false);

// Takes samples: warms up until the time no longer falls, then keeps to the replayer's schedule.
Status take_samples(const Timed& timed, double budget_s, CopyRow& row);

// Where rows go. Process 0 measures; the other one's refusals do nothing.
class CopyRows {
public:
    CopyRows(const CopyOptions& options, const Control& control, CopyRow base);

    // Opens the CSV. Collective.
    Status open(const std::vector<std::pair<std::string, std::string>>& metadata);
    // A row of this size, with what all rows have in common.
    CopyRow make(const std::string& kind, std::uint64_t size_bytes) const;
    void measure(CopyRow row, const Timed& timed);
    void refuse(CopyRow row, const Refusal& refusal);

    void write_end();  // all rows are there
    void set_round(int round) { base_.round = round; }
    bool failed() const { return failed_; }
    const Status& disk() const { return disk_; }  // of writing

private:
    void complain(const CopyRow& row);
    void write(const CopyRow& row);
    void keep_error(const Status& status);

    const CopyOptions& options_;
    const Control& control_;
    CopyRow base_;
    CopyRow current_;  // what is being measured, for the watchdog; set while it rests
    CopyCsv csv_;
    Watchdog watchdog_;
    Status disk_;
    bool failed_ = false;
};

}  // namespace collscope
