// Python module collscope._play.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "../owned_array.h"
#include "play.h"

namespace nb = nanobind;

namespace {

template <typename Value>
using Array = nb::ndarray<const Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = Array<std::int64_t>;
using Times = Array<double>;

template <typename Value>
std::span<const Value> span_of(const Array<Value>& array) {
    return {array.data(), array.size()};
}

OwnedArray<double> play_arrays(const Numbers& first, const Numbers& target, const Numbers& causes,
                               const Numbers& trace, const Numbers& kernel, const Numbers& change,
                               const Times& gap, const Times& work, const Times& pace,
                               std::int64_t origin) {
    const play::Network network{span_of(first), span_of(target), span_of(causes),
                                span_of(trace), span_of(kernel), span_of(change)};
    std::vector<double> times;
    {
        const nb::gil_scoped_release release;
        times = play::play(network, span_of(gap), span_of(work), span_of(pace), origin);
    }
    return owned_array(std::move(times));
}

}  // namespace

NB_MODULE(_play, module) {
    module.doc() = "A causal graph played by events.";
    module.def("play", &play_arrays, nb::arg("first"), nb::arg("target"), nb::arg("causes"),
               nb::arg("trace"), nb::arg("kernel"), nb::arg("change"), nb::arg("gap"),
               nb::arg("work"), nb::arg("pace"), nb::arg("origin"),
               "When every node and every end of a compute kernel takes place; releases the GIL.");
}
