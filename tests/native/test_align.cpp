// Native tests of the alignment: against a quadratic table on small inputs, and its bounds.
#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

#include "align.h"
#include "check.h"
#include "group.h"
#include "merge_order.h"

namespace {

using Values = std::vector<std::uint64_t>;

std::size_t common_length(const Values& a, const Values& b) {
    std::vector<std::vector<std::size_t>> best(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b.size(); ++j) {
            best[i + 1][j + 1] =
                a[i] == b[j] ? best[i][j] + 1 : std::max(best[i][j + 1], best[i + 1][j]);
        }
    }
    return best[a.size()][b.size()];
}

// Partners are equal and rise; returns how many there are.
std::size_t checked_pairs(const Values& a, const Values& b,
                          const std::vector<std::int32_t>& match) {
    CHECK(match.size() == b.size());
    std::int32_t last = -1;
    std::size_t pairs = 0;
    for (std::size_t j = 0; j < match.size(); ++j) {
        if (match[j] < 0) {
            continue;
        }
        CHECK(match[j] > last);
        CHECK(a.at(static_cast<std::size_t>(match[j])) == b[j]);
        last = match[j];
        ++pairs;
    }
    return pairs;
}

void is_longest_on_small_inputs() {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        Values a(random() % 24);
        Values b(random() % 24);
        const unsigned letters = 1 + random() % 8;
        std::generate(a.begin(), a.end(), [&] { return random() % letters; });
        std::generate(b.begin(), b.end(), [&] { return random() % letters; });
        CHECK(checked_pairs(a, b, align::match(a, b)) == common_length(a, b));
        CHECK(checked_pairs(a, b, align::match(a, b, 2)) <= common_length(a, b));
    }
}

void survives_its_limit() {
    Values a(3000);
    for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = i;
    }
    const Values tail(a.begin() + 2000, a.end());
    CHECK(checked_pairs(a, tail, align::match(a, tail, 10)) == tail.size());
    Values other(3000, 7);
    Values another(3000, 8);
    CHECK(checked_pairs(other, another, align::match(other, another, 10)) == 0);
    CHECK(align::match({}, a).size() == a.size());
    CHECK(align::match(a, {}).empty());
}

void merges_orders() {
    using Nodes = std::vector<std::int32_t>;
    const auto merged = [](const std::vector<Nodes>& chains, std::int32_t nodes) {
        align::ChainMerger merger(nodes);
        for (const Nodes& chain : chains) {
            merger.add(chain);
        }
        return merger.merge();
    };
    CHECK(merged({{2, 0}, {0, 1}}, 4).order == (Nodes{2, 0, 1, 3}));
    CHECK(merged({{0, 1}, {1, 0}}, 2).contradictions == 1);
    CHECK(merged({{1, -1, 7}, {}, {-2147483647 - 1}}, 2).order == (Nodes{0, 1}));
    CHECK(merged({}, 0).order.empty());
}

void groups_rows() {
    using Rows = std::vector<std::int64_t>;
    const std::vector<std::int32_t> keys{2, 0, 2, 2, 0};
    const align::Groups found = align::group(keys, 4);
    CHECK(found.order == (Rows{1, 4, 0, 2, 3}));
    CHECK(found.bounds == (Rows{0, 2, 2, 5, 5}));
    CHECK(align::group({}, 0).bounds == (Rows{0}));
    const auto refuses = [&](std::vector<std::int32_t> wrong, std::int32_t count) {
        try {
            align::group(wrong, count);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    CHECK(refuses({0, 3}, 3));
    CHECK(refuses({-1}, 3));
    CHECK(refuses({}, -1));
}

}  // namespace

int main() {
    is_longest_on_small_inputs();
    survives_its_limit();
    merges_orders();
    groups_rows();
    return check::result();
}
