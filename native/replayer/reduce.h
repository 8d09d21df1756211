// Elementwise reduction on the host, rounding as a GPU does.
#pragma once

#include <cstddef>

#include "plan.h"

namespace collscope {

// inout[i] = in[i] op inout[i]. Integers wrap; 8- and 16-bit floats are computed as float and
// rounded to nearest-even once per operation. Avg adds, as Sum: `divide` does the rest.
// Any alignment; the two do not overlap.
void reduce(Datatype type, Redop redop, const void* in, void* inout, std::size_t n);

// inout[i] /= nranks: integers toward zero, floats rounded to nearest-even.
void divide(Datatype type, void* inout, std::size_t n, int nranks);

}  // namespace collscope
