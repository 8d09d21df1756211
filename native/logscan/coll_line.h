// A COLL line: its keys and values, in whatever order a release prints them, and the columns that
// they become. A new key is declared here: its bit, its value, how it is read, and its column if
// its value is kept for each line (collective.cpp stores it) or its place in the signature.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "column.h"
#include "intern.h"
#include "text.h"

namespace logscan {

// Bits of CollLine::seen.
namespace coll_key {
enum Bit : std::uint32_t {
    OP_COUNT = 1 << 0,
    SENDBUFF = 1 << 1,
    RECVBUFF = 1 << 2,
    ACC = 1 << 3,
    COUNT = 1 << 4,
    DATATYPE = 1 << 5,
    REDOP = 1 << 6,
    ROOT = 1 << 7,
    COMM = 1 << 8,
    NRANKS = 1 << 9,
    STREAM = 1 << 10,
    TASK = 1 << 11,
    GLOBAL_RANK = 1 << 12,
    SENDCOUNTS = 1 << 13,
    IGNORED = 1 << 14,
};
inline constexpr std::uint32_t of_tail = COMM | NRANKS | STREAM | TASK | GLOBAL_RANK;  // CollTail
}  // namespace coll_key

// Bits of Signature::flags.
inline constexpr std::uint32_t COUNT_MODULO_32 = 1;
inline constexpr std::uint32_t HAS_ACCUMULATOR = 2;
inline constexpr std::uint32_t POINTERS_ONLY = 4;

// What a line may say after "comm "; -1 and 0 where it does not.
struct CollTail {
    std::uint64_t comm = 0;
    std::int32_t nranks = -1;
    std::int32_t task = -1;
    std::int32_t global_rank = -1;
    bool ends_open = false;  // the last value reaches the end of the text
};

// What a thread's last line had after "comm ": mostly its next has the same text, which is then
// compared and not read. "0xaef8a00 [nranks=8] stream 0xac16b80 task 0 globalrank 0"
struct KnownTail {
    std::string text;
    std::uint32_t thread = NONE;
    std::uint32_t seen = 0;  // which keys it holds
    CollTail values;
};

// Values of a line; -1 and 0 where missing, see `seen`.
struct CollLine : CollTail {
    std::string_view op;
    std::uint64_t op_count = 0;
    std::uint64_t sendbuff = 0;
    std::uint64_t recvbuff = 0;
    std::uint64_t count = 0;
    std::int32_t datatype = -1;
    std::int32_t redop = -1;
    std::int32_t root = -1;
    std::uint32_t seen = 0;
    std::uint32_t flags = 0;
    bool clean = true;        // every word was known
    bool bad_number = false;  // a known key has a value that is not a number
    const KnownTail* known_tail = nullptr;
    const char* tail_at = nullptr;       // where the text after "comm " begins
    std::uint32_t seen_before_tail = 0;  // `seen` there

    bool has(std::uint32_t keys) const { return (seen & keys) == keys; }
};

// A key whose value is an integer.
struct IntKey {
    std::string_view text;
    coll_key::Bit bit;
    std::int32_t CollLine::*value;
};
inline constexpr std::array int_keys = {
    IntKey{"task ", coll_key::TASK, &CollLine::task},
    IntKey{"globalrank ", coll_key::GLOBAL_RANK, &CollLine::global_rank},
    IntKey{"datatype ", coll_key::DATATYPE, &CollLine::datatype},
    IntKey{"op ", coll_key::REDOP, &CollLine::redop},
    IntKey{"root ", coll_key::ROOT, &CollLine::root},
    IntKey{"peer ", coll_key::ROOT, &CollLine::root},  // NCCLX, of a Send or Recv
};

// What the lines of one call have in common. No padding: compared and hashed as machine words.
struct Signature {
    std::uint64_t count;
    std::uint32_t op;
    std::int32_t datatype;
    std::int32_t redop;
    std::int32_t root;
    std::int32_t nranks;
    std::uint32_t flags;

    template <class With>
    static constexpr void columns(With&& with) {
        with("op", &Signature::op);
        with("count", &Signature::count);
        with("datatype", &Signature::datatype);
        with("redop", &Signature::redop);
        with("root", &Signature::root);
        with("nranks", &Signature::nranks);
        with("flags", &Signature::flags);
    }
};
static_assert(sizeof(Signature) == 32);

// One row per line.
struct Calls {
    Column<std::uint32_t> comm;
    Column<std::uint32_t> sig;
    Column<std::uint64_t> op_count;
    Column<std::int32_t> slot;
    Column<std::int32_t> task;
    Column<std::uint32_t> thread;
    Column<std::uint32_t> line;
    Column<std::uint8_t> source;

    template <class With>
    static constexpr void columns(With&& with) {
        with("comm", &Calls::comm);
        with("sig", &Calls::sig);
        with("op_count", &Calls::op_count);
        with("slot", &Calls::slot);
        with("task", &Calls::task);
        with("thread", &Calls::thread);
        with("line", &Calls::line);
        with("source", &Calls::source);
    }
};
static_assert(lists_all_columns<Calls>());

// Whether the character may stand in an operation's name.
inline bool is_name_char(char c) {
    return static_cast<unsigned char>((c | 0x20) - 'a') < 26 || is_digit(c) || c == '_';
}

// Reads "Name: opCount ..."; `tail` may know the end of the line.
CollLine parse_coll(std::string_view message, const KnownTail* tail);

}  // namespace logscan
