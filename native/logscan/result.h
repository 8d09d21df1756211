// The result of a scan: one struct of columns per table, see collscope/model/scanned_log.py.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coll_line.h"
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

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Threads::process);
        with("tid", &Threads::tid);
    }
};
static_assert(lists_all_columns<Threads>());

struct Comms {
    Column<std::uint32_t> process;
    Column<std::uint64_t> ptr;
    Column<std::int32_t> nranks;
    Column<std::int32_t> global_rank;
    Column<std::uint32_t> generation;

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Comms::process);
        with("ptr", &Comms::ptr);
        with("nranks", &Comms::nranks);
        with("global_rank", &Comms::global_rank);
        with("generation", &Comms::generation);
    }
};
static_assert(lists_all_columns<Comms>());

inline constexpr std::uint32_t line_number_limit = NONE - 1;  // lines beyond it share a number

struct Groups {
    Column<std::uint32_t> process;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::int8_t> delta;

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Groups::process);
        with("thread", &Groups::thread);
        with("line", &Groups::line);
        with("delta", &Groups::delta);
    }
};
static_assert(lists_all_columns<Groups>());

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

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Kernels::process);
        with("kind", &Kernels::kind);
        with("time_ns", &Kernels::time_ns);
        with("rank", &Kernels::rank);
        with("block", &Kernels::block);
        with("channel", &Kernels::channel);
        with("thread", &Kernels::thread);
        with("op_count", &Kernels::op_count);
        with("op_count2", &Kernels::op_count2);
        with("name", &Kernels::name);
        with("bus_id", &Kernels::bus_id);
        with("nranks", &Kernels::nranks);
        with("comm_ptr", &Kernels::comm_ptr);
        with("root", &Kernels::root);
        with("nc", &Kernels::nc);
        with("line", &Kernels::line);
    }
};
static_assert(lists_all_columns<Kernels>());

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

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Tunings::process);
        with("thread", &Tunings::thread);
        with("line", &Tunings::line);
        with("kind", &Tunings::kind);
        with("op", &Tunings::op);
        with("bytes", &Tunings::bytes);
        with("algorithm", &Tunings::algorithm);
        with("protocol", &Tunings::protocol);
        with("kernel", &Tunings::kernel);
        with("channels", &Tunings::channels);
        with("time_us", &Tunings::time_us);
        with("comm_ptr", &Tunings::comm_ptr);
    }
};
static_assert(lists_all_columns<Tunings>());

struct Messages {
    Column<std::uint32_t> process;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::uint8_t> kind;
    std::vector<std::string> text;

    template <class With>
    static constexpr void columns(With&& with) {
        with("process", &Messages::process);
        with("thread", &Messages::thread);
        with("line", &Messages::line);
        with("kind", &Messages::kind);
    }
};
static_assert(lists_all_columns<Messages, std::vector<std::string>>());

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
    repeated,
    size_
};
inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::size_);
inline constexpr std::array<const char*, counter_count> counter_names = {
    "lines",       "bytes",    "coll",       "call",
    "kernel",      "tuning",   "messages",   "structure_skipped",
    "unknown",     "foreign",  "data_trace", "torn",
    "interleaved", "overlong", "nul",        "invalid_number",
    "repeated"};

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

    void count(Counter counter, std::uint64_t times = 1) {
        counters[static_cast<std::size_t>(counter)] += times;
    }
    std::uint64_t counted(Counter counter) const {
        return counters[static_cast<std::size_t>(counter)];
    }
    // Counts a content problem; the first fifty of each code are kept with an excerpt.
    void damaged(Counter code, std::uint64_t line, std::string_view record,
                 std::uint64_t times = 1);

    static constexpr std::uint64_t damage_kept = 50;  // of each code
    static constexpr std::size_t unknown_kept = 20;
};

// Copy without colour codes (ESC [ ... letter) and NULs, right-trimmed, at most `limit` bytes.
std::string clean_text(std::string_view raw, std::size_t limit);

}  // namespace logscan
