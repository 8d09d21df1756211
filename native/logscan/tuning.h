// TUNING lines: the algorithm and protocol the library chose for a launch.
#pragma once

#include <string_view>

#include "collective.h"
#include "text.h"

namespace logscan {

class Tuning {
public:
    explicit Tuning(Result& result) : result_(result) {}

    // "other" when the message is not a TUNING line.
    Outcome parse(std::string_view message, const Place& place);

private:
    struct Row;

    bool choice(Cursor& in, Row& row);
    bool named(Cursor& in, Row& row);
    bool numeric(Cursor& in, Row& row, std::int64_t algorithm);
    void store(const Row& row, const Place& place);

    Result& result_;
};

}  // namespace logscan
