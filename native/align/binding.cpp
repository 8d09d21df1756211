// Python module collscope._align.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "../owned_array.h"
#include "align.h"
#include "merge_order.h"

namespace nb = nanobind;

namespace {

using Values = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = OwnedArray<std::int32_t>;

Result align_arrays(const Values& reference, const Values& sequence) {
    std::vector<std::int32_t> partners;
    {
        const nb::gil_scoped_release release;
        partners =
            align::match({reference.data(), reference.size()}, {sequence.data(), sequence.size()});
    }
    return owned_array(std::move(partners));
}

nb::tuple merge_arrays(const Numbers& chain, const Numbers& node, std::int32_t nodes) {
    if (chain.size() != node.size() || nodes < 0) {
        throw nb::value_error("chain and node must be of equal length, nodes not negative");
    }
    align::MergedOrder merged;
    {
        const nb::gil_scoped_release release;
        merged =
            align::merge_order({chain.data(), chain.size()}, {node.data(), node.size()}, nodes);
    }
    return nb::make_tuple(owned_array(std::move(merged.order)), merged.contradictions);
}

}  // namespace

NB_MODULE(_align, module) {
    module.doc() = "Alignment of sequences that lost elements.";
    module.def("align", &align_arrays, nb::arg("reference"), nb::arg("sequence"),
               "Index in `reference` of each element of `sequence`, or -1; releases the GIL.");
    module.def("merge_order", &merge_arrays, nb::arg("chain"), nb::arg("node"), nb::arg("nodes"),
               "One order of the nodes out of chains, and its contradictions; releases the GIL.");
}
