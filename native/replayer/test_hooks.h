// Faults that the tests inject into a build of their own: nothing in the shipped program.
//
//     COLLSCOPE_TEST_WRONG_CLASS=ID  one received element is changed before it is checked
//     COLLSCOPE_TEST_HANG_CLASS=ID   a rank never makes the call
//     COLLSCOPE_TEST_DIE_CLASS=ID    a rank dies before the call
//     COLLSCOPE_TEST_RANK=R          the rank that does so (default 1)
#pragma once

#include "launch.h"
#include "session.h"

#ifdef COLLSCOPE_REPLAYER_TEST_HOOKS

#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace collscope::test_hooks {

inline long long setting(const char* name, long long otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoll(text);
}

// The call that the fault named by `variable` hits, if this process makes it.
inline const Call* victim(const Session& session, const Launch& launch, const char* variable,
                          std::size_t& place) {
    const long long id = setting(variable, -1);
    const long long rank = setting("COLLSCOPE_TEST_RANK", 1);
    for (const Launch::Lane& lane : launch.lanes) {
        for (place = 0; place < lane.calls.size(); ++place) {
            const Call& call = lane.calls[place];
            if (call.cls->id == id && session.control.first_rank() + call.local == rank) {
                return &call;
            }
        }
    }
    return nullptr;
}

inline void before_call(const Session& session, const Launch& launch) {
    std::size_t place = 0;
    if (victim(session, launch, "COLLSCOPE_TEST_HANG_CLASS", place) != nullptr) {
        for (;;) {
            pause();
        }
    }
    if (victim(session, launch, "COLLSCOPE_TEST_DIE_CLASS", place) != nullptr) {
        std::raise(SIGKILL);
    }
}

// Changes the first wanted byte of the receive data.
inline void before_check(const Session& session, const Launch& launch) {
    std::size_t place = 0;
    const Call* call = victim(session, launch, "COLLSCOPE_TEST_WRONG_CLASS", place);
    if (call == nullptr) {
        return;
    }
    const CallPart& part = launch.lanes.front().parts[place];
    const Layout layout = layout_of(*call->cls, call->which, part.rank, part.nranks);
    std::byte* at =
        call->buffers.recv + layout.wanted.front().offset * itemsize(call->cls->datatype);
    std::byte value{};
    session.backend.copy_out(call->local, &value, at, 1);
    value ^= std::byte{0x11};
    session.backend.copy_in(call->local, at, &value, 1);
}

}  // namespace collscope::test_hooks

#else

namespace collscope::test_hooks {

inline void before_call(const Session&, const Launch&) {}
inline void before_check(const Session&, const Launch&) {}

}  // namespace collscope::test_hooks

#endif
