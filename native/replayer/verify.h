// Fills the buffers of a call with known numbers and checks every byte of its result.
//
// Fp8: MI300 (gfx940, gfx941, gfx942) computes in the fnuz form, where the same bytes mean half the
// number. Sums, averages, maxima, minima and copies give the same bytes either way, a product does
// not: say with `fp8_form_of` which form the device has. RCCL packs the factor 1/nranks of an
// average in OCP form even there (ROCm/rocm-systems#10374): n_wrong of Avg on fp8 is then a true
// finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "layout.h"
#include "pattern.h"

namespace collscope {

// One rank's part in a call; `rank` and `nranks` are those of the communicator.
struct RankCall {
    const Class& cls;
    int which = 0;  // index into the class's `comms`
    int rank = 0;
    int nranks = 1;
    Buffers buffers;  // layout_of(...).at(arena)
};

struct VerifyOptions {
    std::uint64_t limit_bytes = std::uint64_t{256} << 20;  // per rank and class; above it a sample
    Fp8Form fp8 = Fp8Form::Ocp;
};

// Host memory through which results are read, reused from call to call. One per local rank
// (threads of several ranks check at the same time).
struct Staging {
    static constexpr std::size_t capacity = std::size_t{16} << 20;
    std::vector<std::byte> bytes;
};

struct Checked {
    Status status;                // of copying; nothing else counts when it is not ok
    std::uint64_t n_checked = 0;  // elements looked at
    std::uint64_t n_wrong = 0;
    bool sampled = false;     // more than limit_bytes: head, tail and strided chunks only
    std::string first_wrong;  // "element 5 of the receive buffer is 3, expected 4"; empty when none
};

// The pattern of a class on a communicator of `nranks`.
Pattern pattern_of(const Class& cls, int nranks, Fp8Form fp8);

// Fnuz for the devices that have it by the architecture's name, as in "gfx942:sramecc+:xnack-".
Fp8Form fp8_form_of(std::string_view device);

// Poisons the receive data with 0xA5 and writes the rank's input. Returns when the device has it.
Status fill_inputs(Backend& backend, int local, const RankCall& call, const VerifyOptions& options);

// Checks what the rank wants; a rank that receives nothing has n_checked 0. The call must be
// complete.
Checked check_outputs(Backend& backend, int local, const RankCall& call,
                      const VerifyOptions& options, Staging& staging);

}  // namespace collscope
