#include "collective.h"

#include <algorithm>

#include "text.h"

namespace logscan {

namespace {

// Bits of Fields::seen.
enum Key : std::uint32_t {
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
constexpr std::uint32_t obligatory = OP_COUNT | COUNT | DATATYPE | COMM | NRANKS;
constexpr std::uint32_t tail_keys = COMM | NRANKS | STREAM | TASK | GLOBAL_RANK;

constexpr std::uint8_t source_coll = 0;
constexpr std::uint8_t source_call = 1;
constexpr std::int32_t slot_none = -1;
constexpr std::int32_t slot_unknown = -2;
constexpr std::int32_t first_custom_redop = 5;
constexpr std::int32_t slot_limit = 65536;  // where nranks is not known
constexpr std::size_t name_bytes = 48;

// Bytes of an element by ncclDataType_t, nccl.h 2.24 and rccl.h.
constexpr std::array<std::uint64_t, 12> item_bytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

inline bool is_name_char(char c) {
    return static_cast<unsigned char>((c | 0x20) - 'a') < 26 || is_digit(c) || c == '_';
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return out;
}

}  // namespace

struct Collectives::Fields {
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
    const Tail* known_tail = nullptr;
    const char* tail_at = nullptr;       // where the text after "comm " begins
    std::uint32_t seen_before_tail = 0;  // `seen` there

    bool has(std::uint32_t keys) const { return (seen & keys) == keys; }

    // Inlined by force, as the readers below: calls cost a tenth of the scan.
    // Notes that `key`'s value was read; false where the record cannot go on.
    [[gnu::always_inline]] bool read(Cursor& in, std::uint32_t key, bool ok) {
        if (ok && in.at_delimiter()) [[likely]] {
            if ((seen & key & ~static_cast<std::uint32_t>(IGNORED)) != 0) {
                return clean = false;  // the key again: the rest belongs to another record
            }
            seen |= key;
            ends_open = in.done();
            return true;
        }
        bad_number = !in.done();
        return clean = false;
    }

    bool read_count(Cursor& in) {
        const bool negative = in.take("-");  // %zi of a size_t
        const bool ok = in.take_decimal(count);
        count = negative ? 0 - count : count;
        return read(in, COUNT, ok);
    }

    [[gnu::always_inline]] bool read_pointer(Cursor& in, std::uint32_t key, std::uint64_t& value) {
        bool nil = false;
        const bool ok = in.take_pointer(value, nil);
        flags |= key == ACC ? COUNT_MODULO_32 | (nil ? 0 : HAS_ACCUMULATOR) : 0;
        return read(in, key, ok);
    }

    [[gnu::always_inline]] bool read_int(Cursor& in, std::uint32_t key, std::int32_t& value) {
        return read(in, key, in.take_int32(value));
    }

    bool read_comm(Cursor& in) {
        if (known_tail != nullptr && in.rest() == known_tail->text &&
            (seen & known_tail->seen) == 0) [[likely]] {
            read_tail(in, *known_tail);
            return true;
        }
        tail_at = in.p;
        seen_before_tail = seen;
        bool nil = false;
        // Meta's NCCLX prints the communicator's hash in decimal: "comm 1234567890 [nranks=8".
        const bool ok = in.left() > 0 && is_digit(*in.p) && !in.rest().starts_with("0x")
                            ? in.take_decimal(comm)
                            : in.take_pointer(comm, nil);
        return read(in, COMM, ok);
    }

    void read_tail(Cursor& in, const Tail& tail) {
        comm = tail.comm;
        nranks = tail.nranks;
        task = tail.task;
        global_rank = tail.global_rank;
        ends_open = tail.ends_open;
        seen |= tail.seen;
        in.p = in.end;
    }

    // "[nranks=8]", or "[nranks=8, localRanks=8]" of NCCLX
    bool read_nranks(Cursor& in) {
        const bool ok = in.take_int32(nranks);
        while (!in.done() && *in.p != ']' &&
               (is_name_char(*in.p) || find(", =", {in.p, 1}) != npos)) {
            ++in.p;
        }
        const bool closed = in.take("]");
        if (ok && !closed && in.done()) {
            return clean = false;
        }
        return read(in, NRANKS, ok && closed);
    }

    bool read_ignored(Cursor& in, std::uint32_t key) {
        in.skip_word();
        seen |= key;
        return true;
    }

    bool read_usual_keys(Cursor& in);
    bool read_key(Cursor& in);
    bool read_rare_key(Cursor& in);
};

// The keys up to "comm " in the order in which all releases but a few print them; false for another
// text. What it has read until then counts for nothing.
bool Collectives::Fields::read_usual_keys(Cursor& in) {
    seen = OP_COUNT | SENDBUFF | RECVBUFF | COUNT | DATATYPE | REDOP | ROOT;
    return in.take("opCount ") && in.take_hex(op_count) && in.take(" sendbuff 0x") &&
           in.take_hex(sendbuff) && in.take(" recvbuff 0x") && in.take_hex(recvbuff) &&
           in.take(" count ") && in.take_decimal(count) && in.take(" datatype ") &&
           in.take_int32(datatype) && in.take(" op ") && in.take_int32(redop) &&
           in.take(" root ") && in.take_int32(root) && in.take(" comm ") && read_comm(in);
}

// One "key value" pair; false at the end of what can be this record.
bool Collectives::Fields::read_key(Cursor& in) {
    std::uint64_t ignored = 0;
    switch (*in.p) {
        case 's':
            if (in.take("sendbuff ")) return read_pointer(in, SENDBUFF, sendbuff);
            if (in.take("stream ")) return read_pointer(in, STREAM, ignored);
            break;
        case 'r':
            if (in.take("recvbuff ")) return read_pointer(in, RECVBUFF, recvbuff);
            if (in.take("root ")) return read_int(in, ROOT, root);
            break;
        case 'c':
            if (in.take("count ")) return read_count(in);
            if (in.take("comm ")) return read_comm(in);
            break;
        case 'd':
            if (in.take("datatype ")) return read_int(in, DATATYPE, datatype);
            break;
        case 'o':
            if (in.take("op ")) return read_int(in, REDOP, redop);
            if (in.take("opCount ")) return read(in, OP_COUNT, in.take_hex(op_count));
            break;
        case '[':
            if (in.take("[nranks=")) return read_nranks(in);
            break;
        case 't':
            if (in.take("task ")) return read_int(in, TASK, task);
            break;
        case 'g':
            if (in.take("globalrank ")) return read_int(in, GLOBAL_RANK, global_rank);
            break;
        case 'a':
            if (in.take("acc ")) return read_pointer(in, ACC, ignored);
            break;
        default:
            break;
    }
    return read_rare_key(in);
}

bool Collectives::Fields::read_rare_key(Cursor& in) {
    // RCCL of ROCm 4.0, AllToAllv: "sendcounts 0x1 sdispls 0x2 recvbuff 0x3 recvcounts 0x4 rdispls
    // 0x5 datatype 7 typesize 4"; the counts are arrays, of which the line has the addresses only.
    if (in.take("sendcounts ")) {
        flags |= POINTERS_ONLY;
        return read_ignored(in, SENDCOUNTS);
    }
    // RCCL of ROCm 5.2, in a group: "devRedOp 0 isPtr 0 scaler 0"
    if (in.take("sdispls ") || in.take("recvcounts ") || in.take("rdispls ") ||
        in.take("typesize ") || in.take("devRedOp ") || in.take("isPtr ") || in.take("scaler ")) {
        return read_ignored(in, IGNORED);
    }
    if (in.take("stream=")) {  // NCCLX
        return read_ignored(in, STREAM);
    }
    if (in.take("peer ")) {  // NCCLX: the root of a Send or Recv
        return read_int(in, ROOT, root);
    }
    clean = false;
    in.skip_word();
    return true;
}

bool Collectives::is_call(std::string_view message) {
    std::size_t colon = 0;
    const std::size_t longest = std::min(message.size(), name_bytes);
    while (colon < longest && is_name_char(message[colon])) {
        ++colon;
    }
    return colon > 0 && message.substr(colon).starts_with(": opCount ");
}

// RCCL 2.18 (ROCm 6): "AllReduce: opCount 3 sendbuff 0x7f8bccf79600 recvbuff 0x7f8bccf79600 count
// 268435456 datatype 6 op 0 root 0 comm 0xaef8a00 [nranks=8] stream 0xac16b80 task 0 globalrank 0"
Collectives::Fields Collectives::parse(std::string_view message, const Tail* tail) {
    const std::size_t colon = message.find(':');
    Fields fields{.op = message.substr(0, colon), .known_tail = tail};
    Cursor in(message.substr(colon + 2));
    const Cursor begin = in;
    // Measured: going by the first letter of each key takes a fifth of the scan more.
    if (!fields.read_usual_keys(in)) [[unlikely]] {
        fields = {.op = message.substr(0, colon), .known_tail = tail};
        in = begin;
    }
    in.skip_blanks();
    while (!in.done() && fields.read_key(in)) {
        in.skip_blanks();
    }
    return fields;
}

Outcome Collectives::judge(const Fields& fields) {
    const std::uint32_t needed = fields.has(SENDCOUNTS) ? obligatory & ~COUNT : obligatory;
    if (fields.has(needed)) {
        const bool whole = fields.clean && fields.has(STREAM);
        return whole ? Outcome::stored : Outcome::stored_unsure;
    }
    return fields.bad_number ? Outcome::invalid_number : Outcome::torn;
}

Outcome Collectives::coll_if_whole(std::string_view message, const Place& place) {
    Tail& tail = tails_[place.thread % tails_.size()];
    Fields fields = parse(message, tail.thread == place.thread ? &tail : nullptr);
    const Outcome outcome = judge(fields);
    if (outcome == Outcome::stored) [[likely]] {
        if (fields.tail_at != nullptr) [[unlikely]] {
            remember_tail(fields, {fields.tail_at, message.data() + message.size()}, place, tail);
        }
        store(fields, place, source_coll);
    }
    return outcome;
}

void Collectives::remember_tail(const Fields& fields, std::string_view text, const Place& place,
                                Tail& tail) {
    const std::uint32_t seen = fields.seen & ~fields.seen_before_tail;
    if ((seen & ~tail_keys) != 0) {
        return;
    }
    tail.text.assign(text);  // into the memory that it has
    tail.thread = place.thread;
    tail.seen = seen;
    tail.comm = fields.comm;
    tail.nranks = fields.nranks;
    tail.task = fields.task;
    tail.global_rank = fields.global_rank;
    tail.ends_open = fields.ends_open;
}

Outcome Collectives::coll(std::string_view message, const Place& place) {
    Fields fields = parse(message, nullptr);
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
    Fields fields;
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
void Collectives::distrust_cut_tail(Fields& fields, const Place& place) {
    if (!fields.has(GLOBAL_RANK)) {
        fields.task = -1;
        return;
    }
    const std::uint32_t row = comm_rows_[find_comm_key({place.process, fields.comm})];
    const bool same = row != NONE && result_.comms.global_rank[row] == fields.global_rank;
    distrusted_ = distrusted_ || !same;
    if (row != NONE && !same) {
        fields.global_rank = -1;
    }
}

void Collectives::store(Fields& fields, const Place& place, std::uint8_t source) {
    if (place.cut && fields.ends_open) [[unlikely]] {
        distrust_cut_tail(fields, place);
    }
    const std::uint32_t op = find_op(fields.op);
    const Signature signature{fields.count,    op,
                              fields.datatype, std::min(fields.redop, first_custom_redop),
                              fields.root,     fields.nranks,
                              fields.flags};
    Calls& calls = result_.calls;
    calls.comm.push(find_comm(fields, place));
    calls.sig.push(result_.signatures.intern(signature));
    calls.op_count.push(fields.op_count);
    calls.slot.push(find_slot(fields, layouts_[op]));
    calls.task.push(fields.task);
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

std::uint32_t Collectives::find_comm(const Fields& fields, const Place& place) {
    const std::uint32_t key = find_comm_key({place.process, fields.comm});
    const Ranks ranks{fields.nranks, fields.global_rank};
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

std::int32_t Collectives::find_slot(const Fields& fields, Layout layout) {
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
