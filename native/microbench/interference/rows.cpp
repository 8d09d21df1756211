#include "interference/rows.h"

#include <cmath>

#include "statistics.h"

namespace collscope {

namespace {

constexpr double sigma_of_mad = 1.4826;  // of a normal distribution

using csv::number;

std::string median_of(const std::vector<double>& values) {
    return values.empty() ? "" : number(summarise(values).median);
}

std::string mad_of(const std::vector<double>& values) {
    return values.empty() ? "" : number(summarise(values).mad);
}

std::string busbw_of(const Row& of_class, const std::vector<double>& us) {
    Row timed = of_class;
    timed.samples_us = us;
    const double algbw = algbw_gbps(timed);
    return algbw > 0 && of_class.bus_factor ? number(algbw * *of_class.bus_factor) : "";
}

std::vector<csv::Field> fields_of(const InterferenceRow& row) {
    const Row& of = row.of_class;
    const Disturbance& d = row.measured;
    const std::vector<double> compute = relative(d.compute_alone_us, d.compute_with_us);
    const std::vector<double> busbw = relative(d.comm_alone_us, d.comm_with_us);
    return {{"label", of.label},
            {"round", of.round},
            {"op", of.op},
            {"datatype", of.datatype},
            {"redop", of.redop},
            {"size_bytes", number(of.size_bytes)},
            {"count", number(of.count)},
            {"shape", of.shape},
            {"nranks", std::to_string(of.nranks)},
            {"nnodes", std::to_string(of.nnodes)},
            {"in_place", of.in_place ? (*of.in_place ? "1" : "0") : ""},
            {"rank", std::to_string(row.rank)},
            {"backend", of.backend},
            {"compute", row.compute},
            {"compute_description", row.description},
            {"channels", row.channels},
            {"priority", row.priority},
            {"compute_alone_us", median_of(d.compute_alone_us)},
            {"compute_with_us", median_of(d.compute_with_us)},
            {"relative_compute", median_of(compute)},
            {"relative_compute_mad", mad_of(compute)},
            {"relative_compute_noise", number(noise_of(d.compute_alone_us))},
            {"comm_alone_us", median_of(d.comm_alone_us)},
            {"comm_with_us", median_of(d.comm_with_us)},
            {"relative_busbw", median_of(busbw)},
            {"relative_busbw_mad", mad_of(busbw)},
            {"relative_busbw_noise", number(noise_of(d.comm_alone_us))},
            {"busbw_alone_gbps", busbw_of(of, d.comm_alone_us)},
            {"busbw_with_gbps", busbw_of(of, d.comm_with_us)},
            {"samples", std::to_string(d.taken)},
            {"covered", std::to_string(d.compute_with_us.size())},
            {"multiprocessors", number(row.multiprocessors)},
            {"device", of.device},
            {"library", of.library},
            {"runtime", row.runtime},
            {"hostname", of.host},
            {"environment", row.environment},
            {"status", of.status},
            {"message", of.message},
            {"relative_compute_samples", csv::joined(compute)},
            {"relative_busbw_samples", csv::joined(busbw)}};
}

}  // namespace

std::vector<double> relative(const std::vector<double>& alone, const std::vector<double>& with) {
    std::vector<double> out;
    for (std::size_t i = 0; i < with.size() && i + 1 < alone.size(); ++i) {
        out.push_back((alone[i] + alone[i + 1]) / 2 / with[i]);
    }
    return out;
}

std::optional<double> noise_of(const std::vector<double>& alone) {
    std::vector<double> off;
    for (std::size_t i = 1; i < alone.size(); ++i) {
        off.push_back(std::abs(alone[i - 1] / alone[i] - 1));
    }
    if (off.empty()) {
        return std::nullopt;
    }
    return sigma_of_mad * summarise(off).median;
}

std::string line_of(const InterferenceRow& row) { return csv::line_of(fields_of(row)); }

std::string interference_header() { return csv::header_of(fields_of(InterferenceRow{})); }

}  // namespace collscope
