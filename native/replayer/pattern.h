// The numbers that a verified call exchanges, and what must come of them.
//
// Element i of a rank's input depends on the rank and on i modulo a prime, so that chunks put in
// the wrong place show. The values are small integers, chosen so that every partial result, in any
// order and in the precision of the type, is exact: the expected bytes are known without tolerance,
// but for averages of floats over a number of ranks that is no power of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan.h"

namespace collscope {

// Fp8 on gfx94x has exponent bias 8 (e4m3) and 16 (e5m2), one more than OCP's: the "fnuz" forms.
// The same bytes mean half the number there, see verify.h.
enum class Fp8Form : std::uint8_t { Ocp, Fnuz };

class Pattern {
public:
    static constexpr int default_period = 1009;

    // `redop` none: the ranks' inputs are only moved. `period` a prime.
    Pattern(Datatype datatype, std::optional<Redop> redop, int nranks, int period = default_period,
            Fp8Form fp8 = Fp8Form::Ocp);

    Datatype datatype() const { return datatype_; }
    int period() const { return period_; }
    // False where the library may round: `tolerance` is then the largest error.
    bool exact() const { return exact_; }

    // Element `index` of the input of a rank.
    double input(int rank, std::uint64_t index) const;
    // Element `index` of the reduction over all ranks, before it is rounded into the type.
    double reduced(std::uint64_t index) const;
    // Largest difference from `reduced` that rounding explains; 0 when exact.
    double tolerance(double expected) const;

    // Bytes of `elements` elements from `index` on; `source` a rank, or -1 for the reduction.
    std::vector<std::byte> bytes(int source, std::uint64_t index, std::size_t elements) const;
    // The number that one element's bytes hold, in the form that the device uses.
    double number(const std::byte* element) const;

private:
    double contribution(int rank,
                        int j) const;  // of a rank whose turn it is at j = index mod period
    bool contributes(int rank, int j) const;

    Datatype datatype_;
    std::optional<Redop> redop_;
    int nranks_;
    int period_;
    bool exact_ = true;
    double scale_ = 1;  // fnuz: bytes of 2x in OCP form are those of x in the other
    double unit_ = 1;   // factor of float averages, so that their results are whole or nearly
    int stride_ = 1;    // at one index every stride-th rank contributes
    std::int64_t values_ = 1;  // a contribution is one of 0 … values-1, before shift
    std::int64_t shift_ = 0;
    double idle_ = 0;  // input of a rank that does not contribute
};

}  // namespace collscope
