#include "kernel_trace.h"

#include "text.h"

namespace logscan {

namespace {

enum Kind : std::uint8_t { KL, CL, CE, PE, KE, KA };

constexpr std::int64_t ns_per_second = 1'000'000'000;
constexpr std::int64_t seconds_limit = INT64_MAX / ns_per_second;

// Bits of Row::seen.
enum Key : std::uint8_t { BUS_ID = 1, NRANKS = 2, WORK = 4, BROKEN = 8 };

}  // namespace

struct KernelTrace::Row {
    std::int64_t time_ns = 0;
    std::int32_t rank = -1;
    std::int32_t block = -1;
    std::int32_t channel = -1;
    std::int32_t thread = -1;
    std::uint64_t op_count = 0;
    std::uint64_t op_count2 = UINT64_MAX;
    std::string_view name;
    std::int64_t bus_id = -1;
    std::int32_t nranks = -1;
    std::uint64_t comm_ptr = 0;
    std::int32_t root = -1;
    std::int32_t nc = -1;
    std::uint8_t kind = KL;
    std::uint8_t seen = 0;
};

// RCCL 2.18: "## [170260.347287] [07:00] 000001 KL HWID 42300700 ncclDevFunc_AllReduce_RING_LL_Sum_
// double nw 4 bi 0 nc 0 busId df000 nRanks 8" and "## [170260.348516] [06:00] 000001 KE busId bf000
// nRanks 8"
Outcome KernelTrace::parse(std::string_view message, const Place& place) {
    Cursor in(message);
    Row row;
    if (!header(in, row)) {
        return Outcome::torn;
    }
    // RCCL 2.9 and later: "## [1.000000] [00:00] L:0123 DT 00000001 0000000000000000 ..."
    if (in.take("L:")) {
        result_.count(Counter::data_trace);
        return Outcome::other;
    }
    if (!op_counts(in, row) || !kind(in, row)) {
        return Outcome::torn;
    }
    body(in, row);
    if (!complete(row, place.cut)) {
        return Outcome::torn;
    }
    store(row, place);
    return Outcome::stored;
}

// "## [  1234.347287] [07:00] " with seconds of the device's clock, blank or zero padded.
bool KernelTrace::header(Cursor& in, Row& row) {
    if (!in.take("## [")) {
        return false;
    }
    in.skip_blanks();
    std::uint64_t seconds = 0;
    if (!in.take_decimal(seconds) || seconds > static_cast<std::uint64_t>(seconds_limit) - 1 ||
        !in.take(".")) {
        return false;
    }
    std::int64_t fraction = 0;
    std::int64_t unit = ns_per_second / 10;
    for (; !in.done() && is_digit(*in.p); ++in.p, unit /= 10) {
        fraction += (*in.p - '0') * unit;
    }
    row.time_ns = static_cast<std::int64_t>(seconds) * ns_per_second + fraction;
    if (!in.take("] ")) {
        return false;
    }
    const bool ok = position(in, row);
    in.skip_blanks();
    return ok;
}

// "[rank:block]" to 2.21, "[rank:block:channel]" in 2.22, later "[rank:block-channel:thread]" with
// the thread in hexadecimal.
bool KernelTrace::position(Cursor& in, Row& row) {
    if (!in.take("[") || !in.take_int32(row.rank) || !in.take(":") || !in.take_int32(row.block)) {
        return false;
    }
    if (in.take(":")) {
        return in.take_int32(row.channel) && in.take("]");
    }
    if (in.take("-")) {
        std::uint64_t thread = 0;
        const bool ok = in.take_int32(row.channel) && in.take(":") && in.take_hex(thread);
        row.thread = static_cast<std::int32_t>(thread & INT32_MAX);
        return ok && in.take("]");
    }
    return in.take("]");
}

// "000001", or "000001-000002" (receive, send) where the work is point to point.
bool KernelTrace::op_counts(Cursor& in, Row& row) {
    if (!in.take_hex(row.op_count)) {
        return false;
    }
    if (in.take("-") && !in.take_hex(row.op_count2)) {
        return false;
    }
    const bool whole = !in.done() && is_blank(*in.p);
    in.skip_blanks();
    return whole;
}

bool KernelTrace::kind(Cursor& in, Row& row) {
    struct Word {
        std::string_view text;
        Kind kind;
    };
    static constexpr Word words[] = {{"KL", KL}, {"KE", KE}, {"CL", CL},   {"CE", CE},
                                     {"PE", PE}, {"KA", KA}, {"Abort", KA}};
    const std::string_view found = in.take_word();
    for (const Word& word : words) {
        if (found == word.text) {
            row.kind = word.kind;
            return true;
        }
    }
    return false;
}

// The rest is words in an order that differs by release. The name is the first that is neither a
// known key nor a number; "Send 1 -> 1/0 ConnIdx/LL 1/0 -> Recv 1" of transfers comes after it.
void KernelTrace::body(Cursor& in, Row& row) {
    for (in.skip_blanks(); !in.done(); in.skip_blanks()) {
        const std::string_view word = in.take_word();
        if (pair(in, row, word)) {
            continue;
        }
        const bool letter =
            (word[0] >= 'A' && word[0] <= 'Z') || (word[0] >= 'a' && word[0] <= 'z');
        if (row.name.empty() && letter && row.kind != KA) {
            row.name = word;
        }
    }
}

// Reads the value of a key; true when `word` was one.
bool KernelTrace::pair(Cursor& in, Row& row, std::string_view word) {
    if (word.starts_with("td->type:")) {  // ends every line since May 2025
        row.seen |= WORK;
        return true;
    }
    if (word == "HWID" || word == "hwid" || word == "nw" || word == "nt" || word == "bi" ||
        word == "dt" || word == "cb" || word == "next") {
        in.skip_blanks();
        if (word != "next") {
            in.skip_word();
        }
        row.seen |= word == "dt" ? WORK : 0;
        return true;
    }
    bool nil = false;
    bool ok = true;
    std::uint64_t bus = 0;
    in.skip_blanks();
    if (word == "busId") {
        ok = in.take_hex(bus) && bus <= INT64_MAX;
        row.bus_id = ok ? static_cast<std::int64_t>(bus) : -1;
        row.seen |= BUS_ID;
    } else if (word == "nRanks") {
        ok = in.take_int32(row.nranks);
        row.seen |= NRANKS;
    } else if (word == "root") {
        ok = in.take_int32(row.root);
    } else if (word == "nc") {
        ok = in.take_int32(row.nc);
        row.seen |= WORK;
    } else if (word == "comm") {
        ok = in.take_pointer(row.comm_ptr, nil);
    } else if (word == "funcIndex") {  // RCCL 2.5-2.8 print the function's number only
        const std::string_view number = in.take_word();
        row.name = {word.data(),
                    static_cast<std::size_t>(number.data() + number.size() - word.data())};
        ok = !number.empty();
        row.seen |= WORK;
    } else {
        return false;
    }
    row.seen |= ok && in.at_delimiter() ? 0 : BROKEN;
    return true;
}

// A line cut inside its name or its last number must not pass for a whole one: what releases print
// last is nRanks, or nc, dt or funcIndex before busId was added in 2021. RCCL 2.22 ends CL with the
// name: "CL 3 ncclDevFunc_AllGather_RING_LL_Sum_i8".
bool KernelTrace::complete(const Row& row, bool cut) {
    const bool identified = (row.seen & BUS_ID) == 0 || (row.seen & NRANKS) != 0;
    if ((row.seen & BROKEN) != 0 || !identified) {
        return false;
    }
    if (row.kind == KE || row.kind == KA) {
        return true;
    }
    const bool ended = (row.seen & (NRANKS | WORK)) != 0 || (row.kind == CL && !cut);
    return !row.name.empty() && ended;
}

void KernelTrace::store(const Row& row, const Place& place) {
    Kernels& kernels = result_.kernels;
    kernels.process.push(place.process);
    kernels.kind.push(row.kind);
    kernels.time_ns.push(row.time_ns);
    kernels.rank.push(row.rank);
    kernels.block.push(row.block);
    kernels.channel.push(row.channel);
    kernels.thread.push(row.thread);
    kernels.op_count.push(row.op_count);
    kernels.op_count2.push(row.op_count2);
    kernels.name.push(row.name.empty() ? NONE : result_.kernel_names.intern(row.name));
    kernels.bus_id.push(row.bus_id);
    kernels.nranks.push(row.nranks);
    kernels.comm_ptr.push(row.comm_ptr);
    kernels.root.push(row.root);
    kernels.nc.push(row.nc);
    kernels.line.push(place.line);
    result_.count(Counter::kernel);
}

}  // namespace logscan
