// Python module collscope._tracescan.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

#include "../owned_array.h"
#include "scan.h"

namespace nb = nanobind;
using namespace tracescan;

namespace {

template <class T>
nb::object array(std::vector<T>& column) {
    return nb::cast(owned_array(std::move(column)));
}

nb::list written(const Table& table) {
    nb::list out;
    for (const std::string_view value : table.values) {
        out.append(nb::bytes(value.data(), value.size()));
    }
    return out;
}

nb::dict gpu(Gpu& rows) {
    nb::dict out;
    out["kind"] = array(rows.kind);
    out["name"] = array(rows.name);
    out["stream"] = array(rows.stream);
    out["start_us"] = array(rows.start_us);
    out["duration_us"] = array(rows.duration_us);
    out["correlation"] = array(rows.correlation);
    out["seq"] = array(rows.seq);
    out["event"] = array(rows.event);
    out["begin"] = array(rows.begin);
    out["end"] = array(rows.end);
    return out;
}

nb::dict calls(Calls& rows) {
    nb::dict out;
    out["name"] = array(rows.name);
    out["thread"] = array(rows.thread);
    out["start_us"] = array(rows.start_us);
    out["duration_us"] = array(rows.duration_us);
    out["correlation"] = array(rows.correlation);
    return out;
}

nb::dict others(Others& rows) {
    nb::dict out;
    out["event"] = array(rows.event);
    out["begin"] = array(rows.begin);
    out["end"] = array(rows.end);
    return out;
}

nb::dict to_python(Events& found) {
    nb::dict out;
    out["gpu"] = gpu(found.gpu);
    out["calls"] = calls(found.calls);
    out["others"] = others(found.others);
    out["names"] = written(found.names);
    out["devices"] = written(found.devices);
    out["streams"] = written(found.streams);
    out["stream_first"] = array(found.devices.first);
    out["call_names"] = written(found.call_names);
    out["threads"] = written(found.threads);
    out["thread_first"] = array(found.threads.first);
    out["bad"] = found.bad;
    out["origin_us"] = found.origin_us;
    out["cpu"] = found.cpu;
    return out;
}

nb::object scan_events(const nb::bytes& text, std::size_t end, bool exact, std::int64_t origin_us) {
    if (end > text.size()) {
        throw nb::value_error("end is beyond the text");
    }
    std::optional<Events> found;
    {
        const nb::gil_scoped_release release;
        found = scan({text.c_str(), end}, exact, origin_us);
    }
    return found ? nb::object(to_python(*found)) : nb::none();
}

}  // namespace

NB_MODULE(_tracescan, module) {
    module.doc() = "Scanner of PyTorch profiler traces: JSON text in, columns out.";
    module.def("scan", &scan_events, nb::arg("text"), nb::arg("end"), nb::arg("exact"),
               nb::arg("origin_us"),
               "Columns of the events in a text, None where one is not plain; releases the GIL.");
}
