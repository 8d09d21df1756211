// Encoding and decoding: known bits, every pattern there and back, rounding against a plain search.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "datatype.h"
#include "every.h"

namespace {

using namespace collscope;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

std::uint64_t bits_of(Datatype type, double value) {
    std::uint64_t bits = 0;
    encode(type, value, &bits);
    return bits;
}

double number_of(Datatype type, std::uint64_t bits) { return decode(type, &bits); }

void has_known_bits() {
    // Float16: 1 | 5 | 10, bias 15
    CHECK(bits_of(Datatype::Float16, 1) == 0x3c00);
    CHECK(bits_of(Datatype::Float16, -2) == 0xc000);
    CHECK(bits_of(Datatype::Float16, 65504) == 0x7bff);
    CHECK(bits_of(Datatype::Float16, 65519.9) == 0x7bff);
    CHECK(bits_of(Datatype::Float16, 65520) == 0x7c00);
    CHECK(bits_of(Datatype::Float16, 0x1p-24) == 0x0001);
    CHECK(bits_of(Datatype::Float16, 0x1p-25) == 0x0000);
    CHECK(bits_of(Datatype::Float16, 0x1.8p-25) == 0x0001);
    CHECK(bits_of(Datatype::Float16, 2049) == 0x6800);  // tie, to 2048
    CHECK(bits_of(Datatype::Float16, 2051) == 0x6802);  // tie, to 2052
    CHECK(bits_of(Datatype::Float16, -infinity) == 0xfc00);
    CHECK(bits_of(Datatype::Float16, nan_value) == 0x7e00);
    // Bfloat16: the upper half of a float
    CHECK(bits_of(Datatype::Bfloat16, 1) == 0x3f80);
    CHECK(bits_of(Datatype::Bfloat16, 256) == 0x4380);
    CHECK(bits_of(Datatype::Bfloat16, 257) == 0x4380);
    CHECK(bits_of(Datatype::Bfloat16, 259) == 0x4382);
    CHECK(bits_of(Datatype::Bfloat16, 0x1p-133) == 0x0001);
    CHECK(bits_of(Datatype::Bfloat16, 3.4e38) == 0x7f80);
    // One rounding only: as float first, this would be 1 + 2^-8, a tie, and fall to 1.
    CHECK(bits_of(Datatype::Bfloat16, 1 + 0x1p-8 + 0x1p-40) == 0x3f81);
    // Float8e4m3: 1 | 4 | 3, bias 7, no infinity
    CHECK(bits_of(Datatype::Float8e4m3, 1) == 0x38);
    CHECK(bits_of(Datatype::Float8e4m3, -16) == 0xd8);
    CHECK(bits_of(Datatype::Float8e4m3, 17) == 0x58);
    CHECK(bits_of(Datatype::Float8e4m3, 448) == 0x7e);
    CHECK(bits_of(Datatype::Float8e4m3, 464) == 0x7e);
    CHECK(bits_of(Datatype::Float8e4m3, 465) == 0x7f);
    CHECK(bits_of(Datatype::Float8e4m3, infinity) == 0x7f);
    CHECK(bits_of(Datatype::Float8e4m3, nan_value) == 0x7f);
    CHECK(bits_of(Datatype::Float8e4m3, 0x1p-9) == 0x01);
    CHECK(bits_of(Datatype::Float8e4m3, 0x1p-6) == 0x08);
    CHECK(std::isnan(number_of(Datatype::Float8e4m3, 0xff)));
    // Float8e5m2: 1 | 5 | 2, bias 15
    CHECK(bits_of(Datatype::Float8e5m2, 1) == 0x3c);
    CHECK(bits_of(Datatype::Float8e5m2, 8) == 0x48);
    CHECK(bits_of(Datatype::Float8e5m2, 9) == 0x48);
    CHECK(bits_of(Datatype::Float8e5m2, 57344) == 0x7b);
    CHECK(bits_of(Datatype::Float8e5m2, 61440) == 0x7c);
    CHECK(bits_of(Datatype::Float8e5m2, 0x1p-16) == 0x01);
    CHECK(bits_of(Datatype::Int8, -91) == 0xa5);
    CHECK(bits_of(Datatype::Uint8, 300) == 0xff);
    CHECK(bits_of(Datatype::Int32, -1) == 0xffffffff);
    CHECK(bits_of(Datatype::Float32, 1) == 0x3f800000);
}

// Numbers of the format by its definition, smallest first; the last one is where overflow begins.
std::vector<double> numbers_by_definition(int exponent_bits, int mantissa_bits, bool has_infinity) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    std::vector<double> numbers;
    for (int e = 0; e < 1 << exponent_bits; ++e) {
        for (int m = 0; m < 1 << mantissa_bits; ++m) {
            const double fraction = std::ldexp(m, -mantissa_bits) + (e == 0 ? 0 : 1);
            numbers.push_back(std::ldexp(fraction, (e == 0 ? 1 : e) - bias));
        }
    }
    const std::size_t top = has_infinity ? std::size_t{1} << mantissa_bits : 1;
    numbers.resize(numbers.size() - top + 1);
    return numbers;
}

void agrees_with(Datatype type, int exponent_bits, int mantissa_bits, bool has_infinity) {
    const std::vector<double> numbers =
        numbers_by_definition(exponent_bits, mantissa_bits, has_infinity);
    const std::uint64_t sign = std::uint64_t{1} << (exponent_bits + mantissa_bits);
    for (std::uint64_t i = 0; i + 1 < numbers.size(); ++i) {
        CHECK(number_of(type, i) == numbers[i]);
        CHECK(bits_of(type, numbers[i]) == i);
        CHECK(bits_of(type, -numbers[i]) == (i | sign));
        // Between neighbours: the tie goes to the even one, the rest to the nearer one.
        const double middle = (numbers[i] + numbers[i + 1]) / 2;
        CHECK(bits_of(type, middle) == i + (i & 1));
        CHECK(bits_of(type, std::nextafter(middle, 0)) == i);
        CHECK(bits_of(type, std::nextafter(middle, infinity)) == i + 1);
    }
    for (std::uint64_t bits = 0; bits < 2 * sign; ++bits) {
        const double number = number_of(type, bits);
        CHECK(std::isnan(number) || bits_of(type, number) == bits);
        CHECK(std::isnan(number) == ((bits & (sign - 1)) > numbers.size() - 2 + has_infinity));
        CHECK(!std::isinf(number) || has_infinity);
    }
}

void is_exact_up_to_its_limit() {
    for (const Datatype type : every::datatypes) {
        const std::int64_t limit = exact_limit(type);
        for (std::int64_t i = 0; i <= limit; i += limit > 70000 ? 61 : 1) {
            const auto value = static_cast<double>(i);
            CHECK(number_of(type, bits_of(type, value)) == value);
            CHECK(!is_float(type) || number_of(type, bits_of(type, -value)) == -value);
        }
        const auto next = static_cast<double>(limit + 1);
        CHECK(limit == 1 << 20 || number_of(type, bits_of(type, next)) != next);
        CHECK(datatype_named(name_of(type)) == type);
    }
    CHECK(exact_limit(Datatype::Float8e4m3) == 16);
    CHECK(exact_limit(Datatype::Float8e5m2) == 8);
    CHECK(exact_limit(Datatype::Bfloat16) == 256);
    CHECK(exact_limit(Datatype::Float16) == 2048);
    CHECK(unit_roundoff(Datatype::Float32) == 0x1p-24);
    CHECK(unit_roundoff(Datatype::Float8e4m3) == 0x1p-4);
    CHECK(!datatype_named("Float4"));
}

}  // namespace

int main() {
    has_known_bits();
    agrees_with(Datatype::Float16, 5, 10, true);
    agrees_with(Datatype::Bfloat16, 8, 7, true);
    agrees_with(Datatype::Float8e4m3, 4, 3, false);
    agrees_with(Datatype::Float8e5m2, 5, 2, true);
    is_exact_up_to_its_limit();
    return check::result();
}
