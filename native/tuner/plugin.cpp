// The exported structures, and what their functions do. Nothing here returns an error to the
// library: a plugin that is wrong must leave the library's own choice, not fail the job.
#include <cstdint>
#include <new>

#include "messages.h"
#include "plugin_api.h"
#include "source.h"
#include "table.h"

namespace collscope::tuner {

namespace {

constexpr const char* name = "collscope";
constexpr int unknown = -1;  // of an older interface: rows with such a condition do not apply
enum Topic : int { chosen, unavailable };

// What the plugin keeps for one communicator.
struct Context {
    Table table;
    Logger log = nullptr;
    std::size_t nranks = 0;
    std::size_t nnodes = 0;
};

struct Call {
    int collective;
    std::size_t bytes;
    int pipe_ops;
    int registered;
};

void announce(const Context& context, const Source& source) {
    if (!source.parsed.rows.empty()) {
        say(context.log, log_info,
            "%s (digest %016llx): %zu of %zu rows are for %zu ranks on %zu nodes",
            source.path.c_str(), static_cast<unsigned long long>(source.digest),
            context.table.size(), source.parsed.rows.size(), context.nranks, context.nnodes);
    }
}

int make_context(std::size_t nranks, std::size_t nnodes, Logger log, void** context) noexcept {
    *context = nullptr;
    try {
        const Source& csv = source(log);
        if (!csv.parsed.error.empty()) {
            return success;
        }
        *context = new Context{Table(csv.parsed.rows, nranks, nnodes), log, nranks, nnodes};
        announce(*static_cast<const Context*>(*context), csv);
    } catch (...) {
        say(log, log_warn, "out of memory: the library chooses.");
    }
    return success;
}

void report(const Context& context, const Row& row, const Call& call, Topic topic) {
    if (!context.table.first_time(row, topic, call.bytes)) {
        return;
    }
    const char* outcome = topic == chosen ? "" : ", which the library rules out";
    char channels[24] = "default";
    if (row.channels > 0) {
        std::snprintf(channels, sizeof channels, "%d", row.channels);
    }
    say(context.log, log_info, "%s %zu B on %zu ranks: %s/%s, channels %s (line %d)%s",
        collective_name(call.collective), call.bytes, context.nranks, algorithm_name(row.algorithm),
        protocol_name(row.protocol), channels, row.line, outcome);
}

// The row for a call, logged; `available(row)`: whether the library can do what it wants.
template <typename Available>
const Row* choose(const Context& context, const Call& call, Available available) {
    const Row* row = context.table.find(call.collective, call.bytes, call.pipe_ops, call.registered,
                                        [&](const Row& candidate) {
                                            const bool possible = available(candidate);
                                            if (!possible) {
                                                report(context, candidate, call, unavailable);
                                            }
                                            return possible;
                                        });
    if (row != nullptr) {
        report(context, *row, call, chosen);
    }
    return row;
}

void set_channels(const Row& row, int* channels) {
    if (row.channels > 0 && channels != nullptr) {
        *channels = row.channels;
    }
}

// Makes the cell of a row's algorithm and protocol the cheapest. A form of the third interface
// passes two more ints before the table, so that what arrives as its pointer is 0 or 1.
int lower_cost(void* opaque, const Call& call, float** table, int rows, int columns,
               int* channels) {
    constexpr std::uintptr_t first_page = 4096;
    if (opaque == nullptr || reinterpret_cast<std::uintptr_t>(table) < first_page || rows < 1 ||
        columns < 1) {
        return success;
    }
    auto* costs = reinterpret_cast<float*>(table);
    const auto cell = [&](const Row& row) -> float& {
        return costs[row.algorithm * columns + row.protocol];
    };
    const Row* row = choose(*static_cast<const Context*>(opaque), call, [&](const Row& candidate) {
        return candidate.algorithm < rows && candidate.protocol < columns &&
               cell(candidate) != ignored_cost;
    });
    if (row != nullptr) {
        cell(*row) = 0.0f;
        set_channels(*row, channels);
    }
    return success;
}

// What NCCL 2.21 offers, which takes a choice without looking at it: src/graph/tuning.cc there. It
// does not show whether LL128 is safe on the machine, so that is never chosen.
bool offered_without_table(const Row& row, std::size_t nnodes, int collnet, int nvls_support) {
    const bool one_node = nnodes == 1;
    const bool reduces_all = row.collective == all_reduce;
    const bool rooted = row.collective == broadcast || row.collective == reduce;
    switch (row.algorithm) {
        case ring:
            return row.protocol != ll128;
        case tree:
            return row.protocol != ll128 && reduces_all;
        case collnet_direct:
            return row.protocol == simple && !rooted && collnet == 1 && !one_node;
        case collnet_chain:
            return row.protocol == simple && reduces_all && collnet == 1 && !one_node;
        case nvls:
            return row.protocol == simple && !rooted && nvls_support == 1 &&
                   (one_node || collnet == 1);
        case nvls_tree:
            return row.protocol == simple && reduces_all && nvls_support == 1 && !one_node;
        default:
            return false;
    }
}

int choose_v2(void* opaque, int collective, std::size_t bytes, int collnet_support,
              int nvls_support, int pipe_ops, int* algorithm, int* protocol, int* channels) {
    if (opaque == nullptr) {
        return success;
    }
    const Context& context = *static_cast<const Context*>(opaque);
    const Call call{collective, bytes, pipe_ops, unknown};
    const Row* row = choose(context, call, [&](const Row& candidate) {
        return offered_without_table(candidate, context.nnodes, collnet_support, nvls_support);
    });
    if (row != nullptr) {
        *algorithm = row->algorithm;
        *protocol = row->protocol;
        set_channels(*row, channels);
    }
    return success;
}

int choose_v3(void* context, int collective, std::size_t bytes, int pipe_ops, float** costs,
              int rows, int columns, int* channels) {
    return lower_cost(context, {collective, bytes, pipe_ops, unknown}, costs, rows, columns,
                      channels);
}

int choose_v4(void* context, int collective, std::size_t bytes, int pipe_ops, float** costs,
              int rows, int columns, int registered, int* channels) {
    return lower_cost(context, {collective, bytes, pipe_ops, registered != 0 ? 1 : 0}, costs, rows,
                      columns, channels);
}

int make_context_v5(void** context, std::uint64_t, std::size_t nranks, std::size_t nnodes,
                    Logger log, void*, void*) {
    return make_context(nranks, nnodes, log, context);
}

int free_context(void* context) {
    delete static_cast<Context*>(context);
    return success;
}

}  // namespace

extern "C" {
// Looked up by name; everything else in the library is hidden.
extern const TunerV2 ncclTunerPlugin_v2 __attribute__((visibility("default")));
extern const TunerV3 ncclTunerPlugin_v3 __attribute__((visibility("default")));
extern const TunerV4 ncclTunerPlugin_v4 __attribute__((visibility("default")));
extern const TunerV5 ncclTunerPlugin_v5 __attribute__((visibility("default")));

const TunerV2 ncclTunerPlugin_v2 = {name, make_context, choose_v2, free_context};
const TunerV3 ncclTunerPlugin_v3 = {name, make_context, choose_v3, free_context};
const TunerV4 ncclTunerPlugin_v4 = {name, make_context, choose_v4, free_context};
const TunerV5 ncclTunerPlugin_v5 = {name, make_context_v5, choose_v4, free_context};
}

}  // namespace collscope::tuner
