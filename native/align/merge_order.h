// One order of calls from several logs; each log saw part of them in its own order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace align {

struct MergedOrder {
    std::vector<std::int32_t> order;  // nodes 0..nodes-1, each once
    std::size_t contradictions = 0;   // links left out because the chains contradict each other
};

// Order of the nodes 0..nodes-1 in which the nodes of every chain rise by their first occurrence
// in it; where no chain decides, smaller nodes first. Where the chains contradict each other the
// link that closes the circle is left out. Memory is that of nodes and links: chains are not kept.
class ChainMerger {
public:
    explicit ChainMerger(std::int32_t nodes);

    // Takes the nodes of one chain in its order; what is no node is passed over. Linear.
    void add(std::span<const std::int32_t> chain);

    // The order that extends all chains added so far. Linear in nodes and links.
    MergedOrder merge() const;

private:
    struct Link {
        std::int32_t node;
        std::int32_t before;  // stands right before it in some chain
    };
    std::int32_t chains_ = 0;
    std::vector<std::int32_t> seen_in_;  // of each node, the last chain that has it
    std::vector<std::int32_t> linked_;   // the last predecessor added: mostly all chains agree
    std::vector<Link> links_;
};

}  // namespace align
