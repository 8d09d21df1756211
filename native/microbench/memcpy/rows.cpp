#include "memcpy/rows.h"

#include "statistics.h"

namespace collscope {

namespace {

using csv::number;

std::vector<csv::Field> fields_of(const CopyRow& row) {
    const bool timed = !row.samples_us.empty();
    const Summary time = summarise(row.samples_us);
    const auto us = [timed](double value) { return timed ? number(value) : std::string(); };
    const bool rated = timed && row.carries && time.median > 0;
    const double gbps = rated ? static_cast<double>(row.size_bytes) / time.median / 1e3 : 0;
    return {{"label", row.label},
            {"round", std::to_string(row.round)},
            {"kind", row.kind},
            {"src_device", number(row.src_device)},
            {"dst_device", number(row.dst_device)},
            {"direction", row.direction},
            {"access", row.access},
            {"size_bytes", std::to_string(row.size_bytes)},
            {"time_us_median", us(time.median)},
            {"time_us_min", us(time.min)},
            {"time_us_max", us(time.max)},
            {"time_us_mad", us(time.mad)},
            {"iterations", std::to_string(row.iterations)},
            {"bandwidth_gbps", rated ? number(gbps) : ""},
            {"n_wrong", number(row.n_wrong)},
            {"checked", row.checked},
            {"status", row.status},
            {"message", row.message},
            {"device", row.device},
            {"runtime", row.runtime},
            {"hostname", row.hostname},
            {"started", row.started},
            {"samples_us", csv::joined(row.samples_us)}};
}

}  // namespace

std::string line_of(const CopyRow& row) { return csv::line_of(fields_of(row)); }

std::string copy_header() { return csv::header_of(fields_of(CopyRow{})); }

Status CopyCsv::open(const std::string& path,
                     const std::vector<std::pair<std::string, std::string>>& metadata) {
    std::string text = "# collscope.memcpy_csv/1\n";
    for (const auto& [key, value] : metadata) {
        text += csv::comment(key, value) + '\n';
    }
    const Status status = file_.open(path, "");
    return status.ok() ? file_.write(text + copy_header() + '\n') : status;
}

Status CopyCsv::write(const CopyRow& row) { return file_.write(line_of(row) + '\n'); }

Status CopyCsv::write_end() { return file_.write_end(); }

void CopyCsv::write_last(const CopyRow& row) { file_.write_last(line_of(row) + '\n'); }

}  // namespace collscope
