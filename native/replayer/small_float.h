// Floating-point formats of 8 and 16 bits: conversion of their bits from double and to float.
#pragma once

#include <bit>
#include <cstdint>

namespace collscope {

// `has_infinity`: as in IEEE 754; without it (e4m3) all exponents hold numbers, and only the bits
// that are all ones are NaN.
template <int exponent_bits, int mantissa_bits, bool has_infinity>
struct SmallFloat {
    static constexpr int mantissa = mantissa_bits;
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr std::uint32_t sign_bit = 1U << (exponent_bits + mantissa_bits);
    static constexpr std::uint32_t all_exponent = ((1U << exponent_bits) - 1) << mantissa_bits;
    static constexpr std::uint32_t overflow = has_infinity ? all_exponent : sign_bit - 1;
    static constexpr std::uint32_t nan =
        has_infinity ? all_exponent | 1U << (mantissa_bits - 1) : sign_bit - 1;

    // Rounded to nearest-even, once; what is too large becomes infinity, or NaN where there is
    // none.
    static std::uint32_t from(double value) {
        const auto bits = std::bit_cast<std::uint64_t>(value);
        const std::uint32_t sign = bits >> 63 != 0 ? sign_bit : 0;
        const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
        const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
        if (exponent == 1024) {
            return sign | (fraction != 0 ? nan : overflow);
        }
        if (exponent > bias + 1) {
            return sign | overflow;
        }
        const int below = exponent < 1 - bias ? 1 - bias - exponent : 0;
        const int shift = 52 - mantissa_bits + below;
        if (shift > 54) {
            return sign;  // less than half the smallest number; also double's own subnormals
        }
        const std::uint64_t whole = fraction | std::uint64_t{1} << 52;
        const std::uint64_t half = std::uint64_t{1} << (shift - 1);
        const std::uint64_t rest = whole & (2 * half - 1);
        std::uint64_t kept = whole >> shift;
        kept += rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0;
        // `kept` holds the leading one, which counts as the last step of the exponent.
        const int steps = exponent + below + bias - 1;
        const auto magnitude =
            (static_cast<std::uint32_t>(steps) << mantissa_bits) + static_cast<std::uint32_t>(kept);
        return sign | (magnitude < overflow ? magnitude : overflow);
    }

    static float to(std::uint32_t bits) {
        const std::uint32_t sign = (bits & sign_bit) != 0 ? 0x80000000U : 0;
        const std::uint32_t magnitude = bits & (sign_bit - 1);
        const std::uint32_t fraction = magnitude & ((1U << mantissa_bits) - 1);
        if (magnitude < 1U << mantissa_bits) {
            // 2^(1 - bias - mantissa_bits), in two factors because bfloat16's is subnormal in
            // float.
            constexpr auto scale =
                std::bit_cast<float>(static_cast<std::uint32_t>(128 - bias) << 23);
            constexpr float step = 1.0F / static_cast<float>(1 << mantissa_bits);
            const float number = static_cast<float>(fraction) * step * scale;
            return sign != 0 ? -number : number;
        }
        if (has_infinity ? magnitude >= all_exponent : magnitude == nan) {
            return std::bit_cast<float>(sign | 0x7f800000U | fraction << (23 - mantissa_bits));
        }
        const std::uint32_t exponent = (magnitude >> mantissa_bits) + 127 - bias;
        return std::bit_cast<float>(sign | exponent << 23 | fraction << (23 - mantissa_bits));
    }
};

using Half = SmallFloat<5, 10, true>;
using Brain = SmallFloat<8, 7, true>;
using E4m3 = SmallFloat<4, 3, false>;
using E5m2 = SmallFloat<5, 2, true>;

}  // namespace collscope
