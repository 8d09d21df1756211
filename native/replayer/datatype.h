// Element types: size, name, and exact conversion of small numbers to and from their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace collscope {

// Values of ncclDataType_t (nccl.h, rccl.h; equal on both sides).
enum class Datatype : std::uint8_t {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    Float8e4m3 = 10,
    Float8e5m2 = 11
};

std::size_t itemsize(Datatype type);
std::string_view name_of(Datatype type);
std::optional<Datatype> datatype_named(std::string_view name);

bool is_float(Datatype type);
bool is_signed(Datatype type);  // floats and the signed integers
// Largest N such that every integer of 0…N is exact in the type, capped at 2^20.
std::int64_t exact_limit(Datatype type);
// 2^-(mantissa bits + 1); 0 for integers.
double unit_roundoff(Datatype type);

// `value` rounded to nearest-even into the type, written to `out` (itemsize bytes).
void encode(Datatype type, double value, void* out);
double decode(Datatype type, const void* in);

}  // namespace collscope
