// Python module collscope._align.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "align.h"

namespace nb = nanobind;

namespace {

using Values = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Partners = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>>;

Partners align_arrays(const Values& reference, const Values& sequence) {
    auto partners = std::make_unique<std::vector<std::int32_t>>();
    {
        const nb::gil_scoped_release release;
        *partners =
            align::match({reference.data(), reference.size()}, {sequence.data(), sequence.size()});
    }
    auto* owned = partners.release();
    const nb::capsule owner(
        owned, [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
    return Partners(owned->data(), {owned->size()}, owner);
}

}  // namespace

NB_MODULE(_align, module) {
    module.doc() = "Alignment of sequences that lost elements.";
    module.def("align", &align_arrays, nb::arg("reference"), nb::arg("sequence"),
               "Index in `reference` of each element of `sequence`, or -1; releases the GIL.");
}
