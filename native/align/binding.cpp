// Python module collscope._align.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "../owned_array.h"
#include "align.h"
#include "group.h"
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

nb::tuple group_rows(const Numbers& keys, std::int32_t count) {
    align::Groups found;
    {
        const nb::gil_scoped_release release;
        found = align::group({keys.data(), keys.size()}, count);
    }
    return nb::make_tuple(owned_array(std::move(found.order)),
                          owned_array(std::move(found.bounds)));
}

// Takes one chain after the other, from one thread at a time.
class Merger {
public:
    explicit Merger(std::int32_t nodes) : merger_(checked(nodes)) {}

    void add(const Numbers& chain) {
        const nb::gil_scoped_release release;
        merger_.add({chain.data(), chain.size()});
    }

    nb::tuple merge() const {
        align::MergedOrder merged;
        {
            const nb::gil_scoped_release release;
            merged = merger_.merge();
        }
        return nb::make_tuple(owned_array(std::move(merged.order)), merged.contradictions);
    }

private:
    static std::int32_t checked(std::int32_t nodes) {
        if (nodes < 0) {
            throw nb::value_error("nodes must not be negative");
        }
        return nodes;
    }

    align::ChainMerger merger_;
};

}  // namespace

NB_MODULE(_align, module) {
    module.doc() = "Alignment of sequences that lost elements.";
    module.def("align", &align_arrays, nb::arg("reference"), nb::arg("sequence"),
               "Index in `reference` of each element of `sequence`, or -1; releases the GIL.");
    module.def("group", &group_rows, nb::arg("keys"), nb::arg("count"),
               "Rows by key, and where each key's begin and end; releases the GIL.");
    nb::class_<Merger>(module, "ChainMerger", "One order of the nodes out of chains.")
        .def(nb::init<std::int32_t>(), nb::arg("nodes"))
        .def("add", &Merger::add, nb::arg("chain"), "Takes the nodes of one chain in its order.")
        .def("merge", &Merger::merge, "The order of all nodes, and its contradictions.");
}
