#include "csv_text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace collscope::csv {

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

std::string reason(const std::string& path) {
    return path + ": " + std::strerror(errno) + ". Choose a file that can be written with --csv.";
}

}  // namespace

std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value);
    return text.data();
}

std::string joined(const std::vector<double>& samples) {
    const std::size_t step = (samples.size() + most_samples_kept - 1) / most_samples_kept;
    std::string out;
    for (std::size_t i = 0; i < samples.size(); i += step) {
        out += (i == 0 ? "" : ";") + number(samples[i]);
    }
    return out;
}

std::string header_of(const std::vector<Field>& fields) {
    std::string out;
    for (const Field& field : fields) {
        out += (out.empty() ? "" : ",") + std::string(field.first);
    }
    return out;
}

std::string line_of(const std::vector<Field>& fields) {
    std::string out;
    for (const Field& field : fields) {
        out += quoted(field.second) + ',';
    }
    out.pop_back();
    return out;
}

std::string comment(const std::string& key, const std::string& value) {
    std::string line = "# " + key + ": " + value;
    for (char& c : line) {
        c = c == '\n' || c == '\r' ? ' ' : c;
    }
    return line;
}

namespace {

// Text without the lines that say that all rows are there.
std::string unended(const std::string& text) {
    std::string out;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
        const std::string_view line(text.data() + begin, end - begin);
        if (!line.starts_with("# end: ")) {
            out += line;
        }
        begin = end;
    }
    return out;
}

}  // namespace

TextFile::~TextFile() {
    if (file_ != nullptr) {
        std::fclose(file_);
    }
}

Status TextFile::open(const std::string& path, const std::string& kept) {
    const std::lock_guard lock(mutex_);
    path_ = path;
    // What was measured must not be lost when the disk is full: it stays until its copy is written.
    const std::string fresh = kept.empty() ? path : path + ".new";
    file_ = std::fopen(fresh.c_str(), "w");
    if (file_ == nullptr) {
        return {reason(fresh)};
    }
    const Status status = put(unended(kept));
    if (!status.ok() && !kept.empty()) {
        std::remove(fresh.c_str());
    }
    if (status.ok() && !kept.empty() && std::rename(fresh.c_str(), path.c_str()) != 0) {
        return {reason(path)};
    }
    return status;
}

Status TextFile::write(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return closed_ ? Status{} : put(text);
}

Status TextFile::write_end() {
    const std::lock_guard lock(mutex_);
    return closed_ || file_ == nullptr
               ? Status{}
               : put(comment("end", std::to_string(rows_) + " rows") + '\n');
}

void TextFile::write_last(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!closed_ && file_ != nullptr) {
        put(text);
    }
    closed_ = true;
}

void TextFile::count(const std::string& text) {
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string line = text.substr(begin, end - begin);
        if (line.empty() || line.front() == '#') {
            continue;
        }
        if (header_.empty()) {
            header_ = line;
        }
        rows_ += line != header_;
    }
}

Status TextFile::put(const std::string& text) {
    count(text);
    const bool fine = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    return fine && std::fflush(file_) == 0 ? Status{} : Status{reason(path_)};
}

}  // namespace collscope::csv
