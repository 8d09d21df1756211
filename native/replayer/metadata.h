// The lines above the results: what was measured, where, and how.
#pragma once

#include "csv.h"
#include "session.h"

namespace collscope {

Metadata metadata_of(const Session& session);

// Variables of the libraries that are set, `NAME=VALUE` parted by blanks.
std::string environment();

}  // namespace collscope
