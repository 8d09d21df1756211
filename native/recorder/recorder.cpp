#include "recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "plugin_api.h"

namespace collscope::recorder {

namespace {

// A handle: what it is of in the upper bits, which no pointer of a process has, the number of its
// call in the lower 48. So one of another process, as proxies pass them on, differs from ours only
// by the process id next to it. A pointer of the library's own always differs.
enum class Of : std::uint64_t { nothing, group, api, call, kernel, phase, proxy_op };

constexpr int kind_shift = 60;
constexpr int sampled_shift = 59;
constexpr int phase_shift = 56;
constexpr int channel_shift = 48;
constexpr std::uint64_t id_mask = (std::uint64_t{1} << channel_shift) - 1;

void* handle_of(Of kind, std::uint64_t id, bool sampled = false, std::uint8_t channel = 0,
                std::uint8_t phase = 0) {
    return reinterpret_cast<void*>(static_cast<std::uint64_t>(kind) << kind_shift |
                                   static_cast<std::uint64_t>(sampled) << sampled_shift |
                                   static_cast<std::uint64_t>(phase & 7u) << phase_shift |
                                   static_cast<std::uint64_t>(channel) << channel_shift |
                                   (id & id_mask));
}

std::uint64_t bits(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }
Of kind_of(const void* handle) { return static_cast<Of>(bits(handle) >> kind_shift); }
std::uint64_t id_of(const void* handle) { return bits(handle) & id_mask; }
bool is_sampled(const void* handle) { return (bits(handle) >> sampled_shift & 1u) != 0; }

// Windows of calls: every eighth, chosen by a hash, as a job's steps recur; the first always.
constexpr std::uint64_t window_calls = 32;
constexpr std::uint64_t windows_in_one = 8;
// A communicator that made none of the last calls of the process does not keep kernels asked for.
constexpr std::uint64_t idle_calls = 1024;

bool in_window(std::uint64_t hash, std::uint64_t call) {
    const std::uint64_t window = call / window_calls;
    if (window == 0) {
        return true;
    }
    std::uint64_t mixed = (hash ^ window) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    return (mixed >> 32) % windows_in_one == 0;
}

std::atomic<Recorder*> the_recorder{nullptr};
pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void before_fork() { pthread_mutex_lock(&making); }
void in_parent() { pthread_mutex_unlock(&making); }
// The child has the memory, but neither writer nor library threads: it makes a recorder of its own
// when it makes a communicator.
void in_child() {
    the_recorder.store(nullptr, std::memory_order_release);
    pthread_mutex_unlock(&making);
}

[[gnu::destructor]] void at_exit() {
    if (Recorder* recorder = current(); recorder != nullptr) {
        recorder->ring.put(cell_of(end_record, 0, 0, EndBody{monotonic_ns()}));
        recorder->flush();
    }
}

int base_mask(int interface, Level level) {
    if (level == Level::off) {
        return 0;
    }
    int mask = coll_event | p2p_event;
    if (interface >= 5) {
        mask |= group_api_event | coll_api_event | p2p_api_event;
    }
    if (interface >= 6) {
        mask |= ce_coll_event;
    }
    if (level == Level::proxy) {
        mask |= proxy_op_event;
    }
    return mask;
}

// v3 has no stamps of kernels.
int kernel_mask(int interface, bool hip) {
    int mask = interface >= 4 ? static_cast<int>(kernel_event) : 0;
    if (interface >= 7) {
        mask |= hip ? static_cast<int>(rccl_phase_event) : static_cast<int>(nccl_phase_event);
    }
    return mask;
}

}  // namespace

Recorder* current() { return the_recorder.load(std::memory_order_acquire); }

Recorder& current_or_new(int interface, const void* library) {
    static const int handlers = pthread_atfork(before_fork, in_parent, in_child);
    (void)handlers;
    pthread_mutex_lock(&making);
    Recorder* recorder = current();
    if (recorder == nullptr) {
        recorder = new Recorder(interface, library);
        start_writer(*recorder);
        the_recorder.store(recorder, std::memory_order_release);
    }
    pthread_mutex_unlock(&making);
    return *recorder;
}

Recorder::Recorder(int interface_version, const void* library)
    : interface(interface_version),
      version(library_version(library)),
      hip(has_hip()),
      settings(settings_of(version)),
      level_(settings.level) {}

Comm* Recorder::open(std::uint64_t hash, const char* name, int nnodes, int nranks, int rank,
                     int* mask) {
    auto* comm = new Comm;
    comm->owner = this;
    comm->hash = hash;
    comm->device = current_device();
    if (nranks > 0) {
        add_comm(*comm, {0, hash, monotonic_ns(), rank, nranks, nnodes, comm->device,
                         name == nullptr ? "" : name});
    }
    {
        const std::lock_guard<std::mutex> hold(comms_lock_);
        comms_.push_back(comm);
    }
    open_comms_.fetch_add(1, std::memory_order_relaxed);
    mask_.store(mask, std::memory_order_release);
    for (Sampler& sampler : comm->samplers) {
        arm(sampler, level_.load(std::memory_order_relaxed) == Level::sampled);
    }
    apply_mask();
    return comm;
}

std::uint32_t Recorder::add_comm(Comm& comm, CommFacts facts) {
    const std::lock_guard<std::mutex> hold(comms_lock_);
    facts.number = static_cast<std::uint32_t>(facts_.size() + 1);
    facts_.push_back(facts);
    comm.number.store(facts.number, std::memory_order_release);
    return facts.number;
}

void Recorder::identify(Comm& comm, std::uint64_t hash, const char* name, int rank) {
    if (comm.number.load(std::memory_order_acquire) == 0) {
        comm.hash = hash;
        add_comm(comm,
                 {0, hash, monotonic_ns(), rank, -1, -1, comm.device, name == nullptr ? "" : name});
    }
}

void Recorder::close(Comm& comm) {
    for (Sampler& sampler : comm.samplers) {
        arm(sampler, false);
    }
    const std::uint64_t now = monotonic_ns();
    ring.put(cell_of(comm_end_record, 0, comm.number, CommEndBody{now}), now);
    if (open_comms_.fetch_sub(1, std::memory_order_relaxed) == 1) {
        flush();
    }
}

void* Recorder::group() { return handle_of(Of::group, next_id()); }

void* Recorder::api(Comm& comm, const Api& api) {
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t id = next_id();
    const bool kernels = sample(comm, api.point_to_point);
    const auto flags =
        static_cast<std::uint8_t>((api.point_to_point ? point_to_point : 0) |
                                  (api.captured ? captured : 0) | (kernels ? sampled : 0));
    const ApiBody body{id,
                       kind_of(api.parent) == Of::group ? id_of(api.parent) : 0,
                       now,
                       api.count,
                       bits(api.stream),
                       api.tag,
                       api.root,
                       names.number(api.func),
                       names.number(api.datatype),
                       0};
    ring.put(cell_of(api_record, flags, comm.number.load(std::memory_order_relaxed), body), now);
    return handle_of(Of::api, id, kernels);
}

void* Recorder::call(Comm& comm, const Call& call) {
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t id = next_id();
    const bool of_api = kind_of(call.parent) == Of::api;
    const bool kernels = of_api          ? is_sampled(call.parent)
                         : interface < 5 ? sample(comm, (call.flags & point_to_point) != 0)
                                         : kernels_wanted(level_.load(std::memory_order_relaxed));
    const auto flags = static_cast<std::uint8_t>(call.flags | (kernels ? sampled : 0));
    const CallBody body{id,
                        of_api ? id_of(call.parent) : 0,
                        now,
                        call.seq,
                        call.count,
                        bits(call.send),
                        bits(call.recv),
                        call.tag,
                        call.root,
                        names.number(call.func),
                        names.number(call.datatype),
                        names.number(call.algorithm),
                        names.number(call.protocol),
                        call.channels,
                        names.number(call.variant),
                        0,
                        0};
    const bool kept = ring.put(
        cell_of(call_record, flags, comm.number.load(std::memory_order_relaxed), body), now);
    return kept ? handle_of(Of::call, id, kernels) : nullptr;
}

void* Recorder::kernel(Comm& comm, const void* parent, std::uint8_t channel, std::uint64_t timer) {
    if (kind_of(parent) != Of::call || !is_sampled(parent)) {
        return nullptr;
    }
    const std::uint64_t now = monotonic_ns();
    void* handle = handle_of(Of::kernel, id_of(parent), true, channel);
    const SpanBody body{id_of(parent), timer, 0, now, bits(handle)};
    return ring.put(cell_of(kernel_record, channel, comm.number, body), now) ? handle : nullptr;
}

void* Recorder::phase(Comm& comm, const void* parent, std::uint8_t channel, std::uint8_t phase,
                      std::uint64_t timer) {
    const Of of = kind_of(parent);
    if ((of != Of::call && of != Of::kernel) || !is_sampled(parent)) {
        return nullptr;
    }
    const std::uint64_t now = monotonic_ns();
    void* handle = handle_of(Of::phase, id_of(parent), true, channel, phase);
    const PhaseBody body{{id_of(parent), timer, 0, now, bits(handle)}, phase, 0};
    return ring.put(cell_of(phase_record, channel, comm.number, body), now) ? handle : nullptr;
}

void* Recorder::proxy_op(Comm& comm, const void* parent, bool own, std::uint8_t channel,
                         const std::array<std::int32_t, 4>& peer_steps_chunk_send) {
    const std::uint64_t now = monotonic_ns();
    void* handle = handle_of(Of::proxy_op, next_id(), true, channel);
    const auto [peer, steps, chunk, send] = peer_steps_chunk_send;
    const bool known = own && kind_of(parent) == Of::call;
    const ProxyBody body{
        {known ? id_of(parent) : 0, now, 0, now, bits(handle)}, peer, steps, chunk, send};
    return ring.put(cell_of(proxy_record, channel, comm.number, body), now) ? handle : nullptr;
}

void Recorder::kernel_stopped(void* handle, std::uint64_t timer) {
    const Of of = kind_of(handle);
    if (of == Of::kernel || of == Of::phase) {
        const std::uint64_t now = monotonic_ns();
        ring.put(cell_of(stopped_span, 0, 0, StopBody{bits(handle), timer, now}), now);
    }
}

void Recorder::stopped(void* handle) {
    if (kind_of(handle) == Of::proxy_op) {
        const std::uint64_t now = monotonic_ns();
        ring.put(cell_of(stopped_span, 0, 0, StopBody{bits(handle), now, now}), now);
    }
}

// At the levels that ask for no kernels the RAS service may: it writes the library's mask itself
// (CONTROL PROFILER_MASK, NCCL 2.31).
bool Recorder::kernels_wanted(Level level) const {
    const int* mask = mask_.load(std::memory_order_acquire);
    return level >= Level::all || (level < Level::sampled && mask != nullptr &&
                                   (__atomic_load_n(mask, __ATOMIC_RELAXED) & kernel_event) != 0);
}

bool Recorder::sample(Comm& comm, bool point_to_point) {
    const Level level = level_.load(std::memory_order_relaxed);
    Sampler& sampler = comm.samplers[point_to_point ? 1 : 0];
    const std::uint64_t call = sampler.calls.fetch_add(1, std::memory_order_relaxed);
    if (level != Level::sampled) {
        return kernels_wanted(level);
    }
    sampler.last_id.store(ids_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    // The library reads the mask before the callback: what is set now acts on the next call.
    arm(sampler, in_window(comm.hash, call + 1));
    return in_window(comm.hash, call);
}

void Recorder::arm(Sampler& sampler, bool wanted) {
    if (sampler.armed.load(std::memory_order_relaxed) != wanted &&
        sampler.armed.exchange(wanted, std::memory_order_relaxed) != wanted) {
        const int change = wanted ? 1 : -1;
        const int before = armed_.fetch_add(change, std::memory_order_relaxed);
        if ((before > 0) != (before + change > 0)) {
            apply_mask();
        }
    }
}

void Recorder::apply_mask() {
    int* mask = mask_.load(std::memory_order_acquire);
    if (mask == nullptr) {
        return;
    }
    // Another thread may change what is wanted at the same time: the last to look writes.
    for (;;) {
        const Level level = level_.load(std::memory_order_relaxed);
        const int armed = armed_.load(std::memory_order_relaxed);
        const bool kernels = level >= Level::all ||
                             (level == Level::sampled && (armed > 0 || times_need_all(version)));
        const int wanted =
            base_mask(interface, level) | (kernels ? kernel_mask(interface, hip) : 0);
        if (__atomic_exchange_n(mask, wanted, __ATOMIC_RELAXED) != wanted) {
            ring.put(cell_of(level_record, kernels ? 1 : 0, 0, LevelBody{monotonic_ns()}));
        }
        if (level == level_.load(std::memory_order_relaxed) &&
            armed == armed_.load(std::memory_order_relaxed)) {
            return;
        }
    }
}

void Recorder::set_level(Level level) {
    if (level_.exchange(level, std::memory_order_relaxed) != level) {
        apply_mask();
    }
}

void Recorder::disarm_idle() {
    const std::uint64_t now = ids_.load(std::memory_order_relaxed);
    const std::lock_guard<std::mutex> hold(comms_lock_);
    for (Comm* comm : comms_) {
        for (Sampler& sampler : comm->samplers) {
            if (sampler.armed.load(std::memory_order_relaxed) &&
                now - sampler.last_id.load(std::memory_order_relaxed) > idle_calls) {
                arm(sampler, false);
            }
        }
    }
}

std::vector<CommFacts> Recorder::comms_after(std::uint32_t number) {
    const std::lock_guard<std::mutex> hold(comms_lock_);
    return {facts_.begin() + std::min<std::size_t>(number, facts_.size()), facts_.end()};
}

void Recorder::flush() {
    const std::uint64_t ticket = flush_wanted.fetch_add(1, std::memory_order_acq_rel) + 1;
    constexpr int most_ms = 2000;
    for (int waited = 0; waited < most_ms; ++waited) {
        if (flush_done.load(std::memory_order_acquire) >= ticket) {
            return;
        }
        const timespec millisecond{0, 1'000'000};
        nanosleep(&millisecond, nullptr);
    }
}

}  // namespace collscope::recorder
