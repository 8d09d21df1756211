// Where a record starts in a physical line, and the process and thread that printed it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "intern.h"
#include "result.h"

namespace logscan {

enum class Level : std::uint8_t { info, warn, trace, call };

// The words every line of the library has after its prefix, found anywhere in a line.
struct Anchor {
    std::size_t begin;    // offset of "NCCL INFO", or npos
    std::size_t message;  // offset of the text after it
    Level level;
};

// First anchor at or after `from`. WARN includes ABORT and RCCL's [FATAL ERROR].
Anchor find_anchor(std::string_view line, std::size_t from);

// The printer of one record.
struct Origin {
    std::uint32_t process;
    std::uint32_t thread;
    std::size_t begin;  // offset of the host, where the record before it ends
    std::size_t place;  // offset of what stands between "[dev] " and the anchor (file:line)
};

// Interns hosts, processes and threads, with a small cache keyed on "host:pid:tid" as printed.
class Origins {
public:
    explicit Origins(Result& result) : result_(result) {}

    // `after` is where the previous record's text begins, 0 for the first record of the line.
    Origin resolve(std::string_view line, const Anchor& anchor, std::size_t after,
                   std::uint64_t line_number);

private:
    struct Source {
        std::size_t begin;
        std::string_view host;
        std::uint64_t pid;
        std::int64_t tid;
    };
    struct ThreadKey {
        std::uint64_t process;
        std::int64_t tid;
    };
    struct Cached {
        std::string key;
        std::uint32_t process = NONE;
        std::uint32_t thread = NONE;
    };

    static bool split_source(std::string_view line, std::size_t end, Source& source);
    void drop_glued_text(std::string_view line, std::size_t after, Source& source);
    std::uint32_t find_seen_glued(const Process& found);
    std::uint32_t find_process(Process found);
    std::uint32_t find_thread(std::uint32_t process, std::int64_t tid);

    Result& result_;
    StringTable process_keys_;
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> of_pid_;  // with a host
    KeyTable<ThreadKey> threads_;
    std::array<Cached, 256> cache_;
    bool host_after_row_ = false;  // of a process whose first line is half a row of a table
    std::unordered_map<std::string, std::uint32_t> renamed_;  // keys of hosts seen glued before
};

}  // namespace logscan
