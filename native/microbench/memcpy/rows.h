// The result file of the memcpy benchmark, written row by row. Columns: schemas/memcpy-csv.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csv_text.h"

namespace collscope {

struct CopyRow {
    std::string label;
    int round = 0;
    std::string kind;
    std::optional<int> src_device, dst_device;  // none: memory of the host
    std::string direction = "one";              // one, both
    std::string access;                         // peer, none; empty: does not apply
    std::uint64_t size_bytes = 0;               // of one copy in one direction
    bool carries = true;                        // false: nothing is copied, so no bandwidth
    std::vector<double> samples_us;             // of one repetition
    std::uint64_t iterations = 0;
    std::optional<std::uint64_t> n_wrong;  // bytes
    std::string checked;                   // all, sample
    std::string status = "ok";             // ok, wrong, failed, timeout, skipped
    std::string message;
    std::string device, runtime, hostname, started;
};

// Without the line's end.
std::string line_of(const CopyRow& row);
std::string copy_header();

// Thread-safe: the watchdog writes the last row.
class CopyCsv {
public:
    // Makes `path` anew, with its metadata and the header.
    Status open(const std::string& path,
                const std::vector<std::pair<std::string, std::string>>& metadata);
    Status write(const CopyRow& row);
    Status write_end();
    // Writes the row and lets nothing follow it.
    void write_last(const CopyRow& row);

private:
    csv::TextFile file_;
};

}  // namespace collscope
