#include "coll_line.h"

#include <utility>

#include "text.h"

namespace logscan {

namespace {

using namespace coll_key;

// A line while it is read.
struct Reader : CollLine {
    Reader(std::string_view name, const KnownTail* tail) {
        op = name;
        known_tail = tail;
    }

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

    // Tries the keys of `int_keys`; `whole` becomes the result of `read` for the one found here.
    template <std::size_t... Is>
    [[gnu::always_inline]] bool read_int(Cursor& in, bool& whole, std::index_sequence<Is...>) {
        return (read_int<int_keys[Is].text.size()>(in, whole, int_keys[Is]) || ...);
    }

    template <std::size_t length>
    [[gnu::always_inline]] bool read_int(Cursor& in, bool& whole, const IntKey& key) {
        if (!in.take<length>(key.text)) {
            return false;
        }
        whole = read(in, key.bit, in.take_int32(this->*key.value));
        return true;
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

    void read_tail(Cursor& in, const KnownTail& tail) {
        static_cast<CollTail&>(*this) = tail.values;
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
bool Reader::read_usual_keys(Cursor& in) {
    seen = OP_COUNT | SENDBUFF | RECVBUFF | COUNT | DATATYPE | REDOP | ROOT;
    return in.take("opCount ") && in.take_hex(op_count) && in.take(" sendbuff 0x") &&
           in.take_hex(sendbuff) && in.take(" recvbuff 0x") && in.take_hex(recvbuff) &&
           in.take(" count ") && in.take_decimal(count) && in.take(" datatype ") &&
           in.take_int32(datatype) && in.take(" op ") && in.take_int32(redop) &&
           in.take(" root ") && in.take_int32(root) && in.take(" comm ") && read_comm(in);
}

// One "key value" pair; false at the end of what can be this record.
bool Reader::read_key(Cursor& in) {
    std::uint64_t ignored = 0;
    switch (*in.p) {
        case 's':
            if (in.take("sendbuff ")) return read_pointer(in, SENDBUFF, sendbuff);
            if (in.take("stream ")) return read_pointer(in, STREAM, ignored);
            break;
        case 'r':
            if (in.take("recvbuff ")) return read_pointer(in, RECVBUFF, recvbuff);
            break;
        case 'c':
            if (in.take("count ")) return read_count(in);
            if (in.take("comm ")) return read_comm(in);
            break;
        case 'o':
            if (in.take("opCount ")) return read(in, OP_COUNT, in.take_hex(op_count));
            break;
        case '[':
            if (in.take("[nranks=")) return read_nranks(in);
            break;
        case 'a':
            if (in.take("acc ")) return read_pointer(in, ACC, ignored);
            break;
        default:
            break;
    }
    bool whole = false;
    if (read_int(in, whole, std::make_index_sequence<int_keys.size()>())) {
        return whole;
    }
    return read_rare_key(in);
}

bool Reader::read_rare_key(Cursor& in) {
    // RCCL of ROCm 4.0, AllToAllv: "sendcounts 0x1 sdispls 0x2 recvbuff 0x3 recvcounts 0x4 rdispls
    // 0x5 datatype 7 typesize 4"; the counts are arrays, and the line has only their addresses.
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
    clean = false;
    in.skip_word();
    return true;
}

}  // namespace

// RCCL 2.18 (ROCm 6): "AllReduce: opCount 3 sendbuff 0x7f8bccf79600 recvbuff 0x7f8bccf79600 count
// 268435456 datatype 6 op 0 root 0 comm 0xaef8a00 [nranks=8] stream 0xac16b80 task 0 globalrank 0"
CollLine parse_coll(std::string_view message, const KnownTail* tail) {
    const std::size_t colon = message.find(':');
    Reader fields(message.substr(0, colon), tail);
    Cursor in(message.substr(colon + 2));
    const Cursor begin = in;
    // Measured: going by the first letter of each key takes a fifth of the scan more.
    if (!fields.read_usual_keys(in)) [[unlikely]] {
        fields = Reader(fields.op, tail);
        in = begin;
    }
    in.skip_blanks();
    while (!in.done() && fields.read_key(in)) {
        in.skip_blanks();
    }
    return fields;
}

}  // namespace logscan
