#include "steps.h"

#include <map>

namespace collscope {

std::vector<std::size_t> distinct_steps(const Plan& plan, int first_rank, const LocalRanks& ranks,
                                        std::vector<Distinct>& distinct) {
    std::vector<std::size_t> order;
    std::map<std::vector<Step::Item>, std::size_t> known;
    for (const Step& step : plan.steps) {
        const auto [entry, fresh] = known.try_emplace(step.items, distinct.size());
        if (fresh) {
            distinct.push_back(
                {step.items, build_launch(plan, step.items, first_rank, ranks), true});
        }
        order.push_back(entry->second);
    }
    return order;
}

}  // namespace collscope
