#include "play.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace play {

namespace {

using Index = std::int64_t;
using Number = std::int32_t;

constexpr Index most_numbers = std::numeric_limits<Number>::max();

std::size_t place(Index number) { return static_cast<std::size_t>(number); }

bool within(Numbers numbers, Index least, std::size_t end) {
    return std::all_of(numbers.begin(), numbers.end(), [=](Index number) {
        return least <= number && number < static_cast<Index>(end);
    });
}

// Whether each compute kernel starts at one node at most, on the GPU where it ends, and all edges
// go to larger numbers than where they come from.
bool in_order(const Network& network, std::size_t rows) {
    const std::size_t nodes = network.kernel.size();
    std::vector<bool> started(rows);
    const auto follow = [&](std::size_t source, std::size_t since) {
        const auto begin = network.target.begin();
        return std::all_of(begin + network.first[source], begin + network.first[source + 1],
                           [=](Index target) { return place(target) > since; });
    };
    for (std::size_t node = 0; node < nodes; ++node) {
        if (!follow(node, node)) {
            return false;
        }
        if (network.kernel[node] < 0) {
            continue;
        }
        const std::size_t row = place(network.kernel[node]);
        if (started[row] || network.trace[node] != network.trace[nodes + row] ||
            !follow(nodes + row, node)) {
            return false;
        }
        started[row] = true;
    }
    return true;
}

// Rows of a network whose numbers fit each other.
std::size_t checked_rows(const Network& network, std::size_t parts) {
    const std::size_t nodes = network.kernel.size();
    const std::size_t all = network.trace.size();
    const std::size_t edges = network.target.size();
    const bool lengths = nodes >= place(first_node) && all >= nodes &&
                         network.change.size() == nodes && network.part.size() == nodes &&
                         network.first.size() == all + 1 && network.lasted.size() == edges &&
                         network.host.size() == edges && network.gap.size() == edges &&
                         network.unexplained.size() == edges &&
                         static_cast<Index>(std::max({all, edges, parts})) < most_numbers;
    if (!lengths || network.first.front() != 0 ||
        network.first.back() != static_cast<Index>(edges) ||
        !std::is_sorted(network.first.begin(), network.first.end()) ||
        !within(network.target, first_node, nodes) || !within(network.trace, 0, all) ||
        !within(network.lasted, -1, all - nodes) || !within(network.kernel, -1, all - nodes) ||
        !within(network.part, -1, parts) ||
        !within(network.change, -static_cast<Index>(nodes), nodes + 1) ||
        !in_order(network, all - nodes)) {
        throw std::invalid_argument("play: lengths or numbers do not fit each other");
    }
    return all - nodes;
}

}  // namespace

void Player::Queue::clear() {
    heap_.clear();
    waits_ = false;
}

void Player::Queue::push(Event event) {
    if (!waits_) {
        waiting_ = event;
        waits_ = true;
        return;
    }
    if (event < waiting_) {
        std::swap(event, waiting_);
    }
    sift_up(event);
}

Player::Event Player::Queue::pop() {
    if (waits_) {
        waits_ = false;
        if (heap_.empty() || waiting_ < heap_.front()) {
            return waiting_;
        }
        const Event next = heap_.front();
        sift_down(waiting_);
        return next;
    }
    const Event next = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) {
        sift_down(last);
    }
    return next;
}

// Adds an event.
void Player::Queue::sift_up(Event event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
        const std::size_t above = (at - 1) / 4;
        if (!(event < heap_[above])) {
            break;
        }
        heap_[at] = heap_[above];
        at = above;
    }
    heap_[at] = event;
}

// Puts an event in place of the first one.
void Player::Queue::sift_down(Event event) {
    const std::size_t size = heap_.size();
    std::size_t at = 0;
    for (std::size_t below = 1; below < size; below = 4 * at + 1) {
        std::size_t least = below;
        for (std::size_t k = below + 1; k < std::min(below + 4, size); ++k) {
            least = heap_[k] < heap_[least] ? k : least;
        }
        if (!(heap_[least] < event)) {
            break;
        }
        heap_[at] = heap_[least];
        at = least;
    }
    heap_[at] = event;
}

Player::Player(const Network& network, std::size_t parts)
    : rows_(checked_rows(network, parts)), parts_(parts) {
    const std::size_t nodes = network.kernel.size();
    first_.assign(network.first.begin(), network.first.end());
    causes_.assign(nodes, 0);
    edges_.reserve(network.target.size());
    for (std::size_t k = 0; k < network.target.size(); ++k) {
        edges_.push_back({network.gap[k], network.unexplained[k],
                          static_cast<Number>(network.target[k]),
                          static_cast<Number>(network.lasted[k]), network.host[k]});
        ++causes_[place(network.target[k])];
    }
    nodes_.reserve(nodes);
    for (std::size_t k = 0; k < nodes; ++k) {
        nodes_.push_back(
            {static_cast<Number>(network.trace[k]), static_cast<Number>(network.kernel[k]),
             static_cast<Number>(network.change[k]), static_cast<Number>(network.part[k])});
    }
    row_traces_.assign(network.trace.begin() + static_cast<Index>(nodes), network.trace.end());
    const auto most = std::max_element(network.trace.begin(), network.trace.end());
    gpus_.resize(place(*most + 1));
}

// One play; the player's turn is taken.
class Player::Game {
public:
    Game(Player& player, const Durations& durations)
        : player_(player),
          durations_(durations),
          nodes_(player.nodes_.size()),
          more_unexplained_(durations.unexplained - 1),
          time_(nodes_ + player.rows_, 0.0) {
        player.states_.resize(nodes_);
        for (std::size_t k = 0; k < nodes_; ++k) {
            player.states_[k] = {-std::numeric_limits<double>::infinity(), player.causes_[k]};
        }
        if (!durations.behind_host.empty()) {
            for (const Edge& edge : player.edges_) {
                player.states_[place(edge.target)].missing -= is_left_out(edge) ? 1 : 0;
            }
        }
        // What nothing leads to waits for ever.
        for (State& state : player.states_) {
            state.missing = state.missing == 0 ? 1 : state.missing;
        }
        player.states_[place(origin)] = {0.0, 0};
    }

    std::vector<double> run() {
        if (paces_matter()) {
            by_events();
        } else {
            in_order();
        }
        return std::move(time_);
    }

private:
    bool paces_matter() const {
        return std::any_of(player_.nodes_.begin(), player_.nodes_.end(), [&](const Node& node) {
            return node.kernel >= 0 && durations_.pace[place(node.kernel)] != 1;
        });
    }

    // Where no kernel is slowed, causes come first by their numbers, too.
    void in_order() {
        for (std::size_t node = place(origin); node < nodes_; ++node) {
            const State& state = player_.states_[node];
            if (state.missing != 0) {
                continue;
            }
            time_[node] = state.ready;
            lead_on(node, time_[node], [](Number) {});
            if (player_.nodes_[node].kernel >= 0) {
                const std::size_t row = place(player_.nodes_[node].kernel);
                time_[nodes_ + row] = time_[node] + durations_.alone[row];
                lead_on(nodes_ + row, time_[nodes_ + row], [](Number) {});
            }
        }
    }

    void by_events() {
        player_.kernels_.assign(player_.rows_,
                                Kernel{0, 0, std::numeric_limits<double>::quiet_NaN()});
        for (Gpu& gpu : player_.gpus_) {
            gpu.collectives = 0;
            gpu.rows.clear();
        }
        Queue& queue = player_.queue_;
        queue.clear();
        queue.push({0.0, origin});
        while (!queue.empty()) {
            const Event event = queue.pop();
            if (takes_place(event)) {
                time_[place(event.node)] = event.when;
                lead_on(place(event.node), event.when, [&](Number follower) {
                    queue.push({player_.states_[place(follower)].ready, follower});
                });
            }
        }
    }

    // False for the end of a kernel whose pace has changed since that end was set.
    bool takes_place(const Event& event) {
        const std::size_t number = place(event.node);
        if (number >= nodes_) {
            return finish(number - nodes_, event.when);
        }
        const Node& node = player_.nodes_[number];
        Gpu& gpu = player_.gpus_[place(node.trace)];
        if (node.kernel >= 0) {
            start(gpu, event.when, node.kernel);
        } else if (node.change != 0) {
            change(gpu, event.when, node.change);
        }
        return true;
    }

    void start(Gpu& gpu, double now, Number row) {
        gpu.rows.push_back(row);
        const double pace = gpu.collectives > 0 ? durations_.pace[place(row)] : 1.0;
        set_end(row, durations_.alone[place(row)], now, pace);
    }

    bool finish(std::size_t row, double now) {
        Kernel& kernel = player_.kernels_[row];
        if (kernel.end != now) {
            return false;
        }
        kernel.end = std::numeric_limits<double>::quiet_NaN();
        Gpu& gpu = player_.gpus_[place(player_.row_traces_[row])];
        *std::find(gpu.rows.begin(), gpu.rows.end(), static_cast<Number>(row)) = gpu.rows.back();
        gpu.rows.pop_back();
        return true;
    }

    // A collective comes or leaves.
    void change(Gpu& gpu, double now, Index by) {
        const bool slowed = gpu.collectives > 0;
        gpu.collectives += by;
        if (slowed == (gpu.collectives > 0)) {
            return;
        }
        for (const Number row : gpu.rows) {
            const Kernel& kernel = player_.kernels_[place(row)];
            const double pace = durations_.pace[place(row)];
            const double done = (now - kernel.since) / (slowed ? pace : 1.0);
            set_end(row, std::max(0.0, kernel.left - done), now, slowed ? 1.0 : pace);
        }
    }

    void set_end(Number row, double left, double now, double pace) {
        player_.kernels_[place(row)] = {left, now, now + left * pace};
        player_.queue_.push({now + left * pace, static_cast<Number>(nodes_) + row});
    }

    bool is_left_out(const Edge& edge) const {
        return !edge.host && durations_.behind_host[place(edge.target - first_node)];
    }

    // Calls `ready` with each node whose last cause this is.
    template <typename Ready>
    void lead_on(std::size_t source, double when, Ready ready) {
        const std::size_t last = place(player_.first_[source + 1]);
        for (std::size_t k = place(player_.first_[source]); k < last; ++k) {
            const Edge& edge = player_.edges_[k];
            if (!durations_.behind_host.empty() && is_left_out(edge)) {
                continue;
            }
            State& state = player_.states_[place(edge.target)];
            state.ready = std::max(state.ready, when + passes(edge));
            if (--state.missing == 0) {
                ready(edge.target);
            }
        }
    }

    // Ns from a cause to its effect.
    double passes(const Edge& edge) const {
        const std::size_t target = place(edge.target - first_node);
        const bool at_once =
            !edge.host && !durations_.at_once.empty() && durations_.at_once[target];
        double found = at_once ? 0.0 : edge.gap;
        if (edge.lasted >= 0) {
            found += durations_.lasting[place(edge.lasted)];
        }
        if (more_unexplained_ != 0 && !at_once) {
            found += edge.unexplained * more_unexplained_;
        }
        if (edge.host) {
            const Number part = player_.nodes_[place(edge.target)].part;
            found += durations_.work[target] + (part < 0 ? 0.0 : durations_.transfer[place(part)]);
        }
        return found;
    }

    Player& player_;
    const Durations& durations_;
    std::size_t nodes_;
    double more_unexplained_;
    std::vector<double> time_;
};

std::vector<double> Player::play(const Durations& durations) {
    const std::size_t places = nodes_.size() - place(first_node);
    const auto fit = [=](Flags flags) { return flags.empty() || flags.size() == places; };
    if (durations.work.size() != places || durations.lasting.size() != rows_ ||
        durations.transfer.size() != parts_ || durations.alone.size() != rows_ ||
        durations.pace.size() != rows_ || !fit(durations.at_once) || !fit(durations.behind_host)) {
        throw std::invalid_argument("play: lengths or numbers do not fit each other");
    }
    const std::lock_guard turn(turn_);
    return Game(*this, durations).run();
}

}  // namespace play
