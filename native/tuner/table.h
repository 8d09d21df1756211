// The choices of one CSV for one communicator. Parsing may allocate; looking up does not.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin_api.h"

namespace collscope::tuner {

// One row: which collectives it is for, and what it wants for them. -1: any, or the library's own.
struct Row {
    int collective = 0;
    std::uint64_t min_bytes = 0;
    std::uint64_t max_bytes = 0;
    int algorithm = 0;
    int protocol = 0;
    int channels = -1;
    std::int64_t nnodes = -1;
    std::int64_t nranks = -1;
    int pipe_ops = -1;
    int registered = -1;
    int line = 0;

    bool suits(std::uint64_t bytes, int group_ops, int buffers_registered) const {
        return min_bytes <= bytes && bytes <= max_bytes &&
               (pipe_ops == -1 || pipe_ops == group_ops) &&
               (registered == -1 || registered == buffers_registered);
    }
};

// What became of a CSV. A file with an `error` gives no rows.
struct Parsed {
    std::vector<Row> rows;
    std::string error;  // why nothing of it is used; empty when something is
    int bad_rows = 0;   // left out, the first of them described in `bad_row`
    std::string bad_row;
};

// Reads the format of docs/tuner.md: `collective,min,max,algorithm,protocol,channels` and up to
// four more columns. Never throws on content; may throw std::bad_alloc.
Parsed parse_csv(std::string_view text);

// A file with more is refused: the index of rows that all overlap grows with their square.
inline constexpr std::size_t most_rows = 8192;

const char* collective_name(int collective);
const char* algorithm_name(int algorithm);
const char* protocol_name(int protocol);

// Rows of one communicator, found by size. Rows are immutable; what has been logged is atomic.
class Table {
public:
    Table() = default;
    Table(const std::vector<Row>& rows, std::size_t nranks, std::size_t nnodes);

    // First row in the order of the file that is for this call and that `usable(row)` accepts, or
    // null. `usable` is called once per row until it returns true.
    template <typename Usable>
    const Row* find(int collective, std::uint64_t bytes, int pipe_ops, int registered,
                    Usable usable) const {
        if (collective < 0 || collective >= collectives) {
            return nullptr;
        }
        const Index& index = indexes_[static_cast<std::size_t>(collective)];
        const Span span = index.span(bytes);
        for (std::uint32_t at = span.first; at < span.end; ++at) {
            const Row& row = index.rows[at];
            if (row.suits(bytes, pipe_ops, registered) && usable(row)) {
                return &row;
            }
        }
        return nullptr;
    }

    // True the first time that it is asked for a row, `topic` (0 or 1) and power of two of bytes.
    bool first_time(const Row& row, int topic, std::uint64_t bytes) const;

    std::size_t size() const { return size_; }

private:
    // Rows [first, end) hold every row that covers a size.
    struct Span {
        std::uint32_t first = 0;
        std::uint32_t end = 0;
    };
    struct Logged {
        std::array<std::atomic<std::uint64_t>, 2> sizes{};
    };
    // Of one collective: its rows, and the sizes at which the rows that cover a size change.
    struct Index {
        std::vector<Row> rows;
        std::vector<std::uint64_t> starts;  // rising; spans[i] is for sizes from starts[i] on
        std::vector<Span> spans;
        std::unique_ptr<Logged[]> logged;

        void build();
        Span span(std::uint64_t bytes) const;
    };

    std::array<Index, collectives> indexes_;
    std::size_t size_ = 0;
};

}  // namespace collscope::tuner
