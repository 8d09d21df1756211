// RCCL's kernel trace: "## [seconds] [rank:block] opCount KL ..." lines of five generations.
#pragma once

#include <string_view>

#include "collective.h"
#include "text.h"

namespace logscan {

class KernelTrace {
public:
    explicit KernelTrace(Result& result) : result_(result) {}

    // "other" for data-trace lines, which are counted only.
    Outcome parse(std::string_view message, const Place& place);

private:
    struct Row;

    static bool header(Cursor& in, Row& row);
    static bool position(Cursor& in, Row& row);
    static bool op_counts(Cursor& in, Row& row);
    static bool kind(Cursor& in, Row& row);
    static void body(Cursor& in, Row& row);
    static bool pair(Cursor& in, Row& row, std::string_view word);
    static bool complete(const Row& row, bool cut);
    void store(const Row& row, const Place& place);

    Result& result_;
};

}  // namespace logscan
