// The plan: which collectives to run on which ranks. Format: schemas/plan.md.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datatype.h"

namespace collscope {

enum class Op : std::uint8_t {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    AllToAllv,
    Gather,
    Scatter,
    SendRecv
};

// Values of ncclRedOp_t (nccl.h, rccl.h).
enum class Redop : std::uint8_t { Sum = 0, Prod = 1, Max = 2, Min = 3, Avg = 4 };

// One message of a point-to-point class; ranks are those of the communicator.
struct Transfer {
    int src = 0;
    int dst = 0;
    std::uint64_t count = 0;  // elements
};

struct Comm {
    int id = 0;
    std::vector<int> ranks;  // rank of the plan behind each rank of the communicator

    int size() const { return static_cast<int>(ranks.size()); }
    // Rank in the communicator of a rank of the plan, -1 when it is no member.
    int rank_of(int world_rank) const;
};

// Calls that cost the same.
struct Class {
    int id = 0;
    Op op = Op::AllReduce;
    Datatype datatype = Datatype::Float32;
    std::optional<Redop> redop;
    std::uint64_t count = 0;  // elements as the API takes it; 0 where `transfers` say it
    std::optional<int> root;
    bool in_place = false;
    std::uint64_t calls = 1;
    std::string shape;                             // empty: the library's own function
    std::uint64_t size_bytes = 0;                  // nccl-tests size S
    std::vector<int> comms;                        // indices into Plan::comms
    std::vector<std::vector<Transfer>> transfers;  // per entry of `comms`; empty without shape

    bool point_to_point() const { return !shape.empty(); }
};

// One launch of mode sequence: items launched together.
struct Step {
    struct Item {
        int cls = 0;   // index into Plan::classes
        int comm = 0;  // index into that class's `comms`

        auto operator<=>(const Item&) const = default;
    };
    std::vector<Item> items;
};

struct Plan {
    bool sequence = false;
    int nranks = 0;
    std::optional<int> scaled_from;
    std::vector<Comm> comms;
    std::vector<Class> classes;
    std::vector<Step> steps;
    std::string digest;  // FNV-1a of the file's bytes, 16 hexadecimal digits
};

// Either a plan or one sentence `line N: <what is wrong>. <what to do>.`
struct ParsedPlan {
    Plan plan;
    std::string error;
};

ParsedPlan parse_plan(std::string_view text);

std::string_view name_of(Op op);
std::string_view name_of(Redop redop);

}  // namespace collscope
