#include "play.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <utility>

namespace play {

namespace {

using Index = std::int64_t;

std::size_t place(Index number) { return static_cast<std::size_t>(number); }

struct Event {
    double when;
    Index node;

    // Of events at one time the lower number comes first.
    bool operator>(const Event& other) const {
        return when != other.when ? when > other.when : node > other.node;
    }
};

struct Kernel {
    double left;   // work, ns with nothing beside
    double since;  // when that was left
    double end;    // as things stand
};

// Compute kernels that run on one rank's GPU, and how many collectives are beside them.
struct Gpu {
    Index collectives = 0;
    std::vector<std::size_t> rows;
};

class Player {
public:
    Player(const Network& network, Times gap, Times work, Times pace)
        : network_(network),
          gap_(gap),
          work_(work),
          pace_(pace),
          nodes_(static_cast<Index>(network.causes.size())),
          missing_(network.causes.begin(), network.causes.end()),
          ready_(network.causes.size(), -std::numeric_limits<double>::infinity()),
          time_(network.trace.size(), 0.0),
          kernels_(work.size(), Kernel{0, 0, std::numeric_limits<double>::quiet_NaN()}),
          gpus_(network.trace.empty()
                    ? 0
                    : place(*std::max_element(network.trace.begin(), network.trace.end()) + 1)) {}

    std::vector<double> run(Index origin) {
        missing_[place(origin)] = 0;  // it waits for nothing, and takes place once
        queue_.push({0.0, origin});
        while (!queue_.empty()) {
            const Event event = queue_.top();
            queue_.pop();
            if (takes_place(event)) {
                time_[place(event.node)] = event.when;
                tell_followers(event);
            }
        }
        return std::move(time_);
    }

private:
    // False for the end of a kernel whose pace has changed since that end was set.
    bool takes_place(const Event& event) {
        Gpu& gpu = gpus_[place(network_.trace[place(event.node)])];
        if (event.node >= nodes_) {
            return finish(gpu, event);
        }
        const Index row = network_.kernel[place(event.node)];
        if (row >= 0) {
            start(gpu, event.when, place(row));
        } else if (network_.change[place(event.node)] != 0) {
            change(gpu, event.when, network_.change[place(event.node)]);
        }
        return true;
    }

    void start(Gpu& gpu, double now, std::size_t row) {
        gpu.rows.push_back(row);
        set_end(row, work_[row], now, gpu.collectives > 0 ? pace_[row] : 1.0);
    }

    bool finish(Gpu& gpu, const Event& event) {
        const std::size_t row = place(event.node - nodes_);
        Kernel& kernel = kernels_[row];
        if (kernel.end != event.when) {
            return false;
        }
        kernel.end = std::numeric_limits<double>::quiet_NaN();
        *std::find(gpu.rows.begin(), gpu.rows.end(), row) = gpu.rows.back();
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
        for (const std::size_t row : gpu.rows) {
            const Kernel& kernel = kernels_[row];
            const double done = (now - kernel.since) / (slowed ? pace_[row] : 1.0);
            set_end(row, std::max(0.0, kernel.left - done), now, slowed ? 1.0 : pace_[row]);
        }
    }

    void set_end(std::size_t row, double left, double now, double pace) {
        kernels_[row] = {left, now, now + left * pace};
        queue_.push({kernels_[row].end, nodes_ + static_cast<Index>(row)});
    }

    void tell_followers(const Event& event) {
        const std::size_t last = place(network_.first[place(event.node) + 1]);
        for (std::size_t k = place(network_.first[place(event.node)]); k < last; ++k) {
            const std::size_t follower = place(network_.target[k]);
            ready_[follower] = std::max(ready_[follower], event.when + gap_[k]);
            if (--missing_[follower] == 0) {
                queue_.push({ready_[follower], static_cast<Index>(follower)});
            }
        }
    }

    const Network& network_;
    Times gap_;
    Times work_;
    Times pace_;
    Index nodes_;
    std::vector<Index> missing_;
    std::vector<double> ready_;
    std::vector<double> time_;
    std::vector<Kernel> kernels_;
    std::vector<Gpu> gpus_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

bool within(Numbers numbers, Index least, std::size_t end) {
    return std::all_of(numbers.begin(), numbers.end(), [=](Index number) {
        return least <= number && number < static_cast<Index>(end);
    });
}

// Whether each compute kernel starts at one node at most, on the GPU where it ends.
bool kernels_start_once(const Network& network, std::size_t rows) {
    const std::size_t nodes = network.causes.size();
    std::vector<bool> started(rows);
    for (std::size_t node = 0; node < nodes; ++node) {
        if (network.kernel[node] < 0) {
            continue;
        }
        const std::size_t row = place(network.kernel[node]);
        if (started[row] || network.trace[node] != network.trace[nodes + row]) {
            return false;
        }
        started[row] = true;
    }
    return true;
}

void check(const Network& network, Times gap, Times work, Times pace, Index origin) {
    const std::size_t nodes = network.causes.size();
    const std::size_t all = nodes + work.size();
    const bool lengths = network.kernel.size() == nodes && network.change.size() == nodes &&
                         network.trace.size() == all && network.first.size() == all + 1 &&
                         network.target.size() == gap.size() && pace.size() == work.size();
    if (!lengths || network.first.front() != 0 ||
        network.first.back() != static_cast<Index>(gap.size()) ||
        !std::is_sorted(network.first.begin(), network.first.end()) ||
        !within(network.target, 0, nodes) || !within(network.trace, 0, all) ||
        !within(network.kernel, -1, work.size()) ||
        !within(network.change, -static_cast<Index>(nodes), nodes + 1) ||
        !within(network.causes, 0, gap.size() + 1) || !within(Numbers(&origin, 1), 0, nodes) ||
        !kernels_start_once(network, work.size())) {
        throw std::invalid_argument("play: lengths or numbers do not fit each other");
    }
}

}  // namespace

std::vector<double> play(const Network& network, Times gap, Times work, Times pace, Index origin) {
    check(network, gap, work, pace, origin);
    return Player(network, gap, work, pace).run(origin);
}

}  // namespace play
