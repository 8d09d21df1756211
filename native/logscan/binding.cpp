// Python module collscope._logscan.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "scanner.h"

namespace nb = nanobind;
using namespace logscan;

namespace {

nb::object text(std::string_view bytes) {
    PyObject* decoded =
        PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
    if (decoded == nullptr) {
        throw nb::python_error();
    }
    return nb::steal(decoded);
}

nb::list texts(const std::vector<std::string>& strings) {
    nb::list out;
    for (const std::string& string : strings) {
        out.append(text(string));
    }
    return out;
}

// Moves a column into a numpy array that owns its memory.
template <class T>
nb::object array(Column<T>& column) {
    const std::size_t size = column.size();
    T* data = column.release();
    nb::capsule owner(data != nullptr ? static_cast<void*>(data) : std::malloc(1),
                      [](void* memory) noexcept { std::free(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

nb::dict processes(const std::vector<Process>& rows) {
    nb::list host;
    nb::list pid;
    nb::list prefix;
    nb::list first_line;
    for (const Process& row : rows) {
        host.append(text(row.host));
        pid.append(row.pid);
        prefix.append(text(row.prefix));
        first_line.append(row.first_line);
    }
    nb::dict out;
    out["host"] = host;
    out["pid"] = pid;
    out["prefix"] = prefix;
    out["first_line"] = first_line;
    return out;
}

template <class Table>
nb::dict table(Table& rows) {
    nb::dict out;
    Table::columns([&](const char* name, auto column) { out[name] = array(rows.*column); });
    return out;
}

nb::dict signatures(const std::vector<Signature>& rows) {
    nb::dict out;
    Signature::columns([&]<class T>(const char* name, T Signature::*field) {
        Column<T> column;
        for (const Signature& row : rows) {
            column.push(row.*field);
        }
        out[name] = array(column);
    });
    return out;
}

nb::dict messages(Messages& rows) {
    nb::dict out = table(rows);
    out["text"] = texts(rows.text);
    return out;
}

nb::dict counters(const Result& result) {
    nb::dict out;
    for (std::size_t i = 0; i < counter_count; ++i) {
        out[counter_names[i]] = result.counters[i];
    }
    return out;
}

nb::dict to_python(Result& result) {
    nb::dict out;
    out["processes"] = processes(result.processes);
    out["threads"] = table(result.threads);
    out["ops"] = texts(result.ops.strings());
    out["comms"] = table(result.comms);
    out["signatures"] = signatures(result.signatures.keys());
    out["coll"] = table(result.calls);
    out["groups"] = table(result.groups);
    out["kernel"] = table(result.kernels);
    out["kernel_names"] = texts(result.kernel_names.strings());
    out["tuning"] = table(result.tunings);
    out["tuning_names"] = texts(result.tuning_names.strings());
    out["messages"] = messages(result.messages);
    nb::list samples;
    for (const auto& [line, sample] : result.unknown_samples) {
        samples.append(nb::make_tuple(line, text(sample)));
    }
    out["unknown_samples"] = samples;
    out["counters"] = counters(result);
    nb::list damage;
    for (const Damage& row : result.damage) {
        const char* code = counter_names[static_cast<std::size_t>(row.code)];
        damage.append(nb::make_tuple(row.line, code, text(row.excerpt)));
    }
    out["damage"] = damage;
    return out;
}

// The scanner and whether it was finished: a spent one refuses further work.
class PyScanner {
public:
    void feed(const nb::bytes& data) {
        refuse_if_spent();
        const std::string_view view(data.c_str(), data.size());
        const nb::gil_scoped_release release;
        scanner_.feed(view);
    }

    nb::dict finish() {
        refuse_if_spent();
        spent_ = true;
        Result result = scanner_.finish();
        return to_python(result);
    }

private:
    void refuse_if_spent() const {
        if (spent_) {
            throw std::runtime_error("Scanner: it was finished. Make a new one for each log.");
        }
    }

    Scanner scanner_;
    bool spent_ = false;
};

}  // namespace

NB_MODULE(_logscan, module) {
    module.doc() = "Scanner of NCCL and RCCL text logs: bytes in, columns out.";
    nb::class_<PyScanner>(module, "Scanner", "Scans one log; not for use by two threads at once.")
        .def(nb::init<>())
        .def("feed", &PyScanner::feed, nb::arg("data"),
             "Takes the next piece of the log, cut anywhere. Releases the GIL.")
        .def("finish", &PyScanner::finish,
             "Flushes the last line and returns the columns. The scanner is spent afterwards.");
}
