// Stands in for NCCL's side of the profiler interface: opens the plugin as the library does, calls
// it with events of each version, and reads the files that it wrote.
#pragma once

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "format.h"
#include "plugin_api.h"

namespace library {

using namespace collscope::recorder;

inline void* opened() {
    static void* handle = dlopen(COLLSCOPE_RECORDER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(EXIT_FAILURE);
    }
    return handle;
}

template <typename Version>
const Version& exported(const char* symbol) {
    const void* found = dlsym(opened(), symbol);
    if (found == nullptr) {
        std::fprintf(stderr, "no %s\n", symbol);
        std::exit(EXIT_FAILURE);
    }
    return *static_cast<const Version*>(found);
}

// A record as it stands in a file.
struct Record {
    Header header;
    std::string body;

    template <typename Body>
    Body as() const {
        Body found{};
        std::memcpy(&found, body.data(), std::min(sizeof found, body.size()));
        return found;
    }
    // The n-th text behind a body of so many bytes.
    std::string text(std::size_t behind, int n) const {
        std::size_t at = behind;
        for (; n > 0; --n) {
            at = body.find('\0', at) + 1;
        }
        return body.c_str() + at;
    }
};

// All whole records of the files in a folder, in the order of their numbers.
struct Files {
    std::vector<Record> records;
    int files = 0;
    std::size_t bytes = 0;
    bool damaged = false;

    explicit Files(const std::string& folder) {
        if (DIR* entries = opendir(folder.c_str())) {
            while (const dirent* entry = readdir(entries)) {
                const std::string name = entry->d_name;
                if (name.ends_with(".collrec")) {
                    read(folder + "/" + name);
                }
            }
            closedir(entries);
        }
        std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
            return a.header.ordinal < b.header.ordinal;
        });
    }

    std::vector<Record> of(Kind kind) const {
        std::vector<Record> found;
        for (const Record& record : records) {
            if (record.header.kind == kind) {
                found.push_back(record);
            }
        }
        return found;
    }

    // Names by their number.
    std::map<int, std::string> names() const {
        std::map<int, std::string> found;
        for (const Record& record : of(name_record)) {
            found[record.header.small] = record.text(0, 0);
        }
        return found;
    }

private:
    void read(const std::string& path) {
        std::string data;
        std::FILE* file = std::fopen(path.c_str(), "rb");
        if (file == nullptr) {
            std::perror(path.c_str());
            damaged = true;
            return;
        }
        std::array<char, 1 << 16> part{};
        for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), file)) > 0;) {
            data.append(part.data(), n);
        }
        std::fclose(file);
        ++files;
        bytes += data.size();
        if (data.size() < magic.size() ||
            std::memcmp(data.data(), magic.data(), magic.size()) != 0) {
            damaged = true;
            return;
        }
        std::size_t at = magic.size();
        while (at + sizeof(Header) <= data.size()) {
            Record record;
            std::memcpy(&record.header, &data[at], sizeof(Header));
            const std::size_t size = record.header.size;
            if (size < sizeof(Header) || at + size > data.size() ||
                checked(&data[at], size) != record.header.check) {
                damaged = true;
                return;
            }
            record.body.assign(&data[at + sizeof(Header)], size - sizeof(Header));
            records.push_back(record);
            at += size;
        }
        damaged = damaged || at != data.size();
    }

    // CRC-32, bit by bit: written apart from the recorder's.
    static std::uint32_t checked(const char* record, std::size_t size) {
        std::uint32_t value = ~0u;
        for (std::size_t i = sizeof(Header::check); i < size; ++i) {
            value ^= static_cast<unsigned char>(record[i]);
            for (int bit = 0; bit < 8; ++bit) {
                value = (value >> 1) ^ (0xedb88320u & (0u - (value & 1u)));
            }
        }
        return ~value;
    }
};

// A communicator over the interface of a version, with the calls that the library makes for it.
template <typename Version, typename Descriptor, int interface>
class Communicator {
public:
    // mask  of the process, as in the library
    Communicator(const char* symbol, std::uint64_t hash, int rank, int nranks, int* mask)
        : plugin_(exported<Version>(symbol)), hash_(hash), rank_(rank), mask_(mask) {
        int result = 1;
        if constexpr (interface == 3) {
            result = plugin_.init(&context_, mask);
        } else if constexpr (interface == 4) {
            result = plugin_.init(&context_, mask, "world", hash, 1, nranks, rank, nullptr);
        } else {
            result = plugin_.init(&context_, hash, mask, "world", 1, nranks, rank, nullptr);
        }
        CHECK(result == success);
    }
    ~Communicator() { finalize(); }
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    void finalize() {
        if (context_ != nullptr) {
            CHECK(plugin_.finalize(context_) == success);
            context_ = nullptr;
        }
    }

    void* start(Descriptor& event) {
        void* handle = this;  // the library leaves what was there
        event.rank = rank_;
        CHECK(plugin_.start_event(context_, &handle, &event) == success);
        return handle;
    }
    void stop(void* handle) const {
        if (handle != nullptr) {
            CHECK(plugin_.stop_event(handle) == success);
        }
    }
    void state(void* handle, int state, std::uint64_t timer) const {
        std::array<std::uint64_t, 2> arguments{timer, 0};
        CHECK(plugin_.record_state(handle, state, arguments.data()) == success);
    }

    // Kernel events are asked for, as the library sees at the beginning of a group.
    bool kernels() const { return (__atomic_load_n(mask_, __ATOMIC_RELAXED) & kernel_event) != 0; }

    // Null in versions without.
    void* group_api() {
        if constexpr (interface >= 5) {
            Descriptor event{};
            event.type = group_api_event;
            return start(event);
        }
        return nullptr;
    }

    // The application's call; null in versions without.
    void* coll_api(void* group, const char* func, std::size_t count, const char* datatype,
                   bool captured = false) {
        if constexpr (interface >= 5) {
            Descriptor event{};
            event.type = coll_api_event;
            event.parent = group;
            event.coll_api.func = func;
            event.coll_api.count = count;
            event.coll_api.datatype = datatype;
            event.coll_api.root = 0;
            event.coll_api.stream = this;
            event.coll_api.captured = captured;
            return start(event);
        }
        return nullptr;
    }

    void* coll(void* parent, const char* func, std::size_t count, const char* datatype,
               std::uint64_t seq, std::uint8_t channels, const void* send, void* recv) {
        Descriptor event{};
        event.type = coll_event;
        event.parent = parent;
        auto& coll = event.coll;
        if constexpr (interface == 3) {
            coll.comm_name = "world";
            coll.comm_hash = hash_;
        }
        coll.seq = seq;
        coll.func = func;
        coll.send = send;
        coll.recv = recv;
        coll.count = count;
        coll.datatype = datatype;
        coll.channels = channels;
        coll.algorithm = "RING";
        coll.protocol = "LL128";
        return start(event);
    }

    void* p2p(void* parent, const char* func, std::size_t count, int peer) {
        Descriptor event{};
        event.type = p2p_event;
        event.parent = parent;
        auto& p2p = event.p2p;
        if constexpr (interface == 3) {
            p2p.comm_name = "world";
            p2p.comm_hash = hash_;
        }
        p2p.func = func;
        p2p.count = count;
        p2p.datatype = "ncclFloat16";
        p2p.peer = peer;
        return start(event);
    }

    void* kernel(void* parent, std::uint8_t channel, std::uint64_t timer) {
        Descriptor event{};
        event.type = kernel_event;
        event.parent = parent;
        event.kernel.channel = channel;
        if constexpr (interface >= 4) {
            event.kernel.timer = timer;
        }
        return start(event);
    }

    // A collective from the application's call to the ends of its kernels.
    void whole_call(const char* func, std::size_t count, std::uint64_t seq, std::uint8_t channels,
                    std::uint64_t start_ns, std::uint64_t stop_ns) {
        const bool wanted = kernels();
        void* group = group_api();
        void* api = coll_api(group, func, count, "ncclFloat32");
        void* call = coll(api, func, count, "ncclFloat32", seq, channels, this, this);
        stop(call);
        stop(api);
        stop(group);
        for (std::uint8_t channel = 0; wanted && channel < channels; ++channel) {
            if (void* handle = kernel(call, channel, start_ns + channel)) {
                state(handle, kernel_stop, stop_ns + channel);
                stop(handle);
            }
        }
    }

private:
    const Version& plugin_;
    const std::uint64_t hash_;
    const int rank_;
    int* mask_;
    void* context_ = nullptr;
};

using CommV3 = Communicator<ProfilerV3, DescriptorV3, 3>;
using CommV4 = Communicator<ProfilerV4, DescriptorV4, 4>;
using CommV5 = Communicator<ProfilerV5, DescriptorV5, 5>;
using CommV6 = Communicator<ProfilerV6, DescriptorV6, 6>;
using CommV7 = Communicator<ProfilerV7, DescriptorV7, 7>;

}  // namespace library
