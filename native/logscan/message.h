// Messages that are rare: sorted into kinds here, parsed in Python.
#pragma once

#include <string_view>

#include "collective.h"

namespace logscan {

enum class MessageKind : std::uint8_t {
    unknown = 0,
    init = 1,
    topology = 2,
    link = 3,
    net = 4,
    env = 5,
    version = 6,
    warn = 7,
    error_return = 8,
    structure = 9,
    misc = 10,
    skipped = 255,  // rings, trees, buffers: holds nothing a report needs
};

// Kind of an INFO or TRACE message.
MessageKind classify(std::string_view message);

// Whether a line without any anchor is one the library prints bare: "NCCL version 2.18.5+cuda12.2".
// `offset` is where it starts. Lines of RCCL's block other than the first count only while
// `in_block`, since "Hostname" alone may be anybody's.
bool is_bare_version(std::string_view line, bool in_block, std::size_t& offset);

// Appends a message row.
void store_message(Result& result, const Place& place, MessageKind kind, std::string_view text);

}  // namespace logscan
