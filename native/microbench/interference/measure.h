// Computation and calls by turns: each alone, each while the other runs all the time.
#pragma once

#include "compute/compute.h"
#include "interference/rows.h"
#include "launch.h"
#include "session.h"

namespace collscope {

// Collective over all processes, also those without a call in the launch. All of them issue the
// same number of calls. `out` is this rank's; rounds that were not covered have no times.
Status disturb(Session& session, const Launch& launch, Compute& compute, Disturbance& out);

}  // namespace collscope
