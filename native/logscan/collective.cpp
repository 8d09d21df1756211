#include "collective.h"

#include <algorithm>

#include "text.h"

namespace logscan {

namespace {

using namespace coll_key;

constexpr std::uint32_t obligatory = OP_COUNT | COUNT | DATATYPE | COMM | NRANKS;

constexpr std::uint8_t source_coll = 0;
constexpr std::uint8_t source_call = 1;
constexpr std::int32_t slot_none = -1;
constexpr std::int32_t slot_unknown = -2;
constexpr std::int32_t first_custom_redop = 5;
constexpr std::int32_t slot_limit = 65536;  // where nranks is not known
constexpr std::size_t name_bytes = 48;

// Bytes of an element by ncclDataType_t, nccl.h 2.24 and rccl.h.
constexpr std::array<std::uint64_t, 12> item_bytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return out;
}

// A call line in three parts: "AllReduce", the opCount, " sendbuff 0x7f8bccf79600 recvbuff ...".
struct CallText {
    std::string_view op;
    std::uint64_t op_count = 0;
    std::string_view rest;
    bool whole;  // with a number

    explicit CallText(std::string_view message) : op(message.substr(0, message.find(':'))) {
        Cursor in(message.substr(op.size()));
        whole = in.take(": opCount ") && in.take_hex(op_count);
        rest = in.rest();
    }
};

}  // namespace

bool Collectives::is_call(std::string_view message) {
    std::size_t colon = 0;
    const std::size_t longest = std::min(message.size(), name_bytes);
    while (colon < longest && is_name_char(message[colon])) {
        ++colon;
    }
    return colon > 0 && message.substr(colon).starts_with(": opCount ");
}

Outcome Collectives::judge(const CollLine& fields) {
    const std::uint32_t needed = fields.has(SENDCOUNTS) ? obligatory & ~COUNT : obligatory;
    if (fields.has(needed)) {
        const bool whole = fields.clean && fields.has(STREAM);
        return whole ? Outcome::stored : Outcome::stored_unsure;
    }
    return fields.bad_number ? Outcome::invalid_number : Outcome::torn;
}

Outcome Collectives::coll_if_whole(std::string_view message, const Place& place) {
    const CallText text(message);
    const bool may_come_again = text.whole && !place.cut;
    if (may_come_again) [[likely]] {
        const KnownCall* known = known_.find(place.thread, text.op, text.rest);
        if (known != nullptr) {
            push(*known, text.op_count, place, source_coll);
            return Outcome::stored;
        }
    }
    KnownTail& tail = tails_[place.thread % tails_.size()];
    CollLine fields = parse_coll(message, tail.thread == place.thread ? &tail : nullptr);
    const Outcome outcome = judge(fields);
    if (outcome == Outcome::stored) [[likely]] {
        if (fields.tail_at != nullptr) [[unlikely]] {
            remember_tail(fields, {fields.tail_at, message.data() + message.size()}, place, tail);
        }
        const KnownCall call = store(fields, place, source_coll);
        if (may_come_again) {
            known_.add(place.thread, text.op, text.rest, call);
        }
    }
    return outcome;
}

void Collectives::remember_tail(const CollLine& fields, std::string_view text, const Place& place,
                                KnownTail& tail) {
    const std::uint32_t seen = fields.seen & ~fields.seen_before_tail;
    if ((seen & ~of_tail) != 0) {
        return;
    }
    tail.text.assign(text);  // into the memory that it has
    tail.thread = place.thread;
    tail.seen = seen;
    tail.values = fields;  // its part that is a tail's
}

Outcome Collectives::coll(std::string_view message, const Place& place) {
    CollLine fields = parse_coll(message, nullptr);
    const Outcome outcome = judge(fields);
    if (outcome == Outcome::stored || outcome == Outcome::stored_unsure) {
        store(fields, place, source_coll);
    }
    return outcome;
}

// NCCL 2.15 with NCCL_DEBUG=TRACE, class CALL; pointers are hexadecimal without 0x, count decimal:
// "ncclAllReduce(7f8bccf79600,7f8bccf79600,268435456,6,0,0,0xaef8a00,0xac16b80)"
Outcome Collectives::call(std::string_view message, const Place& place) {
    const std::size_t open = message.find('(');
    if (!message.starts_with("nccl") || open == npos) {
        return Outcome::other;
    }
    CollLine fields;
    fields.op = message.substr(4, open - 4);
    if (!std::all_of(fields.op.begin(), fields.op.end(), is_name_char) || fields.op.empty()) {
        return Outcome::other;
    }
    Cursor in(message.substr(open + 1));
    std::uint64_t stream = 0;
    bool nil = false;
    const bool whole = in.take_hex(fields.sendbuff) && in.take(",") &&
                       in.take_hex(fields.recvbuff) && in.take(",") &&
                       in.take_decimal(fields.count) && in.take(",") &&
                       in.take_int32(fields.datatype) && in.take(",") &&
                       in.take_int32(fields.redop) && in.take(",") && in.take_int32(fields.root) &&
                       in.take(",") && in.take_pointer(fields.comm, nil) && in.take(",") &&
                       in.take_pointer(stream, nil) && in.take(")");
    if (!whole) {
        return in.done() ? Outcome::torn : Outcome::invalid_number;
    }
    store(fields, place, source_call);
    in.skip_blanks();
    return in.done() ? Outcome::stored : Outcome::stored_unsure;
}

// The file ends inside this line: "globalrank 1" of a cut "globalrank 12" must not look like a new
// communicator, nor "task 1" like another task.
void Collectives::distrust_cut_tail(CollLine& fields, const Place& place) {
    if (!fields.has(GLOBAL_RANK)) {
        fields.task = -1;
        return;
    }
    const std::uint32_t row = comm_rows_[find_comm_key({place.process, fields.comm})];
    const bool same = row != NONE && result_.comms.global_rank[row] == fields.global_rank;
    if (row != NONE && !same) {
        fields.global_rank = -1;
    }
}

KnownCall Collectives::store(CollLine& fields, const Place& place, std::uint8_t source) {
    if (place.cut && fields.ends_open) [[unlikely]] {
        distrust_cut_tail(fields, place);
    }
    const std::uint32_t op = find_op(fields.op);
    const Signature signature{fields.count,    op,
                              fields.datatype, std::min(fields.redop, first_custom_redop),
                              fields.root,     fields.nranks,
                              fields.flags};
    const KnownCall call{find_comm_key({place.process, fields.comm}),
                         {fields.nranks, fields.global_rank},
                         result_.signatures.intern(signature),
                         find_slot(fields, layouts_[op]),
                         fields.task};
    push(call, fields.op_count, place, source);
    return call;
}

void Collectives::push(const KnownCall& call, std::uint64_t op_count, const Place& place,
                       std::uint8_t source) {
    Calls& calls = result_.calls;
    calls.comm.push(find_comm(call.comm_key, call.ranks));
    calls.sig.push(call.sig);
    calls.op_count.push(op_count);
    calls.slot.push(call.slot);
    calls.task.push(call.task);
    calls.thread.push(place.thread);
    calls.line.push(place.line);
    calls.source.push(source);
    result_.count(source == source_coll ? Counter::coll : Counter::call);
}

std::uint32_t Collectives::find_op(std::string_view name) {
    const std::uint32_t op = result_.ops.intern(name);
    while (layouts_.size() < result_.ops.strings().size()) {
        layouts_.push_back(layout_of(result_.ops.strings()[layouts_.size()]));
    }
    return op;
}

std::uint32_t Collectives::find_comm_key(const CommKey& key) {
    const std::uint32_t index = comm_keys_.intern(key);
    if (index == comm_rows_.size()) {
        comm_rows_.push_back(NONE);
    }
    return index;
}

// The latest generation of a key's communicator, or another one where that does not agree.
std::uint32_t Collectives::find_comm(std::uint32_t key, const Ranks& ranks) {
    const std::uint32_t row = comm_rows_[key];
    if (row != NONE && agrees(row, ranks)) [[likely]] {
        learn(row, ranks);
        return row;
    }
    return add_comm(key, ranks);
}

bool Collectives::agrees(std::uint32_t row, const Ranks& ranks) const {
    const std::int32_t nranks = result_.comms.nranks[row];
    const std::int32_t rank = result_.comms.global_rank[row];
    return (nranks == ranks.nranks || nranks < 0 || ranks.nranks < 0) &&
           (rank == ranks.global_rank || rank < 0 || ranks.global_rank < 0);
}

void Collectives::learn(std::uint32_t row, const Ranks& ranks) {
    std::int32_t& nranks = result_.comms.nranks[row];
    std::int32_t& rank = result_.comms.global_rank[row];
    nranks = ranks.nranks < 0 ? nranks : ranks.nranks;
    rank = ranks.global_rank < 0 ? rank : ranks.global_rank;
}

// Another generation of the key's communicator.
std::uint32_t Collectives::add_comm(std::uint32_t key, const Ranks& ranks) {
    Comms& comms = result_.comms;
    const std::uint32_t before = comm_rows_[key];
    const auto row = static_cast<std::uint32_t>(comms.ptr.size());
    const CommKey& names = comm_keys_.keys()[key];
    comms.process.push(static_cast<std::uint32_t>(names.process));
    comms.ptr.push(names.ptr);
    comms.nranks.push(ranks.nranks);
    comms.global_rank.push(ranks.global_rank);
    comms.generation.push(before == NONE ? 0 : comms.generation[before] + 1);
    comm_rows_[key] = row;
    return row;
}

std::int32_t Collectives::find_slot(const CollLine& fields, Layout layout) {
    const bool no_count = fields.count == 0 && (fields.flags & POINTERS_ONLY) == 0;
    if (layout == Layout::unknown || fields.sendbuff == 0 || fields.recvbuff == 0 || no_count) {
        return slot_unknown;
    }
    if (layout == Layout::same) {
        return fields.sendbuff == fields.recvbuff ? 0 : slot_none;
    }
    std::uint64_t block = 0;
    const auto datatype = static_cast<std::size_t>(fields.datatype);
    if (fields.datatype < 0 || datatype >= item_bytes.size() ||
        __builtin_mul_overflow(fields.count, item_bytes[datatype], &block) || block == 0) {
        return slot_unknown;
    }
    const bool send_inside = layout == Layout::send_inside;
    const std::uint64_t inside = send_inside ? fields.sendbuff : fields.recvbuff;
    const std::uint64_t whole = send_inside ? fields.recvbuff : fields.sendbuff;
    const std::int32_t ranks = fields.nranks > 0 ? fields.nranks : slot_limit;
    if (inside < whole || (inside - whole) % block != 0 ||
        (inside - whole) / block >= static_cast<std::uint64_t>(ranks)) {
        return slot_none;
    }
    return static_cast<std::int32_t>((inside - whole) / block);
}

Collectives::Layout Collectives::layout_of(std::string_view name) {
    std::string plain = lower(name);
    for (const std::string_view prefix : {"mscclpp_", "mscclfunc", "nccl"}) {
        if (plain.starts_with(prefix)) {
            plain.erase(0, prefix.size());
        }
    }
    if (plain.starts_with("alltoall") || plain.starts_with("allreduce") || plain == "broadcast" ||
        plain == "bcast" || plain == "reduce") {
        return Layout::same;
    }
    if (plain == "allgather" || plain == "gather") {
        return Layout::send_inside;
    }
    if (plain == "reducescatter" || plain == "scatter") {
        return Layout::recv_inside;
    }
    return Layout::unknown;
}

}  // namespace logscan
