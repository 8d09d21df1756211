#include "source.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "messages.h"

namespace collscope::tuner {

namespace {

constexpr std::size_t most_bytes = std::size_t{16} << 20;

// The variable of NVIDIA's example plugin is read as well, so that its files need no other setting.
std::string named_path() {
    for (const char* variable : {"COLLSCOPE_TUNER_CSV", "NCCL_TUNER_CONFIG_FILE"}) {
        if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') {
            return value;
        }
    }
    return {};
}

struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

// False, with a reason, when the file cannot be read or is no such file by its size.
bool read(const std::string& path, std::string& text, std::string& error) {
    const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rbe"));
    if (!file) {
        error = "cannot be opened";
        return false;
    }
    char buffer[65536];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
        if (text.size() + got > most_bytes) {
            error = "larger than 16 MiB";
            return false;
        }
        text.append(buffer, got);
    }
    if (std::ferror(file.get()) != 0) {
        error = "cannot be read";
        return false;
    }
    return true;
}

// FNV-1a, 64 bit.
std::uint64_t digest_of(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    }
    return hash;
}

Source load() {
    Source source;
    source.path = named_path();
    if (source.path.empty()) {
        source.parsed.error = "no file is named";
        return source;
    }
    std::string text;
    if (read(source.path, text, source.parsed.error)) {
        source.digest = digest_of(text);
        source.parsed = parse_csv(text);
    }
    return source;
}

// At most one warning: nothing of the file is used, or some of its rows are not.
void warn(const Source& source, Logger log) {
    const Parsed& parsed = source.parsed;
    if (source.path.empty()) {
        say(log, log_warn,
            "no CSV: the library chooses. Set COLLSCOPE_TUNER_CSV to a file of collscope tune, "
            "or unset NCCL_TUNER_PLUGIN.");
    } else if (!parsed.error.empty()) {
        say(log, log_warn, "%s: %s: the library chooses. Write it again with collscope tune.",
            source.path.c_str(), parsed.error.c_str());
    } else if (parsed.bad_rows > 0) {
        say(log, log_warn,
            "%s: %s. %d of %zu rows are left out. Write it again with collscope tune.",
            source.path.c_str(), parsed.bad_row.c_str(), parsed.bad_rows,
            parsed.rows.size() + static_cast<std::size_t>(parsed.bad_rows));
    }
}

Source load_and_warn(Logger log) noexcept {
    try {
        Source source = load();
        warn(source, log);
        return source;
    } catch (...) {
        say(log, log_warn, "out of memory: the library chooses.");
        return {};
    }
}

}  // namespace

const Source& source(Logger log) {
    static const Source once = load_and_warn(log);
    return once;
}

}  // namespace collscope::tuner
