#include "csv.h"

#include "statistics.h"

namespace collscope {

namespace {

using csv::Field;
using csv::joined;
using csv::number;

std::vector<Field> fields_of(const Row& row) {
    const bool timed = !row.samples_us.empty();
    const Summary time = summarise(row.samples_us);
    const auto us = [timed](double value) { return timed ? number(value) : std::string(); };
    const double algbw = algbw_gbps(row);
    const bool rated = timed && row.size_bytes && time.median > 0;
    return {{"op", row.op},
            {"datatype", row.datatype},
            {"redop", row.redop},
            {"root", number(row.root)},
            {"count", number(row.count)},
            {"size_bytes", number(row.size_bytes)},
            {"in_place", row.in_place ? (*row.in_place ? "1" : "0") : ""},
            {"nranks", std::to_string(row.nranks)},
            {"nnodes", std::to_string(row.nnodes)},
            {"calls", number(row.calls)},
            {"time_us_median", us(time.median)},
            {"time_us_min", us(time.min)},
            {"time_us_max", us(time.max)},
            {"time_us_mad", us(time.mad)},
            {"iterations", std::to_string(row.iterations)},
            {"algbw_gbps", rated ? number(algbw) : ""},
            {"busbw_gbps", rated && row.bus_factor ? number(algbw * *row.bus_factor) : ""},
            {"n_wrong", number(row.n_wrong)},
            {"method", row.method},
            {"backend", row.backend},
            {"library", row.library},
            {"device", row.device},
            {"host", row.host},
            {"status", row.status},
            {"class_id", number(row.class_id)},
            {"shape", row.shape},
            {"comms", row.comms},
            {"checked", row.checked},
            {"label", row.label},
            {"round", row.round},
            {"scaled_from", number(row.scaled_from)},
            {"message", row.message},
            {"samples_us", joined(row.samples_us)}};
}

}  // namespace

Row row_of(const Plan& plan, const Class& cls) {
    Row row;
    row.op = name_of(cls.op);
    row.datatype = name_of(cls.datatype);
    row.redop = cls.redop ? std::string(name_of(*cls.redop)) : "";
    row.root = cls.root;
    if (!cls.point_to_point() || cls.count != 0) {
        row.count = cls.count;
    }
    row.size_bytes = cls.size_bytes;
    row.in_place = cls.in_place;
    row.nranks = plan.comms[static_cast<std::size_t>(cls.comms.front())].size();
    row.calls = cls.calls;
    row.bus_factor = bus_factor(cls.op, row.nranks);
    row.class_id = cls.id;
    row.shape = cls.shape;
    row.scaled_from = plan.scaled_from;
    for (const int index : cls.comms) {
        row.comms += (row.comms.empty() ? "" : ",") +
                     std::to_string(plan.comms[static_cast<std::size_t>(index)].id);
    }
    return row;
}

std::optional<double> bus_factor(Op op, int nranks) {
    if (nranks < 2) {
        return std::nullopt;
    }
    const double n = nranks;
    switch (op) {
        case Op::AllReduce:
            return 2 * (n - 1) / n;
        case Op::Broadcast:
        case Op::Reduce:
        case Op::SendRecv:
            return 1;
        default:
            return (n - 1) / n;
    }
}

double algbw_gbps(const Row& row) {
    const double median_us = summarise(row.samples_us).median;
    return median_us > 0 ? static_cast<double>(row.size_bytes.value_or(0)) / median_us / 1e3 : 0;
}

std::string line_of(const Row& row) { return csv::line_of(fields_of(row)); }

std::string header_line() { return csv::header_of(fields_of(Row{})); }

Status CsvWriter::open(const std::string& path, const std::string& kept) {
    has_header_ = !kept.empty();
    return file_.open(path, kept);
}

Status CsvWriter::write_metadata(const Metadata& metadata) {
    std::string text = "# collscope-replay: 1\n";
    for (const auto& [key, value] : metadata) {
        text += csv::comment(key, value) + '\n';
    }
    if (!has_header_) {
        text += header_line() + '\n';
    }
    return file_.write(text);
}

Status CsvWriter::write(const Row& row) { return file_.write(line_of(row) + '\n'); }

Status CsvWriter::write_end() { return file_.write_end(); }

void CsvWriter::write_last(const std::vector<Row>& rows) {
    std::string text;
    for (const Row& row : rows) {
        text += line_of(row) + '\n';
    }
    file_.write_last(text);
}

}  // namespace collscope
