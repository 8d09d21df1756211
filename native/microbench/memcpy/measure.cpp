#include "memcpy/measure.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "clock.h"
#include "memcpy/check.h"
#include "timing.h"

namespace collscope {

namespace {

constexpr int warm_up_calls = 3;
constexpr int most_estimates = 5;
constexpr double estimate_us = 2500;
constexpr int estimate_calls = 20;

// 2026-01-31T12:00:00Z
std::string now_text() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

// "peer_async 0 to 1, 4096 bytes"
std::string title_of(const CopyRow& row) {
    const auto place = [](const std::optional<int>& device) {
        return device ? std::to_string(*device) : std::string("host");
    };
    return row.kind + " " + place(row.src_device) + " to " + place(row.dst_device) + ", " +
           std::to_string(row.size_bytes) + " bytes";
}

// First calls pay for mappings and clocks: repeats until the time no longer falls.
Status warm_up(const Timed& timed, double budget_s, double& us) {
    Status status;
    const double end = steady_us() + budget_s * 1e6 / 4;
    for (int i = 0; i < warm_up_calls && status.ok(); ++i) {
        status = timed.run(1, us);
    }
    bool more = us < budget_s * 1e6 / 8;
    for (int i = 0; i < most_estimates && status.ok() && more; ++i) {
        const double before = us;
        const double calls =
            std::clamp(estimate_us / std::max(us, 0.1), 1.0, double{estimate_calls});
        status = timed.run(static_cast<int>(calls), us);
        more = steady_us() < end && us < 0.9 * before;
    }
    return status;
}

}  // namespace

Refusal refusal_of(const Status& status, bool too_large) {
    return {"failed", status.error, too_large};
}

Status take_samples(const Timed& timed, double budget_s, CopyRow& row) {
    double us = 0;
    Status status = warm_up(timed, budget_s, us);
    const Schedule schedule = schedule_for(us, budget_s, timed.timing);
    for (int i = 0; i < schedule.samples && status.ok(); ++i) {
        status = timed.run(schedule.calls, us);
        row.samples_us.push_back(us);
    }
    if (!status.ok()) {
        row.samples_us.clear();
    }
    row.iterations = static_cast<std::uint64_t>(schedule.calls) * row.samples_us.size();
    return status;
}

CopyRows::CopyRows(const CopyOptions& options, const Control& control, CopyRow base)
    : options_(options),
      control_(control),
      base_(std::move(base)),
      watchdog_(options.timeout_s, control.writer(), "host " + control.host(control.first_rank())) {
    watchdog_.waiting_for("copying");
    watchdog_.on_expiry([this](const std::string& message) {
        current_.status = "timeout";
        current_.message = message;
        csv_.write_last(current_);
    });
}

Status CopyRows::open(const std::vector<std::pair<std::string, std::string>>& metadata) {
    return control_.agree(control_.writer() ? csv_.open(options_.csv, metadata) : Status{});
}

CopyRow CopyRows::make(const std::string& kind, std::uint64_t size_bytes) const {
    CopyRow row = base_;
    row.kind = kind;
    row.size_bytes = size_bytes;
    row.started = now_text();
    return row;
}

void CopyRows::measure(CopyRow row, const Timed& timed) {
    current_ = row;
    watchdog_.start(title_of(row));
    Status status;
    if (timed.check) {
        std::uint64_t wrong = 0;
        status = timed.check(wrong);
        if (status.ok()) {
            row.n_wrong = wrong;
            row.checked = all_checked(row.size_bytes) ? "all" : "sample";
            row.status = wrong == 0 ? "ok" : "wrong";
        }
    }
    if (status.ok()) {
        // The budget may be larger than the timeout.
        const auto watched = [this, &timed](int calls, double& us) {
            watchdog_.progress();
            return timed.run(calls, us);
        };
        status = take_samples({timed.timing, watched, {}}, options_.budget_s, row);
    }
    watchdog_.stop();
    if (!status.ok()) {
        row.status = "failed";
        row.message = status.error;
    }
    if (row.status != "ok") {
        complain(row);
    }
    write(row);
}

void CopyRows::refuse(CopyRow row, const Refusal& refusal) {
    if (!control_.writer()) {
        return;
    }
    row.status = refusal.status;
    row.message = refusal.message;
    if (refusal.status == "failed" && !refusal.too_large) {
        complain(row);
    }
    write(row);
}

void CopyRows::complain(const CopyRow& row) {
    failed_ = true;
    std::fprintf(stderr, "%s: %s. The other rows are still measured.\n", title_of(row).c_str(),
                 row.status == "wrong" ? "wrong bytes arrived" : row.message.c_str());
}

void CopyRows::write(const CopyRow& row) { keep_error(csv_.write(row)); }

void CopyRows::write_end() { keep_error(csv_.write_end()); }

void CopyRows::keep_error(const Status& status) { disk_ = disk_.ok() ? status : disk_; }

}  // namespace collscope
