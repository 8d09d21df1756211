#include "merge_order.h"

#include <algorithm>
#include <utility>

namespace align {

namespace {

using Node = std::int32_t;

// Items with a key, grouped by it: those of key k stand at [first[k], first[k + 1]).
struct Grouped {
    std::vector<std::size_t> first;
    std::vector<Node> items;
};

// Groups `count` items by counting; `key` and `item` give those of index i, a negative key none.
Grouped group(std::size_t count, std::size_t keys, auto&& key, auto&& item) {
    Grouped out{std::vector<std::size_t>(keys + 1), {}};
    for (std::size_t i = 0; i < count; ++i) {
        if (key(i) >= 0) {
            ++out.first[static_cast<std::size_t>(key(i)) + 1];
        }
    }
    for (std::size_t k = 0; k < keys; ++k) {
        out.first[k + 1] += out.first[k];
    }
    out.items.resize(out.first[keys]);
    std::vector<std::size_t> next(out.first.begin(), out.first.end() - 1);
    for (std::size_t i = 0; i < count; ++i) {
        if (key(i) >= 0) {
            out.items[next[static_cast<std::size_t>(key(i))]++] = item(i);
        }
    }
    return out;
}

// Per node, the nodes that stand right before it in some chain.
Grouped predecessors(std::span<const std::int32_t> chain, std::span<const std::int32_t> node,
                     Node nodes) {
    std::int32_t last = -1;
    for (const std::int32_t c : chain) {
        last = std::max(last, c);
    }
    const std::size_t chains = static_cast<std::size_t>(last) + 1;
    const auto chain_of = [&](std::size_t i) {
        return node[i] < 0 || node[i] >= nodes ? -1 : chain[i];
    };
    const Grouped rows =
        group(node.size(), chains, chain_of, [&](std::size_t i) { return node[i]; });

    const std::size_t count = static_cast<std::size_t>(nodes);
    std::vector<std::int32_t> seen_in(count, -1);
    std::vector<Node> linked(count, -1);  // the last predecessor added: mostly all chains agree
    std::vector<std::pair<Node, Node>> links;
    for (std::size_t c = 0; c < chains; ++c) {
        Node before = -1;
        for (std::size_t i = rows.first[c]; i < rows.first[c + 1]; ++i) {
            const Node here = rows.items[i];
            const std::size_t at = static_cast<std::size_t>(here);
            if (seen_in[at] == static_cast<std::int32_t>(c)) {
                continue;
            }
            seen_in[at] = static_cast<std::int32_t>(c);
            if (before >= 0 && linked[at] != before) {
                linked[at] = before;
                links.emplace_back(here, before);
            }
            before = here;
        }
    }
    return group(
        links.size(), count, [&](std::size_t i) { return links[i].first; },
        [&](std::size_t i) { return links[i].second; });
}

}  // namespace

// Depth first: every node after all that must stand before it.
MergedOrder merge_order(std::span<const std::int32_t> chain, std::span<const std::int32_t> node,
                        std::int32_t nodes) {
    enum class State : std::uint8_t { fresh, open, placed };
    const Grouped before = predecessors(chain, node, nodes);
    MergedOrder merged;
    merged.order.reserve(static_cast<std::size_t>(nodes));
    std::vector<State> state(static_cast<std::size_t>(nodes), State::fresh);
    std::vector<std::pair<Node, std::size_t>> open;  // a node and the next of its predecessors
    const auto enter = [&](Node n) {
        state[static_cast<std::size_t>(n)] = State::open;
        open.emplace_back(n, before.first[static_cast<std::size_t>(n)]);
    };
    for (Node start = 0; start < nodes; ++start) {
        if (state[static_cast<std::size_t>(start)] == State::fresh) {
            enter(start);
        }
        while (!open.empty()) {
            auto& [current, next] = open.back();
            if (next == before.first[static_cast<std::size_t>(current) + 1]) {
                state[static_cast<std::size_t>(current)] = State::placed;
                merged.order.push_back(current);
                open.pop_back();
                continue;
            }
            const Node wanted = before.items[next++];
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
