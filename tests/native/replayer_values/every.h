// All datatypes and operators, and the numbers of ranks that the tests go through.
#pragma once

#include <array>

#include "plan.h"

namespace every {

using collscope::Datatype;
using collscope::Redop;

inline constexpr std::array datatypes{
    Datatype::Int8,    Datatype::Uint8,    Datatype::Int32,      Datatype::Uint32,
    Datatype::Int64,   Datatype::Uint64,   Datatype::Float16,    Datatype::Float32,
    Datatype::Float64, Datatype::Bfloat16, Datatype::Float8e4m3, Datatype::Float8e5m2};

inline constexpr std::array redops{Redop::Sum, Redop::Prod, Redop::Max, Redop::Min, Redop::Avg};

inline constexpr std::array nranks{1, 2, 3, 4, 5, 8, 16, 33, 64, 130};

}  // namespace every
