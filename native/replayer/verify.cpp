#include "verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace collscope {

namespace {

constexpr unsigned char poison = 0xA5;
constexpr std::size_t fill_block_bytes = std::size_t{1} << 20;
// Compared at once: fits the cache next to what it is compared with.
constexpr std::size_t expected_block_bytes = std::size_t{1} << 16;

bool reduces(Op op) { return op == Op::AllReduce || op == Op::ReduceScatter || op == Op::Reduce; }

// A prime that divides no block of the class: blocks would otherwise all begin with the same
// number, and two of them could change places unseen.
int period_of(const Class& cls) {
    constexpr std::array<int, 4> primes{Pattern::default_period, 1013, 1019, 1021};
    const auto divides_one = [&](int prime) {
        const auto divides = [&](std::uint64_t count) {
            return count != 0 && count % static_cast<std::uint64_t>(prime) == 0;
        };
        const auto in_list = [&](const std::vector<Transfer>& list) {
            return std::any_of(list.begin(), list.end(),
                               [&](const Transfer& transfer) { return divides(transfer.count); });
        };
        return divides(cls.count) ||
               std::any_of(cls.transfers.begin(), cls.transfers.end(), in_list);
    };
    const auto free = std::find_if_not(primes.begin(), primes.end(), divides_one);
    return free != primes.end() ? *free : primes.front();
}

// Whole periods of at least `bytes`, or fewer elements where there are no more.
std::size_t block_elements(const Pattern& pattern, std::uint64_t count, std::size_t bytes) {
    const std::size_t period = static_cast<std::size_t>(pattern.period());
    const std::size_t period_bytes = period * itemsize(pattern.datatype());
    const std::size_t periods = (bytes + period_bytes - 1) / period_bytes;
    return static_cast<std::size_t>(std::min<std::uint64_t>(count, periods * period));
}

std::string text_of(double number) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", number);
    return text.data();
}

// Compares one piece of the receive data with what it should be.
class PieceCheck {
public:
    PieceCheck(const Pattern& pattern, const Piece& piece, Checked& result)
        : pattern_(pattern),
          piece_(piece),
          result_(result),
          size_(itemsize(pattern.datatype())),
          expected_(pattern.bytes(piece.source, piece.index,
                                  block_elements(pattern, piece.count, expected_block_bytes))),
          accepted_(expected_) {}

    // `first`: element of the piece that `got` begins with.
    void compare(const std::byte* got, std::uint64_t first, std::size_t elements) {
        result_.n_checked += elements;
        const std::uint64_t block = expected_.size() / size_;
        while (elements > 0) {
            const auto begin = static_cast<std::size_t>(first % block);
            const std::size_t n = std::min<std::size_t>(elements, block - begin);
            if (std::memcmp(got, accepted_.data() + begin * size_, n * size_) != 0) {
                count_wrong(got, begin, first, n);
            }
            got += n * size_;
            first += n;
            elements -= n;
        }
    }

private:
    bool agrees(const std::byte* got, std::size_t at) const {
        const std::byte* expected = expected_.data() + at * size_;
        if (std::memcmp(got, expected, size_) == 0) {
            return true;
        }
        if (pattern_.exact() || piece_.source != from_reduction) {
            return false;
        }
        // Not the decoded bytes, which are rounded already.
        const double wanted = pattern_.reduced(piece_.index + at);
        return std::abs(pattern_.number(got) - wanted) <= pattern_.tolerance(wanted);
    }

    void count_wrong(const std::byte* got, std::size_t begin, std::uint64_t first, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            const std::byte* element = got + i * size_;
            if (!agrees(element, begin + i)) {
                ++result_.n_wrong;
                if (result_.first_wrong.empty()) {
                    describe(element, begin + i, first + i);
                }
            } else {
                // Rounded as the library does it: what comes next will mostly have these bytes, and
                // need not be looked at one by one. They differ from exact ones within the
                // tolerance.
                std::memcpy(accepted_.data() + (begin + i) * size_, element, size_);
            }
        }
    }

    void describe(const std::byte* got, std::size_t at, std::uint64_t element) {
        const bool untouched =
            std::all_of(got, got + size_, [](std::byte byte) { return byte == std::byte{poison}; });
        result_.first_wrong =
            "element " + std::to_string(piece_.offset + element) + " of the receive buffer" +
            (piece_.source == from_reduction ? ""
                                             : ", from rank " + std::to_string(piece_.source)) +
            (untouched ? ", was not written" : ", is " + text_of(pattern_.number(got))) +
            ", expected " + text_of(pattern_.number(expected_.data() + at * size_));
    }

    const Pattern& pattern_;
    const Piece& piece_;
    Checked& result_;
    std::size_t size_;
    std::vector<std::byte> expected_;  // from element 0 of the piece, whole periods or all of it
    std::vector<std::byte> accepted_;  // as expected_; where rounding is allowed, as last received
};

// Elements begin … begin + count of a piece.
struct Span {
    std::uint64_t begin = 0;
    std::uint64_t count = 0;
};

// All of `count` elements, or about `budget` of them: the first, the last, and chunks at equal
// distances between.
std::vector<Span> spans_of(std::uint64_t count, std::uint64_t budget, std::uint64_t largest) {
    std::vector<Span> spans;
    if (budget >= count) {
        for (std::uint64_t begin = 0; begin < count; begin += largest) {
            spans.push_back({begin, std::min(largest, count - begin)});
        }
        return spans;
    }
    const std::uint64_t chunk = std::clamp<std::uint64_t>(budget / 16, 1, largest);
    const std::uint64_t chunks = std::max<std::uint64_t>(budget / chunk, 2);
    if (chunk >= count) {
        return {{0, count}};
    }
    const std::uint64_t room = count - chunk;
    for (std::uint64_t i = 0; i < chunks; ++i) {
        // room * i / (chunks - 1) without overflow
        const std::uint64_t steps = chunks - 1;
        spans.push_back({room / steps * i + room % steps * i / steps, chunk});
    }
    return spans;
}

std::uint64_t elements_of(const std::vector<Piece>& pieces) {
    std::uint64_t sum = 0;
    for (const Piece& piece : pieces) {
        sum += piece.count;
    }
    return sum;
}

Status write_input(Backend& backend, int local, const RankCall& call, const VerifyOptions& options,
                   std::uint64_t bytes) {
    const Pattern pattern = pattern_of(call.cls, call.nranks, options.fp8);
    const std::uint64_t count = bytes / itemsize(call.cls.datatype);
    const std::vector<std::byte> block =
        pattern.bytes(call.rank, 0, block_elements(pattern, count, fill_block_bytes));
    std::byte* const send = call.buffers.send;
    Status status = backend.copy_in(local, send, block.data(), block.size());
    for (std::uint64_t done = block.size(); status.ok() && done < bytes;) {
        const std::uint64_t more = std::min(done, bytes - done);
        status = backend.copy_within(local, send + done, send, more);
        done += more;
    }
    return status;
}

}  // namespace

Pattern pattern_of(const Class& cls, int nranks, Fp8Form fp8) {
    const std::optional<Redop> redop =
        reduces(cls.op) ? std::optional(cls.redop.value_or(Redop::Sum)) : std::nullopt;
    return Pattern(cls.datatype, redop, nranks, period_of(cls), fp8);
}

Fp8Form fp8_form_of(std::string_view device) {
    for (const std::string_view name : {"gfx94", "MI300", "MI308", "MI325"}) {
        if (device.find(name) != std::string_view::npos) {
            return Fp8Form::Fnuz;
        }
    }
    return Fp8Form::Ocp;
}

Status fill_inputs(Backend& backend, int local, const RankCall& call,
                   const VerifyOptions& options) {
    const Layout layout = layout_of(call.cls, call.which, call.rank, call.nranks);
    Status status;
    if (layout.recv_bytes != 0) {
        // First: in place, the input lies in what is poisoned.
        status = backend.fill(local, call.buffers.recv, poison, layout.recv_bytes);
    }
    if (status.ok() && layout.send_bytes != 0) {
        status = write_input(backend, local, call, options, layout.send_bytes);
    }
    return status.ok() ? backend.synchronise(local) : status;
}

Checked check_outputs(Backend& backend, int local, const RankCall& call,
                      const VerifyOptions& options, Staging& staging) {
    const Layout layout = layout_of(call.cls, call.which, call.rank, call.nranks);
    const Pattern pattern = pattern_of(call.cls, call.nranks, options.fp8);
    const std::size_t size = itemsize(call.cls.datatype);
    const std::uint64_t total = elements_of(layout.wanted);
    const std::uint64_t limit = options.limit_bytes / size;
    Checked result;
    result.sampled = total > limit;
    const double part =
        result.sampled ? static_cast<double>(limit) / static_cast<double>(total) : 1;
    for (const Piece& piece : layout.wanted) {
        PieceCheck check(pattern, piece, result);
        const auto budget =
            result.sampled ? static_cast<std::uint64_t>(static_cast<double>(piece.count) * part)
                           : piece.count;
        for (const Span& span : spans_of(piece.count, budget, Staging::capacity / size)) {
            const std::size_t bytes = span.count * size;
            staging.bytes.resize(std::max(staging.bytes.size(), bytes));
            const std::byte* from = call.buffers.recv + (piece.offset + span.begin) * size;
            result.status = backend.copy_out(local, staging.bytes.data(), from, bytes);
            if (!result.status.ok()) {
                return result;
            }
            check.compare(staging.bytes.data(), span.begin, span.count);
        }
    }
    return result;
}

}  // namespace collscope
