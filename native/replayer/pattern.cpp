#include "pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace collscope {

namespace {

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014: the finalizer.
std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

std::uint64_t hash(int rank, int j) {
    const auto high = static_cast<std::uint64_t>(rank) + 1;
    return mixed(mixed(high * 0x9e3779b97f4a7c15ULL) + static_cast<std::uint64_t>(j));
}

int quotient_up(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

bool is_fp8(Datatype type) { return type == Datatype::Float8e4m3 || type == Datatype::Float8e5m2; }

// Power of two below which unit * exact_limit stays finite in every form of the type.
std::int64_t largest_unit(Datatype type) {
    switch (type) {
        case Datatype::Float8e4m3:
            return 8;  // 8 * 16 = 128; fnuz ends at 240
        case Datatype::Float8e5m2:
            return 1024;  // 1024 * 8 = 2^13
        case Datatype::Float16:
            return 16;  // 16 * 2048 = 2^15
        default:
            return std::int64_t{1} << 32;
    }
}

// Distance of the subnormal numbers: below it relative bounds do not hold.
double smallest(Datatype type) {
    switch (type) {
        case Datatype::Float8e4m3:
            return std::ldexp(1.0, -9);
        case Datatype::Float8e5m2:
            return std::ldexp(1.0, -16);
        case Datatype::Float16:
            return std::ldexp(1.0, -24);
        default:
            return 0;  // averages of whole numbers stay far above
    }
}

}  // namespace

Pattern::Pattern(Datatype datatype, std::optional<Redop> redop, int nranks, int period, Fp8Form fp8)
    : datatype_(datatype), redop_(redop), nranks_(nranks), period_(period) {
    const std::int64_t limit = exact_limit(datatype);
    if (is_fp8(datatype) && fp8 == Fp8Form::Fnuz) {
        scale_ = 2;
    }
    // At one index at most `most` ranks contribute, so that their sum stays within the limit.
    const auto share = [&](std::int64_t most) {
        stride_ = quotient_up(nranks, most);
        values_ = limit / quotient_up(nranks, stride_) + 1;
    };
    if (!redop) {
        values_ = limit + 1;
        return;
    }
    switch (*redop) {
        case Redop::Sum:
            share(limit);
            break;
        case Redop::Prod:
            stride_ = quotient_up(nranks, 6);  // 2^6 is in the range of int8 and of e4m3
            values_ = 2;
            shift_ = 1;
            idle_ = 1;
            break;
        case Redop::Max:
        case Redop::Min:
            // Were all of many ranks to contribute, one of them would always reach the limit, and
            // the loss of another would not show.
            stride_ = quotient_up(nranks, 8);
            values_ = limit + 1;
            shift_ = is_signed(datatype) ? -(limit / 2) : 0;
            idle_ = static_cast<double>(*redop == Redop::Max ? shift_ : shift_ + limit);
            break;
        case Redop::Avg:
            if (!is_float(datatype)) {
                // Few ranks with large numbers: each of them shows after the division.
                share(std::clamp<std::int64_t>(limit / (2 * std::int64_t{nranks}), 1, 8));
            } else if (std::has_single_bit(static_cast<unsigned>(nranks))) {
                // Libraries multiply each input by 1/nranks, then add: exact for powers of two.
                // The unit keeps the quotients away from the subnormal numbers.
                share(limit);
                unit_ = static_cast<double>(std::min<std::int64_t>(nranks, largest_unit(datatype)));
            } else {
                share(1);
                exact_ = false;
            }
            break;
    }
}

bool Pattern::contributes(int rank, int j) const { return (j + rank) % stride_ == 0; }

double Pattern::contribution(int rank, int j) const {
    const auto value =
        static_cast<std::int64_t>(hash(rank, j) % static_cast<std::uint64_t>(values_));
    return unit_ * static_cast<double>(value + shift_);
}

double Pattern::input(int rank, std::uint64_t index) const {
    const int j = static_cast<int>(index % static_cast<std::uint64_t>(period_));
    return contributes(rank, j) ? contribution(rank, j) : idle_;
}

double Pattern::reduced(std::uint64_t index) const {
    const int j = static_cast<int>(index % static_cast<std::uint64_t>(period_));
    double result = idle_;  // neutral: 0, 1, or the limit on the far side
    for (int rank = (stride_ - j % stride_) % stride_; rank < nranks_; rank += stride_) {
        const double value = contribution(rank, j);
        switch (redop_.value_or(Redop::Sum)) {
            case Redop::Sum:
            case Redop::Avg:
                result += value;
                break;
            case Redop::Prod:
                result *= value;
                break;
            case Redop::Max:
                result = std::max(result, value);
                break;
            case Redop::Min:
                result = std::min(result, value);
                break;
        }
    }
    if (redop_ != Redop::Avg) {
        return result;
    }
    // Libraries divide the sum of integers (never negative here), toward zero.
    return is_float(datatype_) ? result / nranks_ : std::floor(result / nranks_);
}

// The one contributor's number is multiplied by a rounded 1/nranks, and the product is rounded:
// two errors of the unit roundoff each, or of half the subnormal distance where that is more. A
// library that divides instead rounds once. 0.5 % covers the product of the errors.
double Pattern::tolerance(double expected) const {
    if (exact_) {
        return 0;
    }
    const double roundoff = unit_roundoff(datatype_);
    const double half_step = smallest(datatype_) / 2;
    const double magnitude = std::abs(expected);
    const double of_factor = magnitude * std::max(roundoff, half_step * nranks_);
    const double of_product = std::max(roundoff * magnitude, half_step);
    return magnitude == 0 ? 0 : 1.005 * (of_factor + of_product) + roundoff * of_factor;
}

std::vector<std::byte> Pattern::bytes(int source, std::uint64_t index, std::size_t elements) const {
    const std::size_t size = itemsize(datatype_);
    std::vector<std::byte> out(elements * size);
    const std::size_t computed = std::min(elements, static_cast<std::size_t>(period_));
    for (std::size_t i = 0; i < computed; ++i) {
        const double value = source < 0 ? reduced(index + i) : input(source, index + i);
        encode(datatype_, scale_ * value, out.data() + i * size);
    }
    for (std::size_t done = computed * size; done < out.size();) {
        const std::size_t more = std::min(done, out.size() - done);
        std::memcpy(out.data() + done, out.data(), more);
        done += more;
    }
    return out;
}

double Pattern::number(const std::byte* element) const {
    return decode(datatype_, element) / scale_;
}

}  // namespace collscope
