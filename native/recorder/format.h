// The file of one process: magic, then records, each with its size, its number and a check
// (docs/recorder.md). Little endian, as the x86-64 and Arm hosts of GPUs are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace collscope::recorder {

static_assert(std::endian::native == std::endian::little);

// The last byte is the version of the format: a reader refuses what it does not know.
inline constexpr std::array<char, 8> magic = {'C', 'O', 'L', 'L', 'R', 'E', 'C', 1};

enum Kind : std::uint8_t {
    file_record = 1,
    name_record = 2,
    comm_record = 3,
    comm_end_record = 4,
    api_record = 5,
    call_record = 6,
    kernel_record = 7,
    phase_record = 8,
    proxy_record = 9,
    cost_record = 10,
    level_record = 11,
    end_record = 12,
    stopped_span = 100,  // from callbacks to the writer only, which puts it into the span's record
};

struct Header {
    std::uint32_t check;    // CRC-32 of what follows it in the record
    std::uint16_t size;     // of the record with its header, a multiple of 8
    std::uint8_t kind;      // Kind
    std::uint8_t small;     // by kind
    std::uint32_t ordinal;  // counts the records of the process, so that a gap shows its length
    std::uint32_t comm;     // number of the communicator in the process; 0 none
};

// small: version of the plugin interface. Texts, each ended by a zero byte, follow: host, level,
// why the level is not the default one (or empty), world rank of the environment (or empty).
struct FileBody {
    std::uint64_t real_ns;  // the two host clocks at one moment; other times are of the second
    std::uint64_t monotonic_ns;
    std::uint64_t pid;
    std::uint64_t boot_token;       // of the process: equal in all its files
    std::uint32_t segment;          // number of the file in the process, from 0
    std::uint32_t library_version;  // as ncclGetVersion; 0 not known
    std::uint32_t world_size;       // of the environment; 0 not known
    std::uint32_t hip;              // 1: the process has the HIP runtime
};

// small: the number that records name it by. The text follows.
struct NameBody {};

// Texts follow: name of the communicator, bus id and name of the device (each may be empty).
struct CommBody {
    std::uint64_t hash;
    std::uint64_t monotonic_ns;
    std::int32_t rank;
    std::int32_t nranks;  // -1 not known (v3)
    std::int32_t nnodes;
    std::int32_t device;  // -1 not known
};

struct CommEndBody {
    std::uint64_t monotonic_ns;
};

// A call as the application made it (v5 and later). small: flags.
struct ApiBody {
    std::uint64_t id;
    std::uint64_t group;  // of the outermost ncclGroupStart; 0 none
    std::uint64_t monotonic_ns;
    std::uint64_t count;
    std::uint64_t stream;
    std::uint64_t tag;
    std::int32_t root;  // -1 unknown
    std::uint8_t func;  // as datatype the number of a name
    std::uint8_t datatype;
    std::uint16_t unused;
};

// A call as the library launches it. small: flags.
struct CallBody {
    std::uint64_t id;
    std::uint64_t api;  // id of the call of the application; 0 none
    std::uint64_t monotonic_ns;
    std::uint64_t seq;  // all ones where unknown
    std::uint64_t count;
    std::uint64_t send;
    std::uint64_t recv;
    std::uint64_t tag;
    std::int32_t root;  // or peer
    std::uint8_t func;  // as the next three the number of a name
    std::uint8_t datatype;
    std::uint8_t algorithm;
    std::uint8_t protocol;
    std::uint8_t channels;  // 0 unknown, or 256
    std::uint8_t variant;   // number of a name
    std::uint16_t unused;
    std::uint32_t unused_too;
};

enum Flag : std::uint8_t {
    point_to_point = 1,
    captured = 2,   // into a graph
    symmetric = 4,  // kernel of symmetric memory
    copy_engine = 8,
    sampled = 16,  // its kernels are asked for
};

// A span on one channel. small: channel. Device clock for kernels and phases (ns, or ticks of 100
// MHz from AMD), the host's for proxy operations. One that lasts is written twice: first without
// its end.
struct SpanBody {
    std::uint64_t call;  // id; 0 of another process
    std::uint64_t start;
    std::uint64_t stop;        // 0: not seen so far
    std::uint64_t started_ns;  // host's monotonic clock in the callbacks
    std::uint64_t stopped_ns;
};

struct PhaseBody {
    SpanBody span;
    std::uint32_t phase;  // 0 initial_sync, 1 compute, 2 final_sync
    std::uint32_t unused;
};

struct ProxyBody {
    SpanBody span;
    std::int32_t peer;
    std::int32_t steps;
    std::int32_t chunk_bytes;
    std::int32_t is_send;
};

// About once a second, totals since the start.
struct CostBody {
    std::uint64_t real_ns;
    std::uint64_t monotonic_ns;
    std::uint64_t callbacks;    // that made a record
    std::uint64_t callback_ns;  // time spent in them, by those that were timed
    std::uint64_t writer_ns;    // CPU time of the writer
    std::uint64_t dropped;      // records, because the ring was full
    std::uint64_t unwritten;    // records, because the file could not take them
    std::uint64_t written_bytes;
};

// A span's end, by the handle of its start, which stands in `stopped_ns` of its cell until then.
struct StopBody {
    std::uint64_t key;
    std::uint64_t stop;
    std::uint64_t stopped_ns;
};

// small: 1 the kernels of calls are asked for from here on, 0 not.
struct LevelBody {
    std::uint64_t monotonic_ns;
};

// Of a whole file the last, but for a cost. small: 1 the process goes on in its next file, 0 it
// ended.
struct EndBody {
    std::uint64_t monotonic_ns;
};

static_assert(sizeof(Header) == 16 && sizeof(FileBody) == 48 && sizeof(CommBody) == 32);
static_assert(sizeof(ApiBody) == 56 && sizeof(CallBody) == 80 && sizeof(SpanBody) == 40);
static_assert(sizeof(ProxyBody) == 56 && sizeof(CostBody) == 64);

// CRC-32 of IEEE 802.3, as zlib's.
std::uint32_t crc32(const void* data, std::size_t size);

}  // namespace collscope::recorder
