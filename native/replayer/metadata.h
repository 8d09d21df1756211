// The lines above the results: what was measured, where, and how.
#pragma once

#include "csv.h"
#include "session.h"

namespace collscope {

Metadata metadata_of(const Session& session);

}  // namespace collscope
