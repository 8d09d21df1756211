// Calls by the text of their lines: a job calls on the same buffers again and again, and then its
// lines differ in opCount alone. Such a text is read once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "intern.h"

namespace logscan {

// A line's facts about its communicator, -1 where unknown.
struct Ranks {
    std::int32_t nranks;
    std::int32_t global_rank;
};

// What a whole line becomes, but for its place and opCount.
struct KnownCall {
    std::uint32_t comm_key;
    Ranks ranks;
    std::uint32_t sig;
    std::int32_t slot;
    std::int32_t task;
};

class KnownCalls {
public:
    // Null where the text is not known. `op` is the name before ": opCount ", `rest` all behind the
    // number: " sendbuff 0x7f8bccf79600 recvbuff ...".
    const KnownCall* find(std::uint32_t thread, std::string_view op, std::string_view rest);

    // Keeps the text last looked for, if texts come again at all.
    void add(std::uint32_t thread, std::string_view op, std::string_view rest,
             const KnownCall& call);

private:
    struct Line {
        std::string text;  // the name, then the rest
        std::uint32_t thread;
        KnownCall call;
    };

    static constexpr std::size_t most_lines = 4096;
    static constexpr std::uint32_t trial = 4096;  // lines after which it is seen what this saves

    std::vector<Line> lines_;
    Slots slots_;
    std::uint64_t hash_ = 0;  // of the text last looked for
    std::uint32_t tried_ = 0;
    std::uint32_t found_ = 0;
    bool off_ = false;  // few texts came again
};

}  // namespace logscan
