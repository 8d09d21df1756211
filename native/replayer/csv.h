// The result file, written line by line. Columns: schemas/replay-csv.md.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"
#include "csv_text.h"
#include "plan.h"

namespace collscope {

using Metadata = std::vector<std::pair<std::string, std::string>>;  // `# key: value`, in order

struct Row {
    std::string op, datatype, redop;
    std::optional<int> root;
    std::optional<std::uint64_t> count, size_bytes;
    std::optional<bool> in_place;
    int nranks = 0;
    int nnodes = 0;
    std::optional<std::uint64_t> calls;
    std::vector<double> samples_us;
    std::uint64_t iterations = 0;
    std::optional<double> bus_factor;  // busbw / algbw
    std::optional<std::uint64_t> n_wrong;
    std::string method, backend, library, device, host, status;
    std::optional<int> class_id;
    std::string shape, comms, checked, label, round;
    std::optional<int> scaled_from;
    std::string message;
};

// The class's key; no measurement yet.
Row row_of(const Plan& plan, const Class& cls);
// busbw / algbw by nccl-tests (doc/PERFORMANCE.md, src/*.cu); none for a single rank.
std::optional<double> bus_factor(Op op, int nranks);
double algbw_gbps(const Row& row);  // of the median; 0 without samples or size

std::string line_of(const Row& row);  // without the line's end
std::string header_line();

// What --resume keeps of an existing file.
struct Kept {
    std::string error;       // it cannot be resumed
    std::string text;        // metadata, header and the rows to keep
    std::set<int> finished;  // classes with status ok under this label and round
    bool sequence_finished = false;
};

Kept keep_finished(const std::string& text, const std::string& digest, const std::string& label,
                   const std::string& round);
// All of an existing file, without a torn last line.
Kept keep_all(const std::string& text);

// Thread-safe: the watchdog writes the last row.
class CsvWriter {
public:
    CsvWriter() = default;
    CsvWriter(const CsvWriter&) = delete;
    CsvWriter& operator=(const CsvWriter&) = delete;

    // Makes `path` anew, beginning with `kept`.
    Status open(const std::string& path, const std::string& kept);
    Status write_metadata(const Metadata& metadata);
    Status write(const Row& row);
    Status write_end();  // all classes have their rows
    // Writes the rows and lets nothing follow them.
    void write_last(const std::vector<Row>& rows);

private:
    csv::TextFile file_;
    bool has_header_ = false;
};

}  // namespace collscope
