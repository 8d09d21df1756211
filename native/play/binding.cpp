// Python module collscope._play.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
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
using Flags = Array<bool>;

template <typename Value>
std::span<const Value> span_of(const Array<Value>& array) {
    return {array.data(), array.size()};
}

play::Flags flags_of(const std::optional<Flags>& flags) {
    return flags ? span_of(*flags) : play::Flags{};
}

void make_player(play::Player* self, const Numbers& first, const Numbers& target,
                 const Numbers& lasted, const Flags& host, const Times& gap,
                 const Times& unexplained, const Numbers& trace, const Numbers& kernel,
                 const Numbers& change, const Numbers& part, std::size_t parts) {
    const play::Network network{
        span_of(first),       span_of(target), span_of(lasted), span_of(host),   span_of(gap),
        span_of(unexplained), span_of(trace),  span_of(kernel), span_of(change), span_of(part)};
    const nb::gil_scoped_release release;
    new (self) play::Player(network, parts);
}

OwnedArray<double> play_once(play::Player& self, const Times& work, const Times& lasting,
                             const Times& transfer, const Times& alone, const Times& pace,
                             double unexplained, const std::optional<Flags>& at_once,
                             const std::optional<Flags>& behind_host) {
    const play::Durations durations{span_of(work),     span_of(lasting),     span_of(transfer),
                                    span_of(alone),    span_of(pace),        unexplained,
                                    flags_of(at_once), flags_of(behind_host)};
    std::vector<double> times;
    {
        const nb::gil_scoped_release release;
        times = self.play(durations);
    }
    return owned_array(std::move(times));
}

}  // namespace

NB_MODULE(_play, module) {
    // A command that is interrupted ends while a player lives; that is no word to its user.
    nb::set_leak_warnings(false);
    module.doc() = "A causal graph played by events.";
    nb::class_<play::Player>(module, "Player",
                             "Plays a network with one set of durations after another.")
        .def("__init__", &make_player, nb::arg("first"), nb::arg("target"), nb::arg("lasted"),
             nb::arg("host"), nb::arg("gap"), nb::arg("unexplained"), nb::arg("trace"),
             nb::arg("kernel"), nb::arg("change"), nb::arg("part"), nb::arg("parts"))
        .def("play", &play_once, nb::arg("work"), nb::arg("lasting"), nb::arg("transfer"),
             nb::arg("alone"), nb::arg("pace"), nb::arg("unexplained") = 1.0,
             nb::arg("at_once") = nb::none(), nb::arg("behind_host") = nb::none(),
             "When every node and every end of a compute kernel takes place; releases the GIL.");
}
