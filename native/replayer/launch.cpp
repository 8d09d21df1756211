#include "launch.h"

#include <algorithm>

namespace collscope {

void Launch::bind(const Arena& arena) {
    for (Lane& lane : lanes) {
        for (std::size_t i = 0; i < lane.calls.size(); ++i) {
            Call& call = lane.calls[i];
            const CallPart& part = lane.parts[i];
            const Layout layout = layout_of(*call.cls, call.which, part.rank, part.nranks);
            call.buffers = layout.at(arena.of(call.local) + part.arena_offset);
        }
    }
}

std::vector<Step::Item> items_of(const Plan& plan, std::size_t index) {
    std::vector<Step::Item> items;
    for (std::size_t which = 0; which < plan.classes[index].comms.size(); ++which) {
        items.push_back({static_cast<int>(index), static_cast<int>(which)});
    }
    return items;
}

Launch build_launch(const Plan& plan, const std::vector<Step::Item>& items, int first_rank,
                    const LocalRanks& ranks) {
    Launch out;
    out.lanes.resize(static_cast<std::size_t>(ranks.lanes()));
    for (int number = 0; number < ranks.lanes(); ++number) {
        Launch::Lane& lane = out.lanes[static_cast<std::size_t>(number)];
        for (int local = ranks.first(number); local < ranks.last(number); ++local) {
            std::uint64_t used = 0;
            for (std::size_t i = 0; i < items.size(); ++i) {
                const Class& cls = plan.classes[static_cast<std::size_t>(items[i].cls)];
                const int which = items[i].comm;
                const int index = cls.comms[static_cast<std::size_t>(which)];
                const Comm& comm = plan.comms[static_cast<std::size_t>(index)];
                const int rank = comm.rank_of(first_rank + local);
                if (rank < 0) {
                    continue;
                }
                lane.calls.push_back({local, &cls, which, {}});
                lane.parts.push_back({static_cast<int>(i), rank, comm.size(), used});
                used += layout_of(cls, which, rank, comm.size()).arena_bytes;
            }
            if (used != 0) {
                lane.locals.push_back(local);
            }
            out.arena_bytes = std::max(out.arena_bytes, used);
        }
    }
    return out;
}

}  // namespace collscope
