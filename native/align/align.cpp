#include "align.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace align {

namespace {

using Index = std::int64_t;

// A rectangle of the edit graph: elements [a0, a1) of the reference, [b0, b1) of the sequence.
struct Box {
    Index a0, a1, b0, b1;
    bool empty() const { return a0 == a1 || b0 == b1; }
};

struct Point {
    Index x, y;
};

constexpr Index least_limit = 256;

using Values = std::span<const std::uint64_t>;

// Elements of one sequence that occur in the other; only they can have a partner.
struct Kept {
    std::vector<std::uint64_t> values;
    std::vector<std::size_t> places;

    Kept(Values all, Values other) {
        const std::unordered_set<std::uint64_t> known(other.begin(), other.end());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (known.contains(all[i])) {
                values.push_back(all[i]);
                places.push_back(i);
            }
        }
    }
};

// E. W. Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986), in its
// linear-space form: paths grow from both corners of the box until they meet.
class Aligner {
public:
    Aligner(Values reference, Values sequence, std::size_t limit)
        : a_(reference),
          b_(sequence),
          limit_(static_cast<Index>(limit / 2 + 1)),
          offset_(static_cast<Index>(sequence.size()) + 1),
          forward_(reference.size() + sequence.size() + 3),
          backward_(forward_.size()),
          partner_(sequence.size(), -1) {}

    std::vector<std::int32_t> run() {
        const Box all{0, static_cast<Index>(a_.size()), 0, static_cast<Index>(b_.size())};
        todo_.push_back(all);
        while (!todo_.empty()) {
            const Box box = todo_.back();
            todo_.pop_back();
            solve(box);
        }
        return std::move(partner_);
    }

private:
    bool equal(Index x, Index y) const {
        return a_[static_cast<std::size_t>(x)] == b_[static_cast<std::size_t>(y)];
    }
    void pair(Index x, Index y) {
        partner_[static_cast<std::size_t>(y)] = static_cast<std::int32_t>(x);
    }
    Index& forward(Index diagonal) {
        return forward_[static_cast<std::size_t>(diagonal + offset_)];
    }
    Index& backward(Index diagonal) {
        return backward_[static_cast<std::size_t>(diagonal + offset_)];
    }

    void solve(Box box) {
        for (; !box.empty() && equal(box.a0, box.b0); ++box.a0, ++box.b0) {
            pair(box.a0, box.b0);
        }
        for (; !box.empty() && equal(box.a1 - 1, box.b1 - 1); --box.a1, --box.b1) {
            pair(box.a1 - 1, box.b1 - 1);
        }
        if (box.empty()) {
            return;
        }
        Point split{};
        if (!meet(box, split)) {
            if (push_between_anchors(box)) {
                return;
            }
            limit_ = std::max(limit_ / 2, least_limit);  // so that hopeless input stays cheap
        }
        todo_.push_back({box.a0, split.x, box.b0, split.y});
        todo_.push_back({split.x, box.a1, split.y, box.b1});
    }

    // The band of diagonals a search front has reached; it widens by one to each side, or narrows
    // where it ran out of the box.
    struct Band {
        Index low, high;

        void widen(Index least, Index most, Index outside, auto&& at) {
            if (low > least) {
                --low;
                at(low - 1) = outside;
            } else {
                ++low;
            }
            if (high < most) {
                ++high;
                at(high + 1) = outside;
            } else {
                --high;
            }
        }
        bool holds(Index diagonal) const { return low <= diagonal && diagonal <= high; }
    };

    // A point on a shortest edit path of the box; false at the limit, with the point that the
    // forward search brought furthest.
    bool meet(const Box& box, Point& split) {
        const Index least = box.a0 - box.b1;
        const Index most = box.a1 - box.b0;
        const Index start = box.a0 - box.b0;
        const Index goal = box.a1 - box.b1;
        const bool odd = ((start - goal) & 1) != 0;
        Band ahead{start, start};
        Band behind{goal, goal};
        forward(start) = box.a0;
        backward(goal) = box.a1;
        for (Index edits = 1;; ++edits) {
            ahead.widen(least, most, -1, [this](Index d) -> Index& { return forward(d); });
            for (Index d = ahead.high; d >= ahead.low; d -= 2) {
                const Index x = extend_forward(box, d);
                if (odd && behind.holds(d) && backward(d) <= x) {
                    split = {x, x - d};
                    return true;
                }
            }
            behind.widen(least, most, INT64_MAX, [this](Index d) -> Index& { return backward(d); });
            for (Index d = behind.high; d >= behind.low; d -= 2) {
                const Index x = extend_backward(box, d);
                if (!odd && ahead.holds(d) && x <= forward(d)) {
                    split = {x, x - d};
                    return true;
                }
            }
            if (edits >= limit_) {
                split = furthest(box, ahead);
                return false;
            }
        }
    }

    Index extend_forward(const Box& box, Index d) {
        const Index below = forward(d - 1);
        const Index above = forward(d + 1);
        Index x = below < above ? above : below + 1;
        while (x < box.a1 && x - d < box.b1 && equal(x, x - d)) {
            ++x;
        }
        return forward(d) = x;
    }

    Index extend_backward(const Box& box, Index d) {
        const Index below = backward(d - 1);
        const Index above = backward(d + 1);
        Index x = below < above ? below : above - 1;
        while (x > box.a0 && x - d > box.b0 && equal(x - 1, x - d - 1)) {
            --x;
        }
        return backward(d) = x;
    }

    Point furthest(const Box& box, const Band& ahead) {
        Point best{box.a0, box.b0};
        for (Index d = ahead.high; d >= ahead.low; d -= 2) {
            const Index x = std::min({forward(d), box.a1, box.b1 + d});
            if (x + x - d > best.x + best.y && x - d >= box.b0 && x >= box.a0) {
                best = {x, x - d};
            }
        }
        return best;
    }

    // Pairs the values that occur once on both sides and rise on both, leaves the gaps to do.
    // False when there are none.
    bool push_between_anchors(const Box& box) {
        const std::vector<Point> anchors = rising(unique_pairs(box));
        Index x = box.a0;
        Index y = box.b0;
        for (const Point& anchor : anchors) {
            pair(anchor.x, anchor.y);
            todo_.push_back({x, anchor.x, y, anchor.y});
            x = anchor.x + 1;
            y = anchor.y + 1;
        }
        if (!anchors.empty()) {
            todo_.push_back({x, box.a1, y, box.b1});
        }
        return !anchors.empty();
    }

    std::vector<Point> unique_pairs(const Box& box) const {
        constexpr Index absent = -1;
        constexpr Index repeated = -2;
        std::unordered_map<std::uint64_t, Point> seen;
        for (Index x = box.a0; x < box.a1; ++x) {
            const auto [entry, fresh] =
                seen.try_emplace(a_[static_cast<std::size_t>(x)], Point{x, absent});
            entry->second.x = fresh ? x : repeated;
        }
        for (Index y = box.b0; y < box.b1; ++y) {
            const auto entry = seen.find(b_[static_cast<std::size_t>(y)]);
            if (entry != seen.end()) {
                entry->second.y = entry->second.y == absent ? y : repeated;
            }
        }
        std::vector<Point> pairs;
        for (Index y = box.b0; y < box.b1; ++y) {
            const auto entry = seen.find(b_[static_cast<std::size_t>(y)]);
            if (entry != seen.end() && entry->second.x >= 0 && entry->second.y == y) {
                pairs.push_back(entry->second);
            }
        }
        return pairs;
    }

    // Longest subsequence that rises in x; the pairs come sorted by y (patience sorting).
    static std::vector<Point> rising(const std::vector<Point>& pairs) {
        std::vector<std::size_t> tops;
        std::vector<std::size_t> previous(pairs.size(), pairs.size());
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            const auto pile =
                std::lower_bound(tops.begin(), tops.end(), pairs[i].x,
                                 [&](std::size_t top, Index x) { return pairs[top].x < x; });
            if (pile != tops.begin()) {
                previous[i] = *(pile - 1);
            }
            if (pile == tops.end()) {
                tops.push_back(i);
            } else {
                *pile = i;
            }
        }
        std::vector<Point> chain;
        for (std::size_t i = tops.empty() ? pairs.size() : tops.back(); i != pairs.size();
             i = previous[i]) {
            chain.push_back(pairs[i]);
        }
        std::reverse(chain.begin(), chain.end());
        return chain;
    }

    Values a_;
    Values b_;
    Index limit_;
    Index offset_;
    std::vector<Index> forward_;   // by diagonal x - y: how far in x the path from the start came
    std::vector<Index> backward_;  // the same from the end
    std::vector<std::int32_t> partner_;
    std::vector<Box> todo_;
};

}  // namespace

std::vector<std::int32_t> match(Values reference, Values sequence, std::size_t limit) {
    const Kept a(reference, sequence);
    const Kept b(sequence, reference);
    const std::vector<std::int32_t> partner = Aligner(a.values, b.values, limit).run();
    std::vector<std::int32_t> out(sequence.size(), -1);
    for (std::size_t i = 0; i < partner.size(); ++i) {
        if (partner[i] >= 0) {
            out[b.places[i]] =
                static_cast<std::int32_t>(a.places[static_cast<std::size_t>(partner[i])]);
        }
    }
    return out;
}

}  // namespace align
