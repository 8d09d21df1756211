// Lines that announce a collective: class COLL of NCCL and RCCL, and their CALL trace.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "coll_line.h"
#include "known_calls.h"
#include "origin.h"
#include "result.h"

namespace logscan {

// Where one record stands.
struct Place {
    std::uint32_t process;
    std::uint32_t thread;
    std::uint32_t line;
    bool cut;  // the text ends without a newline, so its last number may lack digits
};

enum class Outcome : std::uint8_t {
    stored,          // the text was understood to its end
    stored_unsure,   // stored, but something unknown or cut follows its obligatory part
    torn,            // cut before it was complete
    invalid_number,  // complete, but a value is not a number
    other,           // not a record of this kind
};

class Collectives {
public:
    explicit Collectives(Result& result) : result_(result) {}

    // Whether the message starts as "Name: opCount ".
    static bool is_call(std::string_view message);

    // Parses a COLL message that may hold a second record (its end is then not known yet): stores
    // it only when the outcome is `stored`, that is when the text was understood to its end.
    Outcome coll_if_whole(std::string_view message, const Place& place);

    // Parses a COLL message of known end and stores it if it is complete.
    Outcome coll(std::string_view message, const Place& place);

    // Parses the message of a CALL line.
    Outcome call(std::string_view message, const Place& place);

private:
    // An operation is in place when the buffers are the same, or when one rank's block lies inside
    // the larger buffer at rank * count * size.
    enum class Layout : std::uint8_t { same, send_inside, recv_inside, unknown };
    struct CommKey {
        std::uint64_t process;
        std::uint64_t ptr;
    };
    static void remember_tail(const CollLine& fields, std::string_view text, const Place& place,
                              KnownTail& tail);
    static Outcome judge(const CollLine& fields);
    KnownCall store(CollLine& fields, const Place& place, std::uint8_t source);
    void push(const KnownCall& call, std::uint64_t op_count, const Place& place,
              std::uint8_t source);
    std::uint32_t find_op(std::string_view name);
    std::uint32_t find_comm_key(const CommKey& key);
    void distrust_cut_tail(CollLine& fields, const Place& place);
    std::uint32_t find_comm(std::uint32_t key, const Ranks& ranks);
    bool agrees(std::uint32_t row, const Ranks& ranks) const;
    void learn(std::uint32_t row, const Ranks& ranks);
    std::uint32_t add_comm(std::uint32_t key, const Ranks& ranks);
    static std::int32_t find_slot(const CollLine& fields, Layout layout);
    static Layout layout_of(std::string_view name);

    Result& result_;
    KeyTable<CommKey> comm_keys_;
    std::vector<std::uint32_t> comm_rows_;  // of each key, the row of its latest generation
    std::vector<Layout> layouts_;           // of each operation
    std::array<KnownTail, 256> tails_;
    KnownCalls known_;
};

}  // namespace logscan
