#include "merge_order.h"

#include <utility>

namespace align {

namespace {

using Node = std::int32_t;

}  // namespace

ChainMerger::ChainMerger(Node nodes)
    : seen_in_(static_cast<std::size_t>(nodes), -1), linked_(static_cast<std::size_t>(nodes), -1) {}

void ChainMerger::add(std::span<const Node> chain) {
    Node before = -1;
    for (const Node here : chain) {
        const auto at = static_cast<std::size_t>(here);
        if (here < 0 || at >= seen_in_.size() || seen_in_[at] == chains_) {
            continue;
        }
        seen_in_[at] = chains_;
        if (before >= 0 && linked_[at] != before) {
            linked_[at] = before;
            links_.push_back({here, before});
        }
        before = here;
    }
    ++chains_;
}

// Depth first: every node after all that must stand before it.
MergedOrder ChainMerger::merge() const {
    enum class State : std::uint8_t { fresh, open, placed };
    const std::size_t nodes = seen_in_.size();
    // Links grouped by node, in the order in which they came: those of node n stand at
    // [first[n], first[n + 1]).
    std::vector<std::size_t> first(nodes + 1);
    for (const Link& link : links_) {
        ++first[static_cast<std::size_t>(link.node) + 1];
    }
    for (std::size_t n = 0; n < nodes; ++n) {
        first[n + 1] += first[n];
    }
    std::vector<Node> before(links_.size());
    std::vector<std::size_t> free(first.begin(), first.end() - 1);
    for (const Link& link : links_) {
        before[free[static_cast<std::size_t>(link.node)]++] = link.before;
    }
    MergedOrder merged;
    merged.order.reserve(nodes);
    std::vector<State> state(nodes, State::fresh);
    std::vector<std::pair<Node, std::size_t>> open;  // a node and the next of its predecessors
    const auto enter = [&](Node n) {
        state[static_cast<std::size_t>(n)] = State::open;
        open.emplace_back(n, first[static_cast<std::size_t>(n)]);
    };
    for (std::size_t start = 0; start < nodes; ++start) {
        if (state[start] == State::fresh) {
            enter(static_cast<Node>(start));
        }
        while (!open.empty()) {
            auto& [current, next] = open.back();
            if (next == first[static_cast<std::size_t>(current) + 1]) {
                state[static_cast<std::size_t>(current)] = State::placed;
                merged.order.push_back(current);
                open.pop_back();
                continue;
            }
            const Node wanted = before[next++];
            const State found = state[static_cast<std::size_t>(wanted)];
            if (found == State::fresh) {
                enter(wanted);
            } else if (found == State::open) {
                ++merged.contradictions;
            }
        }
    }
    return merged;
}

}  // namespace align
