// A causal graph played by events: compute kernels beside a collective get on slower.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace play {

using Numbers = std::span<const std::int64_t>;
using Times = std::span<const double>;

// What follows what. Behind all nodes count the ends of rows.
struct Network {
    Numbers first;   // (nodes + rows + 1) where the edges of each begin
    Numbers target;  // (edges) node that waits
    Numbers causes;  // (nodes) how many each waits for
    Numbers trace;   // (nodes + rows) whose GPU it is
    Numbers kernel;  // (nodes) row of a compute kernel that starts here; -1: none does
    Numbers change;  // (nodes) 1 where a collective comes to its GPU, -1 where it leaves, else 0
};

// When everything takes place, ns, shape (nodes + rows): an end is that of a compute kernel, and 0
// for other rows; what nothing leads to takes place at 0.
//
// gap     (edges) ns from a cause to its effect
// work    (rows) ns that a compute kernel needs with no collective beside it
// pace    (rows) how many times as long it needs beside one
// origin  the node that takes place at 0
//
// Throws std::invalid_argument where lengths or numbers do not fit each other.
std::vector<double> play(const Network& network, Times gap, Times work, Times pace,
                         std::int64_t origin);

}  // namespace play
