// One order of calls out of several logs, each of which saw part of them in its own order.
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
// link that closes the circle is left out. `chain` (from 0) and `node` have a row per occurrence;
// rows with a negative chain or node, or a node that is none, are passed over. Linear in rows +
// nodes.
MergedOrder merge_order(std::span<const std::int32_t> chain, std::span<const std::int32_t> node,
                        std::int32_t nodes);

}  // namespace align
