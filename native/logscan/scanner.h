// The scanner: bytes of a log in, columns out. See collscope/_logscan.pyi for what it promises.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective.h"
#include "kernel_trace.h"
#include "message.h"
#include "origin.h"
#include "result.h"
#include "tuning.h"

namespace logscan {

class Scanner {
public:
    Scanner() = default;
    Scanner(const Scanner&) = delete;
    Scanner& operator=(const Scanner&) = delete;

    // Takes a piece of the log that may be cut anywhere. Only an unfinished last line is copied.
    void feed(std::string_view data);

    // Flushes the last line and gives the result away; the scanner is spent afterwards.
    Result finish();

    // Where a longer line is cut; what follows up to its newline is not looked at.
    static constexpr std::size_t line_limit = 1 << 20;

private:
    void keep(std::string_view part);
    void scan_line(std::string_view line, bool newline);
    void scan_records(std::string_view line, const Anchor& first, bool newline);
    void scan_foreign(std::string_view line);
    void dispatch(std::string_view line, const Anchor& anchor, const Origin& origin,
                  std::size_t end, const Place& place);
    void info(std::string_view message, const Place& place);
    void call(std::string_view message, const Place& place);
    void text(std::string_view message, const Place& place);
    void report(Outcome outcome, std::string_view record, const Place& place);
    void unknown(std::string_view message, const Place& place);

    Result result_;
    Origins origins_{result_};
    Collectives collectives_{result_};
    KernelTrace kernels_{result_};
    Tuning tuning_{result_};
    std::string pending_;              // the unfinished last line, at most line_limit bytes
    std::uint64_t pending_bytes_ = 0;  // its length so far, also beyond the limit
    std::uint32_t line_ = 0;
    std::uint32_t block_until_ = 0;  // last line on which RCCL's version block may go on
    bool saw_nul_ = false;
};

}  // namespace logscan
