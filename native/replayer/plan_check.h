// What a class of a plan must be, beyond the words of its line; for plan.cpp alone.
#pragma once

#include <string_view>
#include <vector>

#include "plan.h"

namespace collscope::plan_text {

// Of a count or a size, so that bytes of all ranks together stay far below 2^63.
inline constexpr std::uint64_t most_bytes = std::uint64_t{1} << 50;

// Throws Fault when the class cannot be run; sets its size where the count gives it.
// `keys`: those that its line has. The plan has the communicators, and not yet the class.
void check_class(const Plan& plan, Class& cls, const std::vector<std::string_view>& keys);

// Gives a class the size S of its count or transfers. Throws Fault when `stated`, and the size that
// it has differs. `source`: "count gives " or "transfers give ".
void check_size(const Plan& plan, Class& cls, bool stated, std::string_view source);

}  // namespace collscope::plan_text
