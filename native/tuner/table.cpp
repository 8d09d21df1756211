#include "table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace collscope::tuner {

// Sizes at which a row begins or has just ended are where the set of covering rows changes. A span
// is the run of rows from the first to the last that covers its sizes: in a file whose rows do not
// overlap it is one row, so a lookup is a binary search.
void Table::Index::build() {
    constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
    starts.push_back(0);
    for (const Row& row : rows) {
        starts.push_back(row.min_bytes);
        if (row.max_bytes != largest) {
            starts.push_back(row.max_bytes + 1);
        }
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    spans.resize(starts.size());
    // Backwards, so that the last row to write `first` is the first that covers the size.
    const auto count = static_cast<std::uint32_t>(rows.size());
    for (std::uint32_t at = count; at-- > 0;) {
        const auto from = std::lower_bound(starts.begin(), starts.end(), rows[at].min_bytes);
        const auto to = std::upper_bound(from, starts.end(), rows[at].max_bytes);
        for (auto i = from - starts.begin(); i < to - starts.begin(); ++i) {
            Span& span = spans[static_cast<std::size_t>(i)];
            span.first = at;
            span.end = std::max(span.end, at + 1);
        }
    }
    logged = std::make_unique<Logged[]>(rows.size());
}

Table::Span Table::Index::span(std::uint64_t bytes) const {
    if (starts.empty()) {
        return {};
    }
    const auto after = std::upper_bound(starts.begin(), starts.end(), bytes);
    return spans[static_cast<std::size_t>(after - starts.begin()) - 1];
}

Table::Table(const std::vector<Row>& rows, std::size_t nranks, std::size_t nnodes) {
    const auto same = [](std::int64_t wanted, std::size_t is) {
        return wanted == -1 || static_cast<std::uint64_t>(wanted) == is;
    };
    for (const Row& row : rows) {
        if (same(row.nranks, nranks) && same(row.nnodes, nnodes)) {
            indexes_[static_cast<std::size_t>(row.collective)].rows.push_back(row);
            ++size_;
        }
    }
    for (Index& index : indexes_) {
        if (!index.rows.empty()) {
            index.build();
        }
    }
}

bool Table::first_time(const Row& row, int topic, std::uint64_t bytes) const {
    const Index& index = indexes_[static_cast<std::size_t>(row.collective)];
    auto& sizes = index.logged[static_cast<std::size_t>(&row - index.rows.data())]
                      .sizes[static_cast<std::size_t>(topic)];
    const int power = std::min(static_cast<int>(std::bit_width(bytes)), 63);
    const std::uint64_t bucket = std::uint64_t{1} << power;
    // Loads first: a collective that has been logged must not write to a shared cache line.
    return (sizes.load(std::memory_order_relaxed) & bucket) == 0 &&
           (sizes.fetch_or(bucket, std::memory_order_relaxed) & bucket) == 0;
}

}  // namespace collscope::tuner
