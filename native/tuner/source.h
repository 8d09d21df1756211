// The CSV that this process applies: found by environment, read once.
#pragma once

#include <cstdint>
#include <string>

#include "plugin_api.h"
#include "table.h"

namespace collscope::tuner {

struct Source {
    std::string path;          // empty: none was named
    std::uint64_t digest = 0;  // of the bytes: ranks whose files differ would choose differently
    Parsed parsed;
};

// Read by the first call and kept until the library closes the plugin: an edit during the job must
// not part the ranks of a communicator. What is wrong with it is said through `log`, once, by that first call. A process
// that runs out of memory over it gets an empty one.
const Source& source(Logger log);

}  // namespace collscope::tuner
