#include "csv.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "statistics.h"

namespace collscope {

namespace {

// Python's csv module refuses fields of more than 131072 characters.
constexpr std::size_t most_samples_kept = 4096;

std::string quoted(const std::string& field) {
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
        return field;
    }
    std::string out = "\"";
    for (const char c : field) {
        // One row is one line, so that a file that was cut short can be read up to there.
        out += c == '\n' || c == '\r' ? ' ' : c;
        if (c == '"') {
            out += '"';
        }
    }
    return out + '"';
}

std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value);
    return text.data();
}

template <typename T>
std::string number(const std::optional<T>& value) {
    if (!value) {
        return {};
    }
    if constexpr (std::is_floating_point_v<T>) {
        return number(*value);
    } else {
        return std::to_string(*value);
    }
}

std::string joined(const std::vector<double>& samples) {
    const std::size_t step = (samples.size() + most_samples_kept - 1) / most_samples_kept;
    std::string out;
    for (std::size_t i = 0; i < samples.size(); i += step) {
        out += (i == 0 ? "" : ";") + number(samples[i]);
    }
    return out;
}

using Field = std::pair<const char*, std::string>;

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

std::string reason(const std::string& path) {
    return path + ": " + std::strerror(errno) + ". Choose a file that can be written with --csv.";
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
        case Op::AllReduce: return 2 * (n - 1) / n;
        case Op::Broadcast:
        case Op::Reduce:
        case Op::SendRecv: return 1;
        default: return (n - 1) / n;
    }
}

double algbw_gbps(const Row& row) {
    const double median_us = summarise(row.samples_us).median;
    return median_us > 0 ? static_cast<double>(row.size_bytes.value_or(0)) / median_us / 1e3 : 0;
}

std::string line_of(const Row& row) {
    std::string out;
    for (const Field& field : fields_of(row)) {
        out += quoted(field.second) + ',';
    }
    out.pop_back();
    return out;
}

std::string header_line() {
    std::string out;
    for (const Field& field : fields_of(Row{})) {
        out += std::string(field.first) + ',';
    }
    out.pop_back();
    return out;
}

CsvWriter::~CsvWriter() {
    if (file_ != nullptr) {
        std::fclose(file_);
    }
}

Status CsvWriter::open(const std::string& path, const std::string& kept) {
    path_ = path;
    has_header_ = !kept.empty();
    // What was measured must not be lost when the disk is full: it stays until its copy is written.
    const std::string fresh = has_header_ ? path + ".new" : path;
    file_ = std::fopen(fresh.c_str(), "w");
    if (file_ == nullptr) {
        return {reason(fresh)};
    }
    const Status status = write_text(kept);
    if (status.ok() && has_header_ && std::rename(fresh.c_str(), path.c_str()) != 0) {
        return {reason(path)};
    }
    return status;
}

Status CsvWriter::write_metadata(const Metadata& metadata) {
    std::string text = "# collscope-replay: 1\n";
    for (const auto& [key, value] : metadata) {
        std::string line = "# " + key + ": " + value;
        for (char& c : line) {
            c = c == '\n' || c == '\r' ? ' ' : c;
        }
        text += line + '\n';
    }
    if (!has_header_) {
        text += header_line() + '\n';
    }
    const std::lock_guard lock(mutex_);
    return write_text(text);
}

Status CsvWriter::write(const Row& row) {
    const std::lock_guard lock(mutex_);
    return closed_ ? Status{} : write_text(line_of(row) + '\n');
}

void CsvWriter::write_last(const Row& row) {
    const std::lock_guard lock(mutex_);
    if (!closed_ && file_ != nullptr) {
        write_text(line_of(row) + '\n');
    }
    closed_ = true;
}

Status CsvWriter::write_text(const std::string& text) {
    const bool fine = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    return fine && std::fflush(file_) == 0 ? Status{} : Status{reason(path_)};
}

}  // namespace collscope
