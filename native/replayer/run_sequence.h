// Mode sequence: every step in recorded order.
#pragma once

#include "session.h"

namespace collscope {

// Writes a row for each class, from one pass with marks around each step, and the row `Sequence`,
// from passes without. Collective. `failed` as in run_unique.
Status run_sequence(Session& session, bool& failed);

}  // namespace collscope
