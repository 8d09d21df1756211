// How process 0 has process 1 do its part, where a copy needs both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "control.h"

namespace collscope {

// What process 0 wants done; `what` means what both sides agree on.
struct Wish {
    char what = 0;
    std::int32_t calls = 0;
    std::uint64_t seed = 0;
};

class Partner {
public:
    // One side's part; adds to `n_wrong` the bytes that it finds wrong.
    using Part = std::function<Status(const Wish& wish, std::uint64_t& n_wrong)>;

    explicit Partner(const Control& control) : control_(control) {}

    // On process 0: both do their parts at once. Fails when either does.
    Status together(const Wish& wish, const Part& mine, std::uint64_t& n_wrong) const;
    // On process 1: does its part of every wish until `dismiss`.
    void serve(const Part& part) const;
    void dismiss() const;

private:
    const Control& control_;
};

}  // namespace collscope
