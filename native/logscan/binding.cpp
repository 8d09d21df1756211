// Python module collscope._logscan.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "paired.h"

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

nb::dict threads(Threads& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["tid"] = array(rows.tid);
    return out;
}

nb::dict comms(Comms& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["ptr"] = array(rows.ptr);
    out["nranks"] = array(rows.nranks);
    out["global_rank"] = array(rows.global_rank);
    out["generation"] = array(rows.generation);
    return out;
}

nb::dict signatures(const std::vector<Signature>& rows) {
    Column<std::uint32_t> op;
    Column<std::uint64_t> count;
    Column<std::int32_t> datatype;
    Column<std::int32_t> redop;
    Column<std::int32_t> root;
    Column<std::int32_t> nranks;
    Column<std::uint8_t> flags;
    for (const Signature& row : rows) {
        op.push(row.op);
        count.push(row.count);
        datatype.push(row.datatype);
        redop.push(row.redop);
        root.push(row.root);
        nranks.push(row.nranks);
        flags.push(static_cast<std::uint8_t>(row.flags));
    }
    nb::dict out;
    out["op"] = array(op);
    out["count"] = array(count);
    out["datatype"] = array(datatype);
    out["redop"] = array(redop);
    out["root"] = array(root);
    out["nranks"] = array(nranks);
    out["flags"] = array(flags);
    return out;
}

nb::dict calls(Calls& rows) {
    nb::dict out;
    out["comm"] = array(rows.comm);
    out["sig"] = array(rows.sig);
    out["op_count"] = array(rows.op_count);
    out["slot"] = array(rows.slot);
    out["task"] = array(rows.task);
    out["thread"] = array(rows.thread);
    out["line"] = array(rows.line);
    out["source"] = array(rows.source);
    return out;
}

nb::dict groups(Groups& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["thread"] = array(rows.thread);
    out["line"] = array(rows.line);
    out["delta"] = array(rows.delta);
    return out;
}

nb::dict kernels(Kernels& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["kind"] = array(rows.kind);
    out["time_ns"] = array(rows.time_ns);
    out["rank"] = array(rows.rank);
    out["block"] = array(rows.block);
    out["channel"] = array(rows.channel);
    out["thread"] = array(rows.thread);
    out["op_count"] = array(rows.op_count);
    out["op_count2"] = array(rows.op_count2);
    out["name"] = array(rows.name);
    out["bus_id"] = array(rows.bus_id);
    out["nranks"] = array(rows.nranks);
    out["comm_ptr"] = array(rows.comm_ptr);
    out["root"] = array(rows.root);
    out["nc"] = array(rows.nc);
    out["line"] = array(rows.line);
    return out;
}

nb::dict tunings(Tunings& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["thread"] = array(rows.thread);
    out["line"] = array(rows.line);
    out["kind"] = array(rows.kind);
    out["op"] = array(rows.op);
    out["bytes"] = array(rows.bytes);
    out["algorithm"] = array(rows.algorithm);
    out["protocol"] = array(rows.protocol);
    out["kernel"] = array(rows.kernel);
    out["channels"] = array(rows.channels);
    out["time_us"] = array(rows.time_us);
    out["comm_ptr"] = array(rows.comm_ptr);
    return out;
}

nb::dict messages(Messages& rows) {
    nb::dict out;
    out["process"] = array(rows.process);
    out["thread"] = array(rows.thread);
    out["line"] = array(rows.line);
    out["kind"] = array(rows.kind);
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
    out["threads"] = threads(result.threads);
    out["ops"] = texts(result.ops.strings());
    out["comms"] = comms(result.comms);
    out["signatures"] = signatures(result.signatures.keys());
    out["coll"] = calls(result.calls);
    out["groups"] = groups(result.groups);
    out["kernel"] = kernels(result.kernels);
    out["kernel_names"] = texts(result.kernel_names.strings());
    out["tuning"] = tunings(result.tunings);
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

    PairedScanner scanner_;
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
