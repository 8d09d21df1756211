#include "reduce.h"

#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "small_float.h"

namespace collscope {

namespace {

// How elements are stored, and the type in which they are computed.
template <typename T>
struct Plain {
    using Stored = T;
    using Number = T;
    static T load(T stored) { return stored; }
    static T store(T number) { return number; }
};

template <typename Form, typename Bits>
struct Small {
    using Stored = Bits;
    using Number = float;
    static float load(Bits bits) { return Form::to(bits); }
    static Bits store(float number) { return static_cast<Bits>(Form::from(number)); }
};

// Signed overflow is undefined, that of unsigned numbers wraps; `unsigned` where T is narrower.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Add {
    template <std::integral T>
    static T of(T a, T b) {
        return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
    }
    template <std::floating_point T>
    static T of(T a, T b) {
        return a + b;
    }
};

struct Multiply {
    template <std::integral T>
    static T of(T a, T b) {
        return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
    }
    template <std::floating_point T>
    static T of(T a, T b) {
        return a * b;
    }
};

struct Larger {
    template <typename T>
    static T of(T a, T b) {
        return a < b ? b : a;
    }
};

struct Smaller {
    template <typename T>
    static T of(T a, T b) {
        return b < a ? b : a;
    }
};

template <typename Element, typename Operation>
void combine(const void* in, void* inout, std::size_t n) {
    using Stored = typename Element::Stored;
    const auto* from = static_cast<const unsigned char*>(in);
    auto* to = static_cast<unsigned char*>(inout);
    for (std::size_t i = 0; i < n; ++i) {
        Stored a;
        Stored b;
        std::memcpy(&a, from + i * sizeof a, sizeof a);
        std::memcpy(&b, to + i * sizeof b, sizeof b);
        b = Element::store(Operation::of(Element::load(a), Element::load(b)));
        std::memcpy(to + i * sizeof b, &b, sizeof b);
    }
}

template <typename Element>
void divide_all(void* inout, std::size_t n, int nranks) {
    using Number = typename Element::Number;
    // Wide enough for nranks, which 8-bit integers are not.
    using Wide = std::conditional_t<
        std::is_floating_point_v<Number>, Number,
        std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>>;
    auto* to = static_cast<unsigned char*>(inout);
    for (std::size_t i = 0; i < n; ++i) {
        typename Element::Stored value;
        std::memcpy(&value, to + i * sizeof value, sizeof value);
        const Wide quotient = static_cast<Wide>(Element::load(value)) / static_cast<Wide>(nranks);
        value = Element::store(static_cast<Number>(quotient));
        std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

// Calls `action` with an object of the type that describes the elements.
template <typename Action>
void with_element(Datatype type, Action action) {
    switch (type) {
        case Datatype::Int8:
            return action(Plain<std::int8_t>{});
        case Datatype::Uint8:
            return action(Plain<std::uint8_t>{});
        case Datatype::Int32:
            return action(Plain<std::int32_t>{});
        case Datatype::Uint32:
            return action(Plain<std::uint32_t>{});
        case Datatype::Int64:
            return action(Plain<std::int64_t>{});
        case Datatype::Uint64:
            return action(Plain<std::uint64_t>{});
        case Datatype::Float16:
            return action(Small<Half, std::uint16_t>{});
        case Datatype::Float32:
            return action(Plain<float>{});
        case Datatype::Float64:
            return action(Plain<double>{});
        case Datatype::Bfloat16:
            return action(Small<Brain, std::uint16_t>{});
        case Datatype::Float8e4m3:
            return action(Small<E4m3, std::uint8_t>{});
        case Datatype::Float8e5m2:
            return action(Small<E5m2, std::uint8_t>{});
    }
}

}  // namespace

void reduce(Datatype type, Redop redop, const void* in, void* inout, std::size_t n) {
    with_element(type, [&]<typename Element>(Element) {
        switch (redop) {
            case Redop::Sum:
            case Redop::Avg:
                return combine<Element, Add>(in, inout, n);
            case Redop::Prod:
                return combine<Element, Multiply>(in, inout, n);
            case Redop::Max:
                return combine<Element, Larger>(in, inout, n);
            case Redop::Min:
                return combine<Element, Smaller>(in, inout, n);
        }
    });
}

void divide(Datatype type, void* inout, std::size_t n, int nranks) {
    with_element(type, [&]<typename Element>(Element) { divide_all<Element>(inout, n, nranks); });
}

}  // namespace collscope
