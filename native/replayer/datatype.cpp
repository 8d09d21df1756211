#include "datatype.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "small_float.h"

namespace collscope {

namespace {

struct Traits {
    std::string_view name;
    std::size_t itemsize;
    int mantissa_bits;  // stored ones; -1: an integer
    bool is_signed;
};

// In the order of the enumeration.
constexpr std::array<Traits, 12> traits{{
    {"Int8", 1, -1, true},
    {"Uint8", 1, -1, false},
    {"Int32", 4, -1, true},
    {"Uint32", 4, -1, false},
    {"Int64", 8, -1, true},
    {"Uint64", 8, -1, false},
    {"Float16", 2, Half::mantissa, true},
    {"Float32", 4, 23, true},
    {"Float64", 8, 52, true},
    {"Bfloat16", 2, Brain::mantissa, true},
    {"Float8e4m3", 1, E4m3::mantissa, true},
    {"Float8e5m2", 1, E5m2::mantissa, true},
}};

const Traits& traits_of(Datatype type) { return traits[static_cast<std::size_t>(type)]; }

template <typename T>
void store(T value, void* out) {
    std::memcpy(out, &value, sizeof value);
}

template <typename T>
double load(const void* in) {
    T value;
    std::memcpy(&value, in, sizeof value);
    return static_cast<double>(value);
}

// Converting a double outside the target's range is undefined, so it is held to the range first.
template <typename T>
T whole(double value) {
    constexpr auto lowest = static_cast<double>(std::numeric_limits<T>::min());
    const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
    const double rounded = std::nearbyint(value);
    if (std::isnan(rounded)) {
        return 0;
    }
    if (rounded >= above) {
        return std::numeric_limits<T>::max();
    }
    return rounded <= lowest ? std::numeric_limits<T>::min() : static_cast<T>(rounded);
}

template <typename Form, typename Bits>
double load_small(const void* in) {
    Bits bits;
    std::memcpy(&bits, in, sizeof bits);
    return static_cast<double>(Form::to(bits));
}

}  // namespace

std::size_t itemsize(Datatype type) { return traits_of(type).itemsize; }

std::string_view name_of(Datatype type) { return traits_of(type).name; }

std::optional<Datatype> datatype_named(std::string_view name) {
    for (std::size_t i = 0; i < traits.size(); ++i) {
        if (traits[i].name == name) {
            return static_cast<Datatype>(i);
        }
    }
    return std::nullopt;
}

bool is_float(Datatype type) { return traits_of(type).mantissa_bits >= 0; }

bool is_signed(Datatype type) { return traits_of(type).is_signed; }

std::int64_t exact_limit(Datatype type) {
    constexpr int cap = 20;
    const Traits& its = traits_of(type);
    if (its.mantissa_bits >= 0) {
        return std::int64_t{1} << (its.mantissa_bits + 1 < cap ? its.mantissa_bits + 1 : cap);
    }
    if (its.itemsize > 1) {
        return std::int64_t{1} << cap;
    }
    return its.is_signed ? 127 : 255;
}

double unit_roundoff(Datatype type) {
    const int bits = traits_of(type).mantissa_bits;
    return bits < 0 ? 0 : std::ldexp(1.0, -bits - 1);
}

void encode(Datatype type, double value, void* out) {
    switch (type) {
        case Datatype::Int8:
            return store(whole<std::int8_t>(value), out);
        case Datatype::Uint8:
            return store(whole<std::uint8_t>(value), out);
        case Datatype::Int32:
            return store(whole<std::int32_t>(value), out);
        case Datatype::Uint32:
            return store(whole<std::uint32_t>(value), out);
        case Datatype::Int64:
            return store(whole<std::int64_t>(value), out);
        case Datatype::Uint64:
            return store(whole<std::uint64_t>(value), out);
        case Datatype::Float16:
            return store(static_cast<std::uint16_t>(Half::from(value)), out);
        case Datatype::Float32:
            return store(static_cast<float>(value), out);
        case Datatype::Float64:
            return store(value, out);
        case Datatype::Bfloat16:
            return store(static_cast<std::uint16_t>(Brain::from(value)), out);
        case Datatype::Float8e4m3:
            return store(static_cast<std::uint8_t>(E4m3::from(value)), out);
        case Datatype::Float8e5m2:
            return store(static_cast<std::uint8_t>(E5m2::from(value)), out);
    }
}

double decode(Datatype type, const void* in) {
    switch (type) {
        case Datatype::Int8:
            return load<std::int8_t>(in);
        case Datatype::Uint8:
            return load<std::uint8_t>(in);
        case Datatype::Int32:
            return load<std::int32_t>(in);
        case Datatype::Uint32:
            return load<std::uint32_t>(in);
        case Datatype::Int64:
            return load<std::int64_t>(in);
        case Datatype::Uint64:
            return load<std::uint64_t>(in);
        case Datatype::Float16:
            return load_small<Half, std::uint16_t>(in);
        case Datatype::Float32:
            return load<float>(in);
        case Datatype::Float64:
            return load<double>(in);
        case Datatype::Bfloat16:
            return load_small<Brain, std::uint16_t>(in);
        case Datatype::Float8e4m3:
            return load_small<E4m3, std::uint8_t>(in);
        case Datatype::Float8e5m2:
            return load_small<E5m2, std::uint8_t>(in);
    }
    return 0;
}

}  // namespace collscope
