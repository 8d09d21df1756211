#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "csv.h"

namespace collscope {

namespace {

// Fields of one line; quoted fields hold no line ends (csv.cpp).
std::vector<std::string> split(std::string_view line) {
    std::vector<std::string> out(1);
    bool inside = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (inside && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
            out.back() += line[++i];
        } else if (c == '"') {
            inside = !inside;
        } else if (c == ',' && !inside) {
            out.emplace_back();
        } else {
            out.back() += c;
        }
    }
    return out;
}

struct Columns {
    std::size_t op = 0, status = 0, method = 0, class_id = 0, label = 0, round = 0, all = 0;

    Columns() {
        const std::vector<std::string> names = split(header_line());
        all = names.size();
        for (std::size_t i = 0; i < names.size(); ++i) {
            op = names[i] == "op" ? i : op;
            status = names[i] == "status" ? i : status;
            method = names[i] == "method" ? i : method;
            class_id = names[i] == "class_id" ? i : class_id;
            label = names[i] == "label" ? i : label;
            round = names[i] == "round" ? i : round;
        }
    }
};

// The rows of this label and round.
struct Mine {
    const Columns& columns;
    const std::string& label;
    const std::string& round;

    bool has(const std::vector<std::string>& fields) const {
        return fields[columns.label] == label && fields[columns.round] == round;
    }
};

// Whether mode sequence has its last row. Its classes are measured together, in one pass: without
// that row all of them are measured anew.
bool ends_in_sequence(const std::string& text, const Mine& mine) {
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::vector<std::string> fields = split(text.substr(begin, end - begin));
        if (fields.size() == mine.columns.all && mine.has(fields) &&
            fields[mine.columns.op] == "Sequence" && fields[mine.columns.status] == "ok") {
            return true;
        }
    }
    return false;
}

}  // namespace

Kept keep_finished(const std::string& text, const std::string& digest, const std::string& label,
                   const std::string& round) {
    const Columns columns;
    const std::string header = header_line();
    const std::string plan_key = "# plan: ";
    const Mine mine{columns, label, round};
    Kept out;
    out.sequence_finished = ends_in_sequence(text, mine);
    bool has_header = false;
    std::size_t begin = 0;
    // What follows the last line end was cut off while it was written.
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = text.substr(begin, end - begin);
        if (line.starts_with(plan_key) && line.substr(plan_key.size()) != digest) {
            out.error = "it holds results of another plan";
            return out;
        }
        if (line.starts_with("#") || line == header) {
            has_header = has_header || line == header;
            out.text += line + '\n';
            continue;
        }
        const std::vector<std::string> fields = split(line);
        if (!has_header || fields.size() != columns.all) {
            out.error = "it is not a result file of this version";
            return out;
        }
        const bool in_sequence = fields[columns.method] == "sequence";
        if (mine.has(fields) &&
            (fields[columns.status] != "ok" || (in_sequence && !out.sequence_finished))) {
            continue;
        }
        out.text += line + '\n';
        if (mine.has(fields) && !in_sequence) {
            int id = 0;
            const std::string& field = fields[columns.class_id];
            std::from_chars(field.data(), field.data() + field.size(), id);
            out.finished.insert(id);
        }
    }
    if (!has_header) {
        out.text.clear();  // nothing but metadata, perhaps torn: begin anew
    }
    return out;
}

Kept keep_all(const std::string& text) {
    Kept out;
    out.text = text.substr(0, text.rfind('\n') + 1);
    if (out.text.find(header_line() + '\n') == std::string::npos) {
        out.error = text.empty() ? "" : "it is not a result file of this version";
        out.text.clear();
    }
    return out;
}

}  // namespace collscope
