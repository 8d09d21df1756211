// A causal graph played by events: compute kernels beside a collective get on slower.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace play {

using Numbers = std::span<const std::int64_t>;
using Times = std::span<const double>;
using Flags = std::span<const bool>;

// The first nodes: one that never takes place, and one that does at 0.
constexpr std::int64_t never = 0;
constexpr std::int64_t origin = 1;
constexpr std::int64_t first_node = 2;

// What follows what. Behind all nodes count the ends of rows: those of compute kernels are used.
struct Network {
    Numbers first;      // (nodes + rows + 1) where the edges of each begin
    Numbers target;     // (edges) node that waits; its number is larger than that of its cause
    Numbers lasted;     // (edges) row whose duration passes, too; -1: none
    Flags host;         // (edges) so does the work of the host, and a part's transfer
    Times gap;          // (edges) ns from a cause to its effect
    Times unexplained;  // (edges) the part of it that has no known cause
    Numbers trace;      // (nodes + rows) whose GPU it is
    Numbers kernel;     // (nodes) row of a compute kernel that starts here; -1: none does
    Numbers change;     // (nodes) 1 where a collective comes to its GPU, -1 where it leaves, else 0
    Numbers part;       // (nodes) part of a collective that ends here; -1: none
};

// What everything takes, ns. Places of nodes are numbers less `first_node`.
struct Durations {
    Times work;              // (places) of the host
    Times lasting;           // (rows) of rows that are no compute kernels
    Times transfer;          // (parts)
    Times alone;             // (rows) that a compute kernel needs with no collective beside it
    Times pace;              // (rows) how many times as long it needs beside one
    double unexplained = 1;  // of what has no known cause, in parts
    Flags at_once;           // (places) starts without a gap, but behind the host; empty: none
    Flags behind_host;       // (places) waits for the host alone; empty: none
};

// Plays a network with one set of durations after another.
class Player {
public:
    // Throws std::invalid_argument where lengths or numbers do not fit each other.
    Player(const Network& network, std::size_t parts);

    // When everything takes place, ns, shape (nodes + rows): an end is that of a compute kernel,
    // and 0 for other rows; what nothing leads to takes place at 0. Threads take turns.
    //
    // Throws std::invalid_argument where lengths do not fit the network.
    std::vector<double> play(const Durations& durations);

private:
    struct Edge {
        double gap;
        double unexplained;
        std::int32_t target;
        std::int32_t lasted;
        bool host;
    };
    struct Node {
        std::int32_t trace;
        std::int32_t kernel;
        std::int32_t change;
        std::int32_t part;
    };
    struct Event {
        double when;
        std::int32_t node;

        // Of events at one time the lower number comes first.
        bool operator<(const Event& other) const {
            return when != other.when ? when < other.when : node < other.node;
        }
    };
    // The next event first: a heap in which each has four below it. The first of those that came
    // since the last one left waits beside the heap: mostly it is the next.
    class Queue {
    public:
        bool empty() const { return !waits_ && heap_.empty(); }
        void clear();
        void push(Event event);
        Event pop();

    private:
        void sift_up(Event event);
        void sift_down(Event event);

        std::vector<Event> heap_;
        Event waiting_{};
        bool waits_ = false;
    };
    struct State {
        double ready;          // when the causes so far have had their effects
        std::int32_t missing;  // causes
    };
    struct Kernel {
        double left;   // work, ns with nothing beside
        double since;  // when that was left
        double end;    // as things stand
    };
    // Compute kernels that run on one rank's GPU, and how many collectives are beside them.
    struct Gpu {
        std::int64_t collectives = 0;
        std::vector<std::int32_t> rows;
    };
    class Game;

    std::size_t rows_;
    std::size_t parts_;
    std::vector<std::int32_t> first_;
    std::vector<Edge> edges_;
    std::vector<Node> nodes_;
    std::vector<std::int32_t> causes_;
    std::vector<std::int32_t> row_traces_;
    std::mutex turn_;  // guards what follows: it is kept from play to play
    std::vector<State> states_;
    std::vector<Kernel> kernels_;
    std::vector<Gpu> gpus_;
    Queue queue_;
};

}  // namespace play
