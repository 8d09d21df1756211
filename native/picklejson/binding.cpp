// Python module collscope._picklejson.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "picklejson.h"

namespace nb = nanobind;

namespace {

nb::object convert(const nb::bytes& pickle, const std::string& member, const std::string& key,
                   const std::string& text) {
    std::optional<std::string> found;
    {
        const nb::gil_scoped_release release;
        found = picklejson::convert({pickle.c_str(), pickle.size()}, {member, key, text});
    }
    return found ? nb::object(nb::bytes(found->data(), found->size())) : nb::none();
}

}  // namespace

NB_MODULE(_picklejson, module) {
    module.doc() = "Pickles of plain values as JSON.";
    module.def("convert", &convert, nb::arg("pickle"), nb::arg("member") = "", nb::arg("key") = "",
               nb::arg("text") = "",
               "JSON of a pickle of plain values, without the `member` of dictionaries whose `key` "
               "has the `text`; None of another pickle; releases the GIL.");
}
