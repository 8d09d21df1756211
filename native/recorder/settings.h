// What the environment asks of the recorder, and what is the default for a library's version.
#pragma once

#include <cstdint>
#include <string>

namespace collscope::recorder {

// How much is recorded; each has all of those before it.
enum class Level : std::uint8_t {
    off,      // communicators only, until the control file changes it
    calls,    // no kernel times
    sampled,  // kernel times of windows of calls
    all,      // kernel times of every call
    proxy,    // and the network operations of the library's proxy
};

struct Settings {
    std::string folder;       // COLLSCOPE_RECORDER_DIR, else the working folder
    Level level;              // COLLSCOPE_RECORDER_LEVEL, else by the version
    std::string why;          // the level is below `sampled` although nobody asked; else empty
    std::uint64_t max_bytes;  // of the files of a process: COLLSCOPE_RECORDER_MAX_MB
    std::string control;      // COLLSCOPE_RECORDER_CONTROL: a file that holds a level; or empty
};

// version  as ncclGetVersion; 0 not known
Settings settings_of(int version);

// Whether GPU times are those of their calls only where all calls of a communicator have kernel
// events. From NCCL 2.31 on the library counts such calls alone, and the GPU counts all.
bool times_need_all(int version);

const char* name_of(Level level);

// Level of a name, or `other` for another text.
Level level_of(const std::string& name, Level other);

}  // namespace collscope::recorder
