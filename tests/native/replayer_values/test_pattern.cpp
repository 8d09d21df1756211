// The pattern: reductions in any order give the expected bytes, and faults show.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "every.h"
#include "pattern.h"
#include "reduce.h"

namespace {

using namespace collscope;
using Bytes = std::vector<std::byte>;

constexpr std::size_t elements = 1100;  // more than a period

std::vector<Bytes> inputs_of(const Pattern& pattern, int nranks) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < nranks; ++rank) {
        inputs.push_back(pattern.bytes(rank, 0, elements));
    }
    return inputs;
}

// Each in turn; pairs, then pairs of pairs; or two at random, until one is left.
enum class Order { Ring, Tree, Random };

Bytes combined(Datatype type, Redop redop, std::vector<Bytes> parts, Order order,
               std::mt19937& random) {
    if (order != Order::Ring) {
        std::shuffle(parts.begin(), parts.end(), random);
    }
    for (std::size_t left = parts.size(); left > 1; --left) {
        std::size_t from = left - 1;
        std::size_t to = order == Order::Tree ? (left - 1) / 2 : 0;
        if (order == Order::Random) {
            std::swap(parts[random() % left], parts[from]);
            to = random() % from;
        }
        reduce(type, redop, parts[from].data(), parts[to].data(), elements);
    }
    return parts.front();
}

// As NCCL and RCCL average floats: each input times 1/nranks, in the type; then the sum.
Bytes premultiplied(Datatype type, Bytes input, int nranks) {
    const std::size_t size = itemsize(type);
    Bytes factors(input.size());
    for (std::size_t i = 0; i < elements; ++i) {
        encode(type, 1.0 / nranks, factors.data() + i * size);
    }
    reduce(type, Redop::Prod, factors.data(), input.data(), elements);
    return input;
}

bool accepted(const Pattern& pattern, const Bytes& got) {
    const std::size_t size = itemsize(pattern.datatype());
    for (std::size_t i = 0; i < elements; ++i) {
        const double wanted = pattern.reduced(i);
        if (!(std::abs(pattern.number(got.data() + i * size) - wanted) <=
              pattern.tolerance(wanted))) {
            return false;
        }
    }
    return true;
}

void is_exact_in_any_order(Datatype type, Redop redop, int nranks, std::mt19937& random) {
    const Pattern pattern(type, redop, nranks);
    const Bytes expected = pattern.bytes(-1, 0, elements);
    const std::vector<Bytes> inputs = inputs_of(pattern, nranks);
    const auto agrees = [&](const Bytes& got) {
        return pattern.exact() ? got == expected : accepted(pattern, got);
    };
    for (const Order order : {Order::Ring, Order::Tree, Order::Random}) {
        Bytes got = combined(type, redop, inputs, order, random);
        if (redop == Redop::Avg) {
            divide(type, got.data(), elements, nranks);
        }
        CHECK(agrees(got));
        if (redop == Redop::Avg && is_float(type)) {
            std::vector<Bytes> parts;
            for (const Bytes& input : inputs) {
                parts.push_back(premultiplied(type, input, nranks));
            }
            CHECK(agrees(combined(type, redop, parts, order, random)));
        }
    }
}

// Too coarse to separate ranks: the average of int8 over more than 127 ranks is 0.
bool can_tell(Datatype type, Redop redop, int nranks) {
    return !(redop == Redop::Avg && !is_float(type) && exact_limit(type) < nranks);
}

// The result without one rank, and with one rank twice.
void notices_a_rank(Datatype type, Redop redop, int nranks, std::mt19937& random) {
    const Pattern pattern(type, redop, nranks);
    const std::vector<Bytes> inputs = inputs_of(pattern, nranks);
    for (const int rank : {0, nranks / 2, nranks - 1}) {
        std::vector<Bytes> parts = inputs;
        const Bytes one = parts[static_cast<std::size_t>(rank)];
        parts.erase(parts.begin() + rank);
        Bytes without = combined(type, redop, parts, Order::Ring, random);
        Bytes twice = without;
        reduce(type, redop, one.data(), twice.data(), elements);
        reduce(type, redop, one.data(), twice.data(), elements);
        if (redop == Redop::Avg) {
            divide(type, without.data(), elements, nranks);
            divide(type, twice.data(), elements, nranks);
        }
        CHECK(!accepted(pattern, without));
        CHECK(!accepted(pattern, twice) || redop == Redop::Max || redop == Redop::Min);
    }
}

// `source` -1: the result; else the input of a rank, as it moves in an all-gather.
void notices_wrong_places(const Pattern& pattern, int source) {
    const std::size_t size = itemsize(pattern.datatype());
    const auto differ = [&](std::uint64_t a, std::uint64_t b, std::size_t n) {
        return std::memcmp(pattern.bytes(source, a, n).data(), pattern.bytes(source, b, n).data(),
                           n * size) != 0;
    };
    CHECK(differ(0, 1, 500));
    for (std::uint64_t chunk = 128; chunk <= std::uint64_t{1} << 40; chunk *= 4) {
        CHECK(differ(0, chunk, 128));
        CHECK(differ(7 * chunk, 9 * chunk, 128));
    }
}

void tells_ranks_apart(Datatype type) {
    const Pattern pattern(type, std::nullopt, 130);
    for (int rank = 1; rank < 130; ++rank) {
        CHECK(pattern.bytes(rank, 0, 64) != pattern.bytes(rank - 1, 0, 64));
        CHECK(pattern.bytes(rank, 0, 64) != pattern.bytes(0, 0, 64));
    }
    notices_wrong_places(pattern, 17);
}

// MI300's form: bias 8 instead of 7 (e4m3), 16 instead of 15 (e5m2).
void knows_the_other_fp8() {
    CHECK(Pattern(Datatype::Float8e4m3, Redop::Prod, 12).bytes(1, 0, 1).front() == std::byte{0x38});
    const Pattern product(Datatype::Float8e4m3, Redop::Prod, 12, 1009, Fp8Form::Fnuz);
    CHECK(product.input(1, 0) == 1);
    CHECK(product.bytes(1, 0, 1).front() == std::byte{0x40});  // 0 1000 000: 2^(8-8)
    const Pattern narrow(Datatype::Float8e5m2, Redop::Prod, 12, 1009, Fp8Form::Fnuz);
    CHECK(narrow.bytes(1, 0, 1).front() == std::byte{0x40});  // 0 10000 00: 2^(16-16)
    for (const Datatype type : {Datatype::Float8e4m3, Datatype::Float8e5m2}) {
        for (const Redop redop : every::redops) {
            const Pattern pattern(type, redop, 8, 1009, Fp8Form::Fnuz);
            const Bytes expected = pattern.bytes(-1, 0, elements);
            for (std::size_t i = 0; i < elements; ++i) {
                CHECK(pattern.number(expected.data() + i) == pattern.reduced(i));
                CHECK(expected[i] != std::byte{0x80});  // NaN in that form
            }
        }
    }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    for (const Datatype type : every::datatypes) {
        tells_ranks_apart(type);
        for (const Redop redop : every::redops) {
            for (const int nranks : every::nranks) {
                is_exact_in_any_order(type, redop, nranks, random);
                if (nranks > 1 && can_tell(type, redop, nranks)) {
                    notices_a_rank(type, redop, nranks, random);
                }
                if (can_tell(type, redop, nranks)) {
                    notices_wrong_places(Pattern(type, redop, nranks), -1);
                }
                if (check::failures != 0) {
                    std::fprintf(stderr, "datatype %d redop %d nranks %d\n", static_cast<int>(type),
                                 static_cast<int>(redop), nranks);
                    return check::result();
                }
            }
        }
    }
    knows_the_other_fp8();
    return check::result();
}
