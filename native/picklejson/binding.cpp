// Python module collscope._picklejson.
#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "picklejson.h"

namespace nb = nanobind;

namespace {

nb::object convert(const nb::bytes& pickle) {
    std::optional<std::string> found;
    {
        const nb::gil_scoped_release release;
        found = picklejson::convert({pickle.c_str(), pickle.size()});
    }
    return found ? nb::object(nb::bytes(found->data(), found->size())) : nb::none();
}

}  // namespace

NB_MODULE(_picklejson, module) {
    module.doc() = "Pickles of plain values as JSON.";
    module.def("convert", &convert, nb::arg("pickle"),
               "JSON of a pickle of plain values, None of another one; releases the GIL.");
}
