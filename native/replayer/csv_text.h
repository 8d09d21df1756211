// Fields of a CSV and the file they go to, for every CSV that the programs write.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend.h"

namespace collscope::csv {

using Field = std::pair<const char*, std::string>;  // column and value

std::string number(double value);  // 6 digits
template <typename T>
std::string number(const std::optional<T>& value) {
    if (!value) {
        return {};
    }
    if constexpr (std::is_floating_point_v<T>) {
        return number(static_cast<double>(*value));
    } else {
        return std::to_string(*value);
    }
}
// Parted by `;`; of more than 4096 every n-th, so that they are at most that many.
std::string joined(const std::vector<double>& samples);

// One line each, without the line's end; values are quoted where needed and kept on one line.
std::string header_of(const std::vector<Field>& fields);
std::string line_of(const std::vector<Field>& fields);
// "# key: value"
std::string comment(const std::string& key, const std::string& value);

// A text file whose every line is on disk when write returns. Thread-safe: the watchdog writes the
// last line while another thread may be about to write.
class TextFile {
public:
    TextFile() = default;
    ~TextFile();
    TextFile(const TextFile&) = delete;
    TextFile& operator=(const TextFile&) = delete;

    // Makes `path` anew, beginning with `kept` without its last line.
    Status open(const std::string& path, const std::string& kept);
    Status write(const std::string& text);
    // "# end: N rows" as the last line: all rows are there. What is added later takes it away.
    Status write_end();
    // Writes, if the file is open, and lets nothing follow.
    void write_last(const std::string& text);

private:
    Status put(const std::string& text);
    void count(const std::string& text);

    std::mutex mutex_;
    bool closed_ = false;
    std::string path_;
    std::FILE* file_ = nullptr;
    std::string header_;  // the first line that is no comment; joined files have it again
    std::uint64_t rows_ = 0;
};

}  // namespace collscope::csv
