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

// Read by the first call and kept until the library closes the plugin: after an edit during the
// job, ranks of one communicator would choose differently. The first call also logs what is wrong
// with the file, once. A process that runs out of memory while reading gets an empty table.
const Source& source(Logger log);

}  // namespace collscope::tuner
