// The text of a COLL line: its keys and values, in whatever order a release prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "result.h"
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
}  // namespace coll_key

// What a thread's last line had after "comm ": mostly its next has the same text, which is then
// compared and not read. "0xaef8a00 [nranks=8] stream 0xac16b80 task 0 globalrank 0"
struct CollTail {
    std::string text;
    std::uint32_t thread = NONE;
    std::uint32_t seen = 0;  // which keys it holds
    std::uint64_t comm = 0;
    std::int32_t nranks = -1;
    std::int32_t task = -1;
    std::int32_t global_rank = -1;
    bool ends_open = false;  // its last value reaches the end of the line
};

// What a line says; -1 and 0 where it does not, see `seen`.
struct CollLine {
    std::string_view op;
    std::uint64_t op_count = 0;
    std::uint64_t sendbuff = 0;
    std::uint64_t recvbuff = 0;
    std::uint64_t count = 0;
    std::uint64_t comm = 0;
    std::int32_t datatype = -1;
    std::int32_t redop = -1;
    std::int32_t root = -1;
    std::int32_t nranks = -1;
    std::int32_t task = -1;
    std::int32_t global_rank = -1;
    std::uint32_t seen = 0;
    std::uint32_t flags = 0;
    bool clean = true;        // every word was known
    bool bad_number = false;  // a known key has a value that is not a number
    bool ends_open = false;   // the last value reaches the end of the text
    const CollTail* known_tail = nullptr;
    const char* tail_at = nullptr;       // where the text after "comm " begins
    std::uint32_t seen_before_tail = 0;  // `seen` there

    bool has(std::uint32_t keys) const { return (seen & keys) == keys; }
};

// Whether the character may stand in an operation's name.
inline bool is_name_char(char c) {
    return static_cast<unsigned char>((c | 0x20) - 'a') < 26 || is_digit(c) || c == '_';
}

// Reads "Name: opCount ...", of which `tail` may know the end.
CollLine parse_coll(std::string_view message, const CollTail* tail);

}  // namespace logscan
