// Mode unique: each class once, its communicators at the same time.
#pragma once

#include "session.h"

namespace collscope {

// Writes a row for each class that was not finished before. Collective. `failed` is set when a
// class failed or gave wrong results; the Status is that of writing the CSV.
Status run_unique(Session& session, bool& failed);

}  // namespace collscope
