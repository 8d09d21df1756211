// The recorder as a library sees it: opened by dlopen, called through the structures it exports,
// its files read back. Each case is a process of its own: test_recorder CASE FOLDER.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "library.h"

using namespace library;

namespace {

std::string folder;

void level(const char* name) { setenv("COLLSCOPE_RECORDER_LEVEL", name, 1); }

// The file is written behind the callbacks; the last finalize waits for it.
template <typename Comm>
Files after(Comm& comm) {
    comm.finalize();
    return Files(folder);
}

template <typename Comm>
void one_version(const char* symbol, int interface) {
    level("all");
    int mask = 0;
    Comm comm(symbol, 0xfeedfacecafebeefu, 1, 4, &mask);
    CHECK((mask & (coll_event | p2p_event)) == (coll_event | p2p_event));
    CHECK(((mask & kernel_event) != 0) == (interface >= 4));
    for (std::uint64_t i = 0; i < 5; ++i) {
        comm.whole_call("AllReduce", 1000 + i, i, 2, 1'000'000 * (i + 1), 1'000'000 * (i + 1) + 77);
    }
    comm.stop(comm.p2p(nullptr, "Send", 123, 3));
    const Files found = after(comm);
    CHECK(!found.damaged && found.files == 1);
    CHECK(found.of(file_record).size() == 1);
    CHECK(found.of(file_record)[0].header.small == interface);
    const auto comms = found.of(comm_record);
    CHECK(comms.size() == 1 && comms[0].as<CommBody>().hash == 0xfeedfacecafebeefu);
    CHECK(comms[0].as<CommBody>().rank == 1);
    CHECK(comms[0].as<CommBody>().nranks == (interface == 3 ? -1 : 4));
    CHECK(comms[0].text(sizeof(CommBody), 0) == "world");
    auto names = found.names();
    const auto calls = found.of(call_record);
    CHECK(calls.size() == 6);
    const auto apis = found.of(api_record);
    CHECK(apis.size() == (interface >= 5 ? 5u : 0u));
    for (std::size_t i = 0; i < 5; ++i) {
        const auto call = calls[i].as<CallBody>();
        CHECK(names[call.func] == "AllReduce" && names[call.datatype] == "ncclFloat32");
        CHECK(names[call.algorithm] == "RING" && names[call.protocol] == "LL128");
        CHECK(call.count == 1000 + i && call.seq == i && call.channels == 2);
        CHECK(call.send == call.recv && call.send != 0);
        CHECK(calls[i].header.comm == 1);
        if (interface >= 5) {
            CHECK(call.api == apis[i].as<ApiBody>().id);
            CHECK(apis[i].as<ApiBody>().count == 1000 + i && apis[i].as<ApiBody>().group != 0);
            CHECK(apis[i].as<ApiBody>().stream == call.send);
        }
    }
    const auto send = calls[5].as<CallBody>();
    CHECK(names[send.func] == "Send" && send.root == 3 && send.count == 123);
    CHECK((calls[5].header.small & point_to_point) != 0);
    const auto kernels = found.of(kernel_record);
    CHECK(kernels.size() == (interface >= 4 ? 10u : 0u));
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const auto span = kernels[i].as<SpanBody>();
        CHECK(kernels[i].header.small == i % 2);
        CHECK(span.call == calls[i / 2].as<CallBody>().id);
        CHECK(span.start == 1'000'000 * (i / 2 + 1) + i % 2 && span.stop == span.start + 77);
        CHECK(span.started_ns <= span.stopped_ns && span.started_ns > 0);
    }
    CHECK(found.of(comm_end_record).size() == 1);
    const auto costs = found.of(cost_record);
    CHECK(!costs.empty() && costs.back().as<CostBody>().dropped == 0);
    CHECK(costs.back().as<CostBody>().callbacks > 6 && costs.back().as<CostBody>().callback_ns > 0);
    for (std::size_t i = 0; i < found.records.size(); ++i) {
        CHECK(found.records[i].header.ordinal == i);
    }
}

void third() { one_version<CommV3>("ncclProfiler_v3", 3); }
void fourth() { one_version<CommV4>("ncclProfiler_v4", 4); }
void fifth() { one_version<CommV5>("ncclProfiler_v5", 5); }
void sixth() { one_version<CommV6>("ncclProfiler_v6", 6); }
void seventh() { one_version<CommV7>("ncclProfiler_v7", 7); }

void calls_only() {
    level("calls");
    int mask = 0;
    CommV5 comm("ncclProfiler_v5", 1, 0, 2, &mask);
    CHECK((mask & kernel_event) == 0 && (mask & coll_event) != 0);
    comm.whole_call("Broadcast", 7, 0, 1, 1, 2);
    // One of another thread that read the mask before: nothing of it is kept.
    void* call = comm.coll(nullptr, "Broadcast", 7, "ncclInt8", 1, 1, nullptr, nullptr);
    CHECK(comm.kernel(call, 0, 5) == nullptr);
    const Files found = after(comm);
    CHECK(found.of(call_record).size() == 2 && found.of(kernel_record).empty());
}

void off() {
    level("off");
    int mask = -1;
    CommV5 comm("ncclProfiler_v5", 1, 0, 2, &mask);
    CHECK(mask == 0);
    const Files found = after(comm);
    CHECK(found.of(comm_record).size() == 1);
}

// Windows go by the number of the call in its communicator: two ranks of one communicator sample
// the same calls, whatever else one of them does in between.
void sampled_windows() {
    level("sampled");
    int mask = 0;
    constexpr int calls = 10000;
    CommV5 world("ncclProfiler_v5", 0x1234567, 0, 2, &mask);
    CommV5 other("ncclProfiler_v5", 0x1234567, 1, 2, &mask);
    CommV5 aside("ncclProfiler_v5", 0x7777777, 0, 2, &mask);
    CommV5 once("ncclProfiler_v5", 0x9999999, 0, 2, &mask);
    once.whole_call("AllReduce", 1, 0, 1, 5, 6);
    for (std::uint64_t i = 0; i < calls; ++i) {
        world.whole_call("AllReduce", i, i, 1, 5, 6);
        if (i % 3 == 0) {
            aside.whole_call("AllGather", i, i, 1, 5, 6);
        }
        other.whole_call("AllReduce", i, i, 1, 5, 6);
        if (i % 500 == 0) {
            usleep(15000);  // the writer needs a turn: no job calls at this rate
        }
    }
    aside.finalize();
    once.finalize();
    other.finalize();
    const Files found = after(world);
    CHECK(!found.damaged);
    std::map<std::uint64_t, Record> call_of;
    for (const Record& record : found.of(call_record)) {
        call_of[record.as<CallBody>().id] = record;
    }
    CHECK(call_of.size() == 1 + 2 * calls + (calls + 2) / 3);
    std::map<int, std::set<std::uint64_t>> seen;
    for (const Record& record : found.of(kernel_record)) {
        const Record& call = call_of[record.as<SpanBody>().call];
        CHECK((call.header.small & sampled) != 0);
        CHECK(seen[call.header.comm].insert(call.as<CallBody>().count).second);
    }
    const double share = static_cast<double>(seen[1].size()) / calls;
    CHECK(share > 0.09 && share < 0.17);  // one of eight
    std::size_t common = 0;
    for (const std::uint64_t call : seen[1]) {
        common += seen[2].count(call);
    }
    CHECK(static_cast<double>(common) >= 0.95 * static_cast<double>(seen[1].size()));
    CHECK(static_cast<double>(common) >= 0.95 * static_cast<double>(seen[2].size()));
    CHECK(seen[1].count(0) == 1);  // the first window
    // What was called once does not keep kernel events on.
    CHECK(found.of(level_record).size() > 40);
}

#ifdef COLLSCOPE_LATER_LIBRARY
// From NCCL 2.31 on times are right only where all calls have kernel events.
void* open_later(int& mask) {
    void* library = dlopen(COLLSCOPE_LATER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    const auto open = reinterpret_cast<int (*)(const ProfilerV7*, void**, int*)>(
        dlsym(library, "open_communicator"));
    void* context = nullptr;
    CHECK(open(&exported<ProfilerV7>("ncclProfiler_v7"), &context, &mask) == 0);
    return context;
}

void later_default() {
    unsetenv("COLLSCOPE_RECORDER_LEVEL");
    int mask = 0;
    open_later(mask);
    CHECK(mask != 0 && (mask & kernel_event) == 0);
}

void later_sampled() {
    level("sampled");
    int mask = 0;
    void* first = open_later(mask);
    constexpr int calls = 1000;
    CommV7 comm("ncclProfiler_v7", 0x1234567, 0, 2, &mask);
    for (std::uint64_t i = 0; i < calls; ++i) {
        CHECK(comm.kernels());
        comm.whole_call("AllReduce", i, i, 1, 5, 6);
    }
    comm.finalize();
    CHECK((mask & kernel_event) != 0);
    CHECK(exported<ProfilerV7>("ncclProfiler_v7").finalize(first) == success);
    const Files found(folder);
    const std::size_t timed = found.of(kernel_record).size();
    CHECK(timed >= 32 && timed < calls / 2);  // what is written is a sample as always
    for (const Record& record : found.of(level_record)) {
        CHECK(record.header.small == 1);
    }
}
#endif

// Events of the library's threads in any order: ends without a beginning, beginnings whose end
// never comes, ends twice, parents of another process, handles after the communicator's end.
void out_of_order() {
    level("proxy");
    int mask = 0;
    CommV5 comm("ncclProfiler_v5", 1, 0, 2, &mask);
    CHECK((mask & proxy_op_event) != 0);
    void* call = comm.coll(nullptr, "AllReduce", 7, "ncclFloat64", 0, 3, nullptr, nullptr);
    void* first = comm.kernel(call, 0, 100);
    void* never = comm.kernel(call, 1, 101);
    comm.state(first, kernel_stop, 200);
    comm.stop(first);
    comm.state(first, kernel_stop, 300);  // twice
    CHECK(never != nullptr);
    comm.stop(never);                                            // without its stamp
    comm.kernel(reinterpret_cast<void*>(0x7f0000001000), 0, 5);  // no handle of ours
    comm.state(reinterpret_cast<void*>(0x7f0000001000), kernel_stop, 5);
    comm.kernel(nullptr, 0, 5);
    comm.state(call, kernel_stop, 5);  // of a call, which has no such state
    comm.state(call, 99, 5);
    DescriptorV5 proxy{};
    proxy.type = proxy_op_event;
    proxy.parent = call;
    proxy.proxy_op = {getpid() + 1, 4, 1, 8, 4096, 1};
    comm.stop(comm.start(proxy));
    proxy.proxy_op.pid = getpid();
    comm.stop(comm.start(proxy));
    DescriptorV5 unknown{};
    unknown.type = std::uint64_t{1} << 40;
    CHECK(comm.start(unknown) == nullptr);
    void* late = comm.kernel(call, 2, 102);
    const Files before = after(comm);
    CHECK(before.of(call_record).size() == 1);
    exported<ProfilerV5>("ncclProfiler_v5").stop_event(late);
    std::array<std::uint64_t, 2> stamp{400, 0};
    exported<ProfilerV5>("ncclProfiler_v5").record_state(late, kernel_stop, stamp.data());
    CommV5 another("ncclProfiler_v5", 2, 0, 2, &mask);
    // A kernel that lasts is written without its end after a while.
    std::size_t open = 0;
    for (int i = 0; i < 500 && open < 1; ++i) {
        usleep(2000);
        open = 0;
        for (const Record& record : Files(folder).of(kernel_record)) {
            open += record.as<SpanBody>().stop == 0 && record.header.small == 1;
        }
    }
    CHECK(open == 1);
    const Files found = after(another);
    const auto kernels = found.of(kernel_record);
    std::map<int, std::set<std::uint64_t>> stops;
    for (const Record& record : kernels) {
        stops[record.header.small].insert(record.as<SpanBody>().stop);
    }
    CHECK(stops[0] == std::set<std::uint64_t>{200});
    CHECK(stops[1] == std::set<std::uint64_t>{0});
    CHECK(stops[2].count(400) == 1);
    const auto proxies = found.of(proxy_record);
    CHECK(proxies.size() == 2);
    CHECK(proxies[0].as<ProxyBody>().span.call == 0);
    CHECK(proxies[1].as<ProxyBody>().span.call == found.of(call_record)[0].as<CallBody>().id);
    CHECK(proxies[1].as<ProxyBody>().peer == 1 && proxies[1].as<ProxyBody>().chunk_bytes == 4096);
}

// Many threads at once, each with a communicator: nothing is lost, nothing is there twice.
void threads() {
    level("all");
    int mask = 0;
    constexpr int workers = 8;
    constexpr std::uint64_t calls = 2000;
    std::vector<std::thread> all;
    for (int worker = 0; worker < workers; ++worker) {
        all.emplace_back([worker, &mask] {
            CommV7 comm("ncclProfiler_v7", 0x100 + static_cast<std::uint64_t>(worker), worker,
                        workers, &mask);
            for (std::uint64_t i = 0; i < calls; ++i) {
                comm.whole_call("ReduceScatter", i, i, 2, i, i + 1);
                if (i % 64 == 0) {
                    usleep(1000);  // the writer needs a turn, as this is far beyond any job's rate
                }
            }
        });
    }
    for (std::thread& worker : all) {
        worker.join();
    }
    const Files found(folder);
    CHECK(!found.damaged);
    const auto cost = found.of(cost_record).back().as<CostBody>();
    std::set<std::pair<std::uint32_t, std::uint64_t>> seen;
    for (const Record& record : found.of(call_record)) {
        CHECK(seen.insert({record.header.comm, record.as<CallBody>().seq}).second);
    }
    CHECK(found.of(comm_record).size() == workers);
    const std::size_t there =
        seen.size() + found.of(kernel_record).size() + found.of(api_record).size();
    // Of a call that was dropped nothing else is asked for.
    CHECK(there + 4 * (cost.dropped + cost.unwritten) >= workers * calls * 4);
    CHECK(there <= workers * calls * 4);
    if (cost.dropped == 0) {
        CHECK(there == workers * calls * 4);
    }
}

// More than the ring holds before the writer comes: the rest is counted, and nobody waits.
void overflow() {
    level("all");
    int mask = 0;
    CommV4 comm("ncclProfiler_v4", 1, 0, 2, &mask);
    constexpr std::uint64_t calls = 150000;
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < calls; ++i) {
        refused +=
            comm.coll(nullptr, "AllReduce", i, "ncclInt8", i, 1, nullptr, nullptr) == nullptr;
    }
    const Files found = after(comm);
    CHECK(!found.damaged);
    const auto cost = found.of(cost_record).back().as<CostBody>();
    CHECK(cost.dropped >= refused && cost.dropped <= refused + 1);  // the end of the communicator
    CHECK(found.of(call_record).size() + refused == calls);
    // With the end of the communicator, each callback made a record or was counted as dropped.
    CHECK(cost.callbacks + cost.dropped == calls + 1 && cost.callback_ns > 0);
}

// A text of the library may become another at the same address.
void reused_text() {
    level("calls");
    int mask = 0;
    CommV4 comm("ncclProfiler_v4", 1, 0, 2, &mask);
    std::array<char, 128> text{};
    const std::string shared(62, 'x');  // what is kept of a name
    const std::vector<std::string> texts = {"AllReduce", "Broadcast", "AllReduce", shared + "a",
                                            shared + "b"};
    for (std::size_t i = 0; i < texts.size(); ++i) {
        std::strcpy(text.data(), texts[i].c_str());
        comm.stop(comm.coll(nullptr, text.data(), 1, "ncclInt8", i, 1, nullptr, nullptr));
    }
    const Files found = after(comm);
    const auto calls = found.of(call_record);
    CHECK(!found.damaged && calls.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(found.names()[calls[i].as<CallBody>().func] == texts[i].substr(0, 62));
    }
}

// A bounded number of files; each can be read alone.
void rotation() {
    level("calls");
    setenv("COLLSCOPE_RECORDER_MAX_MB", "1", 1);
    int mask = 0;
    CommV4 comm("ncclProfiler_v4", 42, 0, 2, &mask);
    for (std::uint64_t i = 0; i < 40000; ++i) {
        comm.stop(comm.coll(nullptr, "AllReduce", i, "ncclInt8", i, 1, nullptr, nullptr));
        if (i % 1000 == 0) {
            usleep(15000);
        }
    }
    const Files found = after(comm);
    CHECK(!found.damaged);
    CHECK(found.files >= 2 && found.files <= 9);
    CHECK(found.bytes < 2'500'000);
    CHECK(found.of(file_record).size() == static_cast<std::size_t>(found.files));
    CHECK(found.of(comm_record).size() == static_cast<std::size_t>(found.files));
    CHECK(found.of(call_record).back().as<CallBody>().seq == 39999);
    // Every file but the last announces another one.
    const auto ends = found.of(end_record);
    CHECK(ends.size() + 1 == static_cast<std::size_t>(found.files));
    for (const Record& end : ends) {
        CHECK(end.header.small == 1);
    }
    for (std::size_t i = 1; i < found.records.size(); ++i) {
        CHECK(found.records[i].header.ordinal == found.records[0].header.ordinal + i);
    }
}

// A file that may not grow, as on a full disk: the job goes on, the loss is counted.
void full_disk() {
    level("calls");
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100000, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int mask = 0;
    CommV4 comm("ncclProfiler_v4", 42, 0, 2, &mask);
    for (std::uint64_t i = 0; i < 10000; ++i) {
        comm.stop(comm.coll(nullptr, "AllReduce", i, "ncclInt8", i, 1, nullptr, nullptr));
    }
    comm.finalize();
    const Files found(folder);
    const auto calls = found.of(call_record);
    CHECK(found.bytes <= 100000 && calls.size() > 900);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        CHECK(calls[i].as<CallBody>().seq == i);
    }
}

void no_folder() {
    setenv("COLLSCOPE_RECORDER_DIR", "/proc/none", 1);
    int mask = 0;
    CommV5 comm("ncclProfiler_v5", 42, 0, 2, &mask);
    comm.whole_call("AllReduce", 1, 1, 1, 1, 2);
}

// The child of a fork leaves the parent's file alone, and has one of its own with its own
// communicator.
void forked() {
    level("all");
    int mask = 0;
    CommV5 comm("ncclProfiler_v5", 42, 0, 2, &mask);
    comm.whole_call("AllReduce", 1, 0, 1, 1, 2);
    const pid_t child = fork();
    if (child == 0) {
        comm.whole_call("AllReduce", 2, 1, 1, 1, 2);  // of the parent: nothing is kept
        CommV5 own("ncclProfiler_v5", 43, 0, 2, &mask);
        own.whole_call("AllGather", 3, 0, 1, 1, 2);
        own.finalize();
        _exit(check::failures);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    comm.whole_call("AllReduce", 4, 1, 1, 1, 2);
    const Files found = after(comm);
    CHECK(!found.damaged && found.files == 2);
    std::multiset<std::uint64_t> counts;
    for (const Record& record : found.of(call_record)) {
        counts.insert(record.as<CallBody>().count);
    }
    CHECK((counts == std::multiset<std::uint64_t>{1, 3, 4}));
}

// What a process wrote is there whatever ends it, but for the last moment.
void killed(int signal_number) {
    level("all");
    std::array<int, 2> pipe_ends{};
    CHECK(pipe(pipe_ends.data()) == 0);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        int mask = 0;
        CommV5 comm("ncclProfiler_v5", 42, 0, 2, &mask);
        for (std::uint64_t i = 0; i < 1000; ++i) {
            comm.whole_call("AllReduce", i, i, 2, i, i + 1);
        }
        usleep(300000);  // a writer on a machine under load and a sanitizer needs its time
        CHECK(write(pipe_ends[1], "x", 1) == 1);
        for (std::uint64_t i = 1000;; ++i) {
            comm.whole_call("AllReduce", i, i, 2, i, i + 1);
            if (i % 100 == 0) {
                usleep(1000);
            }
            if (i == 20000) {
                raise(signal_number);
            }
        }
    }
    char ready = 0;
    CHECK(read(pipe_ends[0], &ready, 1) == 1);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    const Files found(folder);
    const auto calls = found.of(call_record);
    CHECK(calls.size() >= 1000);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        CHECK(calls[i].as<CallBody>().seq == i);
    }
}

void sigkill() { killed(SIGKILL); }
void aborted() { killed(SIGABRT); }

// Whatever the moment of the kill: what stands in the file is a beginning of what was called.
void killed_at_random() {
    level("all");
    const std::string all = folder;
    std::mt19937 moments(1);
    constexpr unsigned longest_us = 20000;
    std::size_t most = 0;
    for (int i = 0; i < 200; ++i) {
        folder = all + "/" + std::to_string(i);
        setenv("COLLSCOPE_RECORDER_DIR", folder.c_str(), 1);
        const pid_t child = fork();
        if (child == 0) {
            int mask = 0;
            CommV5 comm("ncclProfiler_v5", 42, 0, 2, &mask);
            for (std::uint64_t call = 0;; ++call) {
                comm.whole_call("AllReduce", call, call, 2, call, call + 1);
                if (call % 100 == 0) {
                    usleep(500);
                }
            }
        }
        usleep(static_cast<useconds_t>(moments() % longest_us));
        kill(child, SIGKILL);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        const Files found(folder);
        for (std::size_t n = 0; n < found.records.size(); ++n) {
            CHECK(found.records[n].header.ordinal == n);
        }
        const auto calls = found.of(call_record);
        for (std::size_t n = 0; n < calls.size(); ++n) {
            CHECK(calls[n].as<CallBody>().seq == n);
        }
        most = std::max(most, calls.size());
    }
    CHECK(most > 0);
}

// The control file of `collscope attach`: read once a second.
void control() {
    level("off");
    const std::string file = folder + "/control";
    setenv("COLLSCOPE_RECORDER_CONTROL", file.c_str(), 1);
    int mask = 0;
    CommV5 comm("ncclProfiler_v5", 42, 0, 2, &mask);
    CHECK(!comm.kernels());
    std::FILE* text = std::fopen(file.c_str(), "w");
    std::fputs("all\n", text);
    std::fclose(text);
    for (int i = 0; i < 300 && !comm.kernels(); ++i) {
        usleep(10000);
    }
    CHECK(comm.kernels());
    comm.whole_call("AllReduce", 1, 0, 1, 1, 2);
    unlink(file.c_str());
    for (int i = 0; i < 300 && comm.kernels(); ++i) {
        usleep(10000);
    }
    CHECK(__atomic_load_n(&mask, __ATOMIC_RELAXED) == 0);
    CHECK(after(comm).of(kernel_record).size() == 1);
}

// The RAS service of NCCL 2.31 writes the library's mask, and the library puts that back after
// each init: `collscope attach`. What comes is kept, kernels too, and nobody writes the mask back.
void ras_mask(const char* at, int before) {
    level(at);
    int mask = 0;
    CommV7 comm("ncclProfiler_v7", 42, 0, 2, &mask);
    comm.whole_call("AllReduce", 1, 0, 1, 1, 2);
    CHECK(mask == before);
    const int wanted = coll_event | p2p_event | group_api_event | coll_api_event | p2p_api_event |
                       ce_coll_event | kernel_event | nccl_phase_event;
    __atomic_store_n(&mask, wanted, __ATOMIC_RELAXED);
    for (std::uint64_t i = 1; i < 2000; ++i) {
        comm.whole_call("AllReduce", 1, i, 1, i * 10, i * 10 + 5);
        if (i % 100 == 0) {
            usleep(15000);  // the writer's turn
        }
    }
    CHECK(mask == wanted);
    CommV7 later("ncclProfiler_v7", 43, 0, 2, &mask);
    __atomic_store_n(&mask, wanted, __ATOMIC_RELAXED);
    later.whole_call("AllGather", 1, 0, 1, 30000, 30005);
    void* call = comm.coll(nullptr, "AllReduce", 1, "ncclInt8", 2000, 1, nullptr, nullptr);
    void* kernel = comm.kernel(call, 0, 40000);
    CHECK(kernel != nullptr);
    comm.state(kernel, kernel_stop, 40005);
    __atomic_store_n(&mask, before, __ATOMIC_RELAXED);
    call = comm.coll(nullptr, "AllReduce", 1, "ncclInt8", 2001, 1, nullptr, nullptr);
    CHECK(comm.kernel(call, 0, 50000) == nullptr);
    later.finalize();
    CHECK(mask == before);
    const Files found = after(comm);
    CHECK(!found.damaged && found.of(kernel_record).size() == 2001);
}

void ras_mask_off() { ras_mask("off", 0); }
void ras_mask_calls() {
    ras_mask("calls", coll_event | p2p_event | group_api_event | coll_api_event | p2p_api_event |
                          ce_coll_event);
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, std::function<void()>> cases = {
        {"third", third},
        {"fourth", fourth},
        {"fifth", fifth},
        {"sixth", sixth},
        {"seventh", seventh},
        {"calls_only", calls_only},
        {"off", off},
        {"sampled_windows", sampled_windows},
#ifdef COLLSCOPE_LATER_LIBRARY
        {"later_default", later_default},
        {"later_sampled", later_sampled},
#endif
        {"out_of_order", out_of_order},
        {"threads", threads},
        {"overflow", overflow},
        {"reused_text", reused_text},
        {"rotation", rotation},
        {"full_disk", full_disk},
        {"no_folder", no_folder},
        {"forked", forked},
        {"sigkill", sigkill},
        {"aborted", aborted},
        {"killed_at_random", killed_at_random},
        {"control", control},
        {"ras_mask_off", ras_mask_off},
        {"ras_mask_calls", ras_mask_calls},
    };
    const auto found = cases.find(argc == 3 ? argv[1] : "");
    if (found == cases.end()) {
        std::fprintf(stderr, "usage: test_recorder CASE FOLDER\n");
        return EXIT_FAILURE;
    }
    std::array<char, 4096> made{};
    std::snprintf(made.data(), made.size(), "%s/recorder-XXXXXX", argv[2]);
    CHECK(mkdtemp(made.data()) != nullptr);
    folder = made.data();
    setenv("COLLSCOPE_RECORDER_DIR", folder.c_str(), 1);
    found->second();
    return check::result();
}
