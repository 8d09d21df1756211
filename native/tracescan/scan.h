// Events of a PyTorch profiler trace: JSON text in, columns out. See collscope/_tracescan.pyi.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tracescan {

// Distinct JSON values as text of the file, and the number of the event that has each one first.
struct Table {
    std::vector<std::string_view> values;
    std::vector<std::int32_t> first;
};

struct Gpu {
    std::vector<std::int8_t> kind;  // Kind of collscope.model.trace
    std::vector<std::int32_t> name;
    std::vector<std::int32_t> stream;
    std::vector<double> start_us;
    std::vector<double> duration_us;
    std::vector<std::int64_t> correlation;  // -1: none
    std::vector<std::int64_t> seq;          // -1: none
    std::vector<std::int32_t> event;
    std::vector<std::int64_t> begin;  // of the event in the text
    std::vector<std::int64_t> end;
};

struct Calls {
    std::vector<std::int32_t> name;  // -1: a flow
    std::vector<std::int32_t> thread;
    std::vector<double> start_us;
    std::vector<double> duration_us;  // -1: unknown
    std::vector<std::int64_t> correlation;
};

struct Others {
    std::vector<std::int32_t> event;
    std::vector<std::int64_t> begin;
    std::vector<std::int64_t> end;
};

struct Events {
    Gpu gpu;
    Calls calls;
    Others others;
    Table names;
    Table devices;  // pairs: device, stream; of each the text, empty where unknown
    Table streams;  // as long as `devices`, which has the first events
    Table call_names;
    Table threads;
    std::int64_t bad = 0;
    std::int64_t origin_us = 0;
    bool cpu = false;
};

// The events that stand in the text, separated by commas; nothing where one of them is not plain.
//
// exact      times are counted from an origin on: whole microseconds of the first one
// origin_us  the origin; 0: none yet
std::optional<Events> scan(std::string_view text, bool exact, std::int64_t origin_us);

}  // namespace tracescan
