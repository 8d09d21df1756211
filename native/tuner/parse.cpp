#include <array>
#include <charconv>
#include <limits>

#include "table.h"

namespace collscope::tuner {

namespace {

constexpr std::array<std::string_view, collectives> collective_names = {
    "broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
constexpr std::array<std::string_view, algorithms> algorithm_names = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, protocols> protocol_names = {"ll", "ll128", "simple"};

constexpr std::string_view marker = "# collscope.tuner_csv/";
constexpr int most_channels = 128;  // RCCL's limit; NCCL's is 64
constexpr std::size_t fewest_fields = 6;
constexpr std::size_t most_fields = 10;
constexpr std::int64_t any = -1;

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const std::size_t first = text.find_first_not_of(blanks);
    return first == std::string_view::npos
               ? std::string_view()
               : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

template <typename T>
bool whole_number(std::string_view text, T& value) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

template <std::size_t N>
bool named(const std::array<std::string_view, N>& names, std::string_view text, int& code) {
    for (std::size_t i = 0; i < N; ++i) {
        if (names[i] == text) {
            code = static_cast<int>(i);
            return true;
        }
    }
    return false;
}

// From `least` to `most`, or -1.
bool limited(std::string_view text, std::int64_t least, std::int64_t most, std::int64_t& value) {
    return whole_number(text, value) && (value == any || (value >= least && value <= most));
}

struct Fields {
    std::array<std::string_view, most_fields> text;
    std::size_t count = 0;
};

// False: more fields than there are columns.
bool split(std::string_view line, Fields& fields) {
    while (fields.count < most_fields) {
        const std::size_t comma = line.find(',');
        fields.text[fields.count++] = trimmed(line.substr(0, comma));
        if (comma == std::string_view::npos) {
            return true;
        }
        line.remove_prefix(comma + 1);
    }
    return false;
}

bool parse_sizes(const Fields& fields, Row& row) {
    if (!whole_number(fields.text[1], row.min_bytes)) {
        return false;
    }
    if (fields.text[2] == "-1") {
        row.max_bytes = std::numeric_limits<std::uint64_t>::max();
        return true;
    }
    return whole_number(fields.text[2], row.max_bytes) && row.min_bytes <= row.max_bytes;
}

// Columns from the sixth on; those that a line lacks stay -1.
bool parse_rest(const Fields& fields, Row& row) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    constexpr std::array<std::int64_t, 5> least = {1, 1, 1, 0, 0};
    constexpr std::array<std::int64_t, 5> largest = {most_channels, most, most, most, 1};
    std::array<std::int64_t, 5> values = {any, any, any, any, any};
    for (std::size_t i = 0; i + 5 < fields.count; ++i) {
        if (!limited(fields.text[i + 5], least[i], largest[i], values[i])) {
            return false;
        }
    }
    row.channels = static_cast<int>(values[0]);
    row.nnodes = values[1];
    row.nranks = values[2];
    row.pipe_ops = static_cast<int>(values[3]);
    row.registered = static_cast<int>(values[4]);
    return true;
}

// Null when the row is whole, else what is wrong with it.
//   allreduce,65537,1048576,ring,simple,4,4,32,1,0
const char* parse_row(std::string_view line, Row& row) {
    Fields fields;
    if (!split(line, fields) || fields.count < fewest_fields) {
        return "not 6 to 10 columns";
    }
    if (!named(collective_names, fields.text[0], row.collective)) {
        return "unknown collective";
    }
    if (!parse_sizes(fields, row)) {
        return "the sizes are not two increasing numbers";
    }
    if (!named(algorithm_names, fields.text[3], row.algorithm)) {
        return "unknown algorithm";
    }
    if (!named(protocol_names, fields.text[4], row.protocol)) {
        return "unknown protocol";
    }
    return parse_rest(fields, row) ? nullptr : "channels or a condition is out of range";
}

void note_bad(Parsed& parsed, int line, const char* what) {
    if (parsed.bad_rows++ == 0) {
        parsed.bad_row = "line " + std::to_string(line) + ": " + what;
    }
}

Parsed refused(std::string error) {
    Parsed parsed;
    parsed.error = std::move(error);
    return parsed;
}

template <std::size_t N>
const char* name_of(const std::array<std::string_view, N>& names, int code) {
    return code >= 0 && code < static_cast<int>(N) ? names[static_cast<std::size_t>(code)].data()
                                                   : "unknown";
}

}  // namespace

Parsed parse_csv(std::string_view text) {
    Parsed parsed;
    for (int line = 1; !text.empty(); ++line) {
        const std::size_t end = text.find('\n');
        const std::string_view content = trimmed(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (content.starts_with(marker) && content.substr(marker.size()) != "1") {
            return refused("a format that this plugin does not know");
        }
        if (content.empty() || content.front() == '#') {
            continue;
        }
        Row row;
        row.line = line;
        if (const char* what = parse_row(content, row); what != nullptr) {
            note_bad(parsed, line, what);
        } else if (parsed.rows.size() == most_rows) {
            return refused("more than " + std::to_string(most_rows) + " rows");
        } else {
            parsed.rows.push_back(row);
        }
    }
    if (parsed.rows.empty()) {
        parsed.error = parsed.bad_rows == 0 ? "no rows" : "no usable row (" + parsed.bad_row + ")";
    }
    return parsed;
}

const char* collective_name(int collective) { return name_of(collective_names, collective); }
const char* algorithm_name(int algorithm) { return name_of(algorithm_names, algorithm); }
const char* protocol_name(int protocol) { return name_of(protocol_names, protocol); }

}  // namespace collscope::tuner
