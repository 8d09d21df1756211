// What callbacks do: each makes at most one record and leaves. No callback waits, allocates, locks
// or keeps anything of its own. A handle is a number that holds what it belongs to. So a handle
// that is released late, twice or never does no harm.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "names.h"
#include "process.h"
#include "ring.h"
#include "settings.h"

namespace collscope::recorder {

class Recorder;

// Decides by the number of a call in its communicator whether its kernels are asked for.
struct Sampler {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> last_id{0};  // of the process, at the last call
    std::atomic<bool> armed{false};
};

// A communicator: the context that the library hands back. Never freed, as the library's threads
// may come late.
struct Comm {
    Recorder* owner = nullptr;
    std::atomic<std::uint32_t> number{0};  // 0: not known yet (v3 gives it with the first call)
    std::uint64_t hash = 0;
    Device device;
    std::array<Sampler, 2> samplers;  // of collectives, of Sends and Recvs
};

struct CommFacts {
    std::uint32_t number;
    std::uint64_t hash;
    std::uint64_t opened_ns;
    std::int32_t rank;
    std::int32_t nranks;
    std::int32_t nnodes;
    Device device;
    std::string name;
};

// A call as the application made it.
struct Api {
    const void* parent;
    const char* func;
    const char* datatype;
    std::uint64_t count;
    std::int32_t root;
    const void* stream;
    bool captured;
    bool point_to_point;
    std::uint64_t tag;
};

// A call as the library launches it.
struct Call {
    const void* parent;
    const char* func;
    const char* datatype;
    const char* algorithm;
    const char* protocol;
    const char* variant;
    std::uint64_t seq;
    std::uint64_t count;
    const void* send;
    const void* recv;
    std::int32_t root;  // or peer
    std::uint8_t channels;
    std::uint8_t flags;
    std::uint64_t tag;
};

class Recorder {
public:
    // interface  version of the plugin interface
    // library    an address in the library
    Recorder(int interface, const void* library);

    Comm* open(std::uint64_t hash, const char* name, int nnodes, int nranks, int rank, int* mask);
    void close(Comm& comm);

    // Each gives the event's handle; null where nothing is to be kept.
    void* group();
    void* api(Comm& comm, const Api& api);
    void* call(Comm& comm, const Call& call);
    void* kernel(Comm& comm, const void* parent, std::uint8_t channel, std::uint64_t timer);
    void* phase(Comm& comm, const void* parent, std::uint8_t channel, std::uint8_t phase,
                std::uint64_t timer);
    void* proxy_op(Comm& comm, const void* parent, bool own, std::uint8_t channel,
                   const std::array<std::int32_t, 4>& peer_steps_chunk_send);
    void kernel_stopped(void* handle, std::uint64_t timer);
    void stopped(void* handle);

    // v3 describes a communicator with its calls.
    void identify(Comm& comm, std::uint64_t hash, const char* name, int rank);

    // For the writer.
    void set_level(Level level);
    void disarm_idle();
    std::vector<CommFacts> comms_after(std::uint32_t number);
    // All that was put before is in the file, or two seconds have passed.
    void flush();

    Ring ring;
    Names names;
    const int interface;
    const int version;  // of the library; 0 not known
    const bool hip;
    const Settings settings;
    std::atomic<std::uint64_t> flush_wanted{0};
    std::atomic<std::uint64_t> flush_done{0};

private:
    std::uint64_t next_id() { return ids_.fetch_add(1, std::memory_order_relaxed); }
    bool sample(Comm& comm, bool point_to_point);
    bool kernels_wanted(Level level) const;
    void arm(Sampler& sampler, bool wanted);
    void apply_mask();
    std::uint32_t add_comm(Comm& comm, CommFacts facts);

    std::atomic<Level> level_;
    std::atomic<int*> mask_{nullptr};
    std::atomic<int> armed_{0};
    std::atomic<int> open_comms_{0};
    std::atomic<std::uint64_t> ids_{1};
    std::mutex comms_lock_;  // taken when a communicator is made, and by the writer
    std::deque<CommFacts> facts_;
    std::deque<Comm*> comms_;
};

// The recorder of this process, made with its first communicator; null before, and in the child
// of a fork.
Recorder* current();
Recorder& current_or_new(int interface, const void* library);

// Starts the thread that writes what a recorder holds; false where none can be had.
bool start_writer(Recorder& recorder);

}  // namespace collscope::recorder
