// The result of a scan: one struct of columns per table. Names and units: collscope/_logscan.pyi.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "column.h"
#include "intern.h"

namespace logscan {

struct Process {
    std::string host;
    std::string prefix;  // launcher text before its first line, without colour codes
    std::uint64_t pid;
    std::uint64_t first_line;
};

struct Threads {
    Column<std::uint32_t> process;
    Column<std::int64_t> tid;
};

struct Comms {
    Column<std::uint32_t> process;
    Column<std::uint64_t> ptr;
    Column<std::int32_t> nranks;
    Column<std::int32_t> global_rank;
    Column<std::uint32_t> generation;
};

inline constexpr std::uint32_t line_number_limit = NONE - 1;  // lines beyond it share a number

// Bits of Signature::flags.
inline constexpr std::uint32_t COUNT_MODULO_32 = 1;
inline constexpr std::uint32_t HAS_ACCUMULATOR = 2;
inline constexpr std::uint32_t POINTERS_ONLY = 4;

// No padding: compared and hashed as four machine words.
struct Signature {
    std::uint64_t count;
    std::uint32_t op;
    std::int32_t datatype;
    std::int32_t redop;
    std::int32_t root;
    std::int32_t nranks;
    std::uint32_t flags;
};
static_assert(sizeof(Signature) == 32);

struct Calls {
    Column<std::uint32_t> comm;
    Column<std::uint32_t> sig;
    Column<std::uint64_t> op_count;
    Column<std::int32_t> slot;
    Column<std::int32_t> task;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::uint8_t> source;
};

struct Groups {
    Column<std::uint32_t> process;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::int8_t> delta;
};

struct Kernels {
    Column<std::uint32_t> process;
    Column<std::uint8_t> kind;
    Column<std::int64_t> time_ns;
    Column<std::int32_t> rank;
    Column<std::int32_t> block;
    Column<std::int32_t> channel;
    Column<std::int32_t> thread;
    Column<std::uint64_t> op_count;
    Column<std::uint64_t> op_count2;
    Column<std::uint32_t> name;
    Column<std::int64_t> bus_id;
    Column<std::int32_t> nranks;
    Column<std::uint64_t> comm_ptr;
    Column<std::int32_t> root;
    Column<std::int32_t> nc;
    Column<std::uint32_t> line;
};

struct Tunings {
    Column<std::uint32_t> process;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::uint8_t> kind;
    Column<std::uint32_t> op;
    Column<std::uint64_t> bytes;
    Column<std::uint32_t> algorithm;
    Column<std::uint32_t> protocol;
    Column<std::uint32_t> kernel;
    Column<std::int32_t> channels;
    Column<double> time_us;
    Column<std::uint64_t> comm_ptr;
};

struct Messages {
    Column<std::uint32_t> process;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::uint8_t> kind;
    std::vector<std::string> text;
};

// Order is that of counter_names.
enum class Counter {
    lines,
    bytes,
    coll,
    call,
    kernel,
    tuning,
    messages,
    structure_skipped,
    unknown,
    foreign,
    data_trace,
    torn,
    interleaved,
    overlong,
    nul,
    invalid_number,
    size_
};
inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::size_);
inline constexpr std::array<const char*, counter_count> counter_names = {
    "lines",       "bytes",    "coll",       "call",
    "kernel",      "tuning",   "messages",   "structure_skipped",
    "unknown",     "foreign",  "data_trace", "torn",
    "interleaved", "overlong", "nul",        "invalid_number"};

struct Damage {
    std::uint64_t line;
    Counter code;
    std::string excerpt;
};

struct Result {
    std::vector<Process> processes;
    Threads threads;
    StringTable ops;
    Comms comms;
    KeyTable<Signature> signatures;
    Calls calls;
    Groups groups;
    Kernels kernels;
    StringTable kernel_names;
    Tunings tunings;
    StringTable tuning_names;
    Messages messages;
    std::vector<std::pair<std::uint64_t, std::string>> unknown_samples;
    std::array<std::uint64_t, counter_count> counters{};
    std::vector<Damage> damage;

    void count(Counter counter) { ++counters[static_cast<std::size_t>(counter)]; }
    std::uint64_t counted(Counter counter) const {
        return counters[static_cast<std::size_t>(counter)];
    }
    // Counts a content problem; the first fifty of each code are kept with an excerpt.
    void damaged(Counter code, std::uint64_t line, std::string_view record);

    static constexpr std::uint64_t damage_kept = 50;  // of each code
    static constexpr std::size_t unknown_kept = 20;
};

// Copy without colour codes (ESC [ ... letter) and NULs, right-trimmed, at most `limit` bytes.
std::string clean_text(std::string_view raw, std::size_t limit);

}  // namespace logscan
