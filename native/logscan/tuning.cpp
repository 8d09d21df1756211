#include "tuning.h"

#include <charconv>
#include <limits>

namespace logscan {

namespace {

enum Kind : std::uint8_t { numeric_line, named_line, symmetric, copy_engine, hierarchical };

constexpr std::size_t head_bytes = 96;

// NCCL_ALGO_* and NCCL_PROTO_* of NCCL 2.23 in the spelling of NCCL 2.24 and later.
constexpr std::string_view algorithms[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
constexpr std::string_view protocols[] = {"LL", "LL128", "SIMPLE"};

template <std::size_t N>
std::string code_name(const std::string_view (&names)[N], std::int64_t code) {
    return code >= 0 && code < static_cast<std::int64_t>(N)
               ? std::string(names[static_cast<std::size_t>(code)])
               : std::to_string(code);
}

}  // namespace

struct Tuning::Row {
    std::uint8_t kind = named_line;
    std::uint32_t op = NONE;
    std::uint64_t bytes = 0;
    std::uint32_t algorithm = NONE;
    std::uint32_t protocol = NONE;
    std::uint32_t kernel = NONE;
    std::int32_t channels = -1;
    double time_us = std::numeric_limits<double>::quiet_NaN();
    std::uint64_t comm_ptr = 0;
};

// NCCL 2.24: "AllReduce: 536870912 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}"
// NCCL 2.20: "4 Bytes -> Algo 1 proto 0 time 54.700001"
// NCCL 2.27: "AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512"
// NCCL 2.29: "AllGather [Copy Engine]: 8 Bytes -> cudaMemcpyBatch"
// NCCL 2.30: "AllGather [Hierarchical CE]: 8 Bytes -> RMA proxy + CE"
Outcome Tuning::parse(std::string_view message, const Place& place) {
    const std::size_t bytes_at = find(message.substr(0, head_bytes), " Bytes -> ");
    if (bytes_at == npos) {
        return Outcome::other;
    }
    Row row;
    const std::string_view head = message.substr(0, bytes_at);
    const std::size_t colon = head.find(": ");
    Cursor digits(colon == npos ? head : head.substr(colon + 2));
    if (!digits.take_decimal(row.bytes) || !digits.done()) {
        return Outcome::invalid_number;
    }
    std::string_view name = colon == npos ? std::string_view() : head.substr(0, colon);
    if (const std::size_t bracket = name.find(" ["); bracket != npos) {
        const std::string_view engine = name.substr(bracket);
        row.kind = engine.starts_with(" [Sym")    ? symmetric
                   : engine.starts_with(" [Copy") ? copy_engine
                                                  : hierarchical;
        name = name.substr(0, bracket);
    }
    Cursor in(message.substr(bytes_at + std::string_view(" Bytes -> ").size()));
    if (!choice(in, row)) {
        return Outcome::torn;
    }
    row.op = name.empty() ? NONE : result_.ops.intern(name);
    store(row, place);
    return Outcome::stored;
}

bool Tuning::choice(Cursor& in, Row& row) {
    if (row.kind == symmetric) {
        if (!in.take("Kernel ")) {
            return false;
        }
        const std::string_view kernel = in.take_word();
        const bool ok = in.take(" nchannels ") && in.take_int32(row.channels);
        row.kernel = ok ? result_.tuning_names.intern(kernel) : NONE;
        return ok;
    }
    if (row.kind == copy_engine || row.kind == hierarchical) {
        std::string_view text = in.rest();
        while (!text.empty() && is_blank(text.back())) {
            text.remove_suffix(1);
        }
        row.kernel = text.empty() ? NONE : result_.tuning_names.intern(text);
        return !text.empty();
    }
    if (!in.take("Algo ") || in.done()) {
        return false;
    }
    if (is_digit(*in.p) || *in.p == '-') {
        std::int64_t algorithm = 0;
        return in.take_signed(algorithm) && numeric(in, row, algorithm);
    }
    return named(in, row);
}

bool Tuning::named(Cursor& in, Row& row) {
    const std::string_view algorithm = in.take_word();
    if (!in.take(" proto ")) {
        return false;
    }
    const std::string_view protocol = in.take_word();
    std::int32_t low = 0;
    std::int32_t high = 0;
    if (!in.take(" channel{Lo..Hi}={") || !in.take_int32(low) || !in.take("..") ||
        !in.take_int32(high) || !in.take("}")) {
        return false;
    }
    row.algorithm = result_.tuning_names.intern(algorithm);
    row.protocol = result_.tuning_names.intern(protocol);
    const std::int64_t channels = static_cast<std::int64_t>(high) - low + 1;
    row.channels = channels > 0 && channels <= INT32_MAX ? static_cast<std::int32_t>(channels) : -1;
    bool nil = false;
    in.skip_blanks();
    if (in.take("comm ") && !in.take_pointer(row.comm_ptr, nil)) {
        row.comm_ptr = 0;
    }
    return true;
}

bool Tuning::numeric(Cursor& in, Row& row, std::int64_t algorithm) {
    std::int64_t protocol = 0;
    if (!in.take(" proto ") || !in.take_signed(protocol) || !in.take(" time ")) {
        return false;
    }
    const std::string_view text = in.take_word();
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), row.time_us);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
        return false;
    }
    row.kind = numeric_line;
    row.algorithm = result_.tuning_names.intern(code_name(algorithms, algorithm));
    row.protocol = result_.tuning_names.intern(code_name(protocols, protocol));
    return true;
}

void Tuning::store(const Row& row, const Place& place) {
    Tunings& tunings = result_.tunings;
    tunings.process.push(place.process);
    tunings.thread.push(place.thread);
    tunings.line.push(place.line);
    tunings.kind.push(row.kind);
    tunings.op.push(row.op);
    tunings.bytes.push(row.bytes);
    tunings.algorithm.push(row.algorithm);
    tunings.protocol.push(row.protocol);
    tunings.kernel.push(row.kernel);
    tunings.channels.push(row.channels);
    tunings.time_us.push(row.time_us);
    tunings.comm_ptr.push(row.comm_ptr);
    result_.count(Counter::tuning);
}

}  // namespace logscan
