#include "origin.h"

#include <algorithm>

#include "text.h"

namespace logscan {

namespace {

constexpr std::size_t prefix_bytes = 200;
constexpr std::size_t glue_search_limit = 4096;  // processes of one pid

// "NCCL INFO Bootstrap : Using eth0", "NCCL CALL ncclAllReduce(...)"; the word may end the line.
bool level_at(std::string_view text, Anchor& anchor) {
    struct Word {
        std::string_view text;
        Level level;
    };
    static constexpr Word words[] = {
        {"INFO", Level::info},   {"WARN", Level::warn},  {"CALL", Level::call},
        {"TRACE", Level::trace}, {"ABORT", Level::warn}, {"ATTN", Level::warn},
    };
    constexpr std::size_t lead = 5;  // "NCCL "
    for (const Word& word : words) {
        if (!text.substr(lead).starts_with(word.text)) {
            continue;
        }
        const std::size_t end = lead + word.text.size();
        if (end < text.size() && !is_blank(text[end])) {
            return false;
        }
        anchor.level = word.level;
        anchor.message = anchor.begin + (end < text.size() ? end + 1 : end);
        return true;
    }
    return false;
}

Anchor find_fatal(std::string_view line, std::size_t from) {
    // RCCL (rocm-systems debug.cc): "host:pid:tid [0] [FATAL ERROR]: text"
    constexpr std::string_view word = "[FATAL ERROR]";
    const std::size_t at = find(line.substr(from), word);
    if (at == npos) {
        return {npos, npos, Level::warn};
    }
    return {from + at, from + at + word.size(), Level::warn};
}

// Offset of "[dev]" when `line` ends with it before `end`, else npos: "host:1:2 [0]".
std::size_t device_before(std::string_view line, std::size_t end) {
    if (end < 3 || line[end - 1] != ']') {
        return npos;
    }
    std::size_t at = end - 1;
    while (at > 0 && (is_digit(line[at - 1]) || line[at - 1] == '-')) {
        --at;
    }
    return at > 0 && at < end - 1 && line[at - 1] == '[' ? at - 1 : npos;
}

// Start of ":digits" that ends at `end`, npos if there is none; `value` are the digits.
std::size_t number_before(std::string_view line, std::size_t end, std::uint64_t& value) {
    std::size_t at = end;
    while (at > 0 && is_digit(line[at - 1])) {
        --at;
    }
    if (at == end || at == 0 || line[at - 1] != ':') {
        return npos;
    }
    Cursor digits(line.substr(at, end - at));
    return digits.take_decimal(value) ? at - 1 : npos;
}

// Launchers that leave no blank before the host: Open MPI "[1,0]<stdout>:", torchrun "[default0]:".
bool ends_tag(std::string_view line, std::size_t at) {
    return at >= 2 && line[at - 1] == ':' && (line[at - 2] == '>' || line[at - 2] == ']');
}

std::size_t host_begin(std::string_view line, std::size_t end) {
    std::size_t at = end;
    while (at > 0 && !is_blank(line[at - 1]) && !ends_tag(line, at)) {
        --at;
    }
    if (at > 0 && line[at - 1] == '\x1b') {  // a colour code: "ESC[36mhost"
        std::size_t code = at + 1;
        while (code < end && (is_digit(line[code]) || line[code] == ';')) {
            ++code;
        }
        at = code < end ? code + 1 : at;
    }
    while (at < end && std::string_view("\"'`(>|").find(line[at]) != npos) {
        ++at;
    }
    return at;
}

// Text that a torn record leaves before the host it is glued to.
bool looks_torn(std::string_view before) {
    for (const std::string_view word : {"opCount ", "stream ", "globalrank ", "busId ", "comm "}) {
        if (contains(before, word)) {
            return true;
        }
    }
    return false;
}

// "-1", "0", "185.3": what a cell of a table holds.
bool is_number(std::string_view text) {
    const std::size_t sign = text.starts_with("-") ? 1 : 0;
    return text.size() > sign && text.find_first_not_of("0123456789.", sign) == npos;
}

// "[1", "node1:12": a character that no host has in its name.
bool is_no_name(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) {
        return !(is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                 c == '.' || c == '_');
    });
}

// "          64            16     float     ", half a row of nccl-tests: two numbers begin it.
bool begins_row(std::string_view before) {
    std::size_t at = 0;
    for (int number = 0; number < 2; ++number) {
        while (at < before.size() && is_blank(before[at])) {
            ++at;
        }
        const std::size_t begin = at;
        while (at < before.size() && is_digit(before[at])) {
            ++at;
        }
        if (at == begin || at == before.size() || !is_blank(before[at])) {
            return false;
        }
    }
    return true;
}

// "nod" of "node1:12:12 [0] NCCL INFO", once or several times.
bool begins_record(std::string_view host, std::string_view text) {
    while (!text.empty()) {
        std::size_t same = 0;
        while (same < text.size() && same < host.size() && text[same] == host[same]) {
            ++same;
        }
        if (same == 0) {
            return false;
        }
        text.remove_prefix(same);
    }
    return true;
}

}  // namespace

Anchor find_anchor(std::string_view line, std::size_t from) {
    const char* const base = line.data();
    const char* const end = base + line.size();
    for (const char* p = base + from; p < end; ++p) {
        p = static_cast<const char*>(std::memchr(p, 'N', static_cast<std::size_t>(end - p)));
        if (p == nullptr || end - p < 9) {
            break;
        }
        if (std::memcmp(p, "NCCL ", 5) != 0 || (p != base && !is_blank(p[-1]))) {
            continue;
        }
        Anchor anchor{static_cast<std::size_t>(p - base), 0, Level::info};
        if (level_at(line.substr(anchor.begin), anchor)) {
            return anchor;
        }
    }
    return find_fatal(line, from);
}

bool Origins::split_source(std::string_view line, std::size_t end, Source& source) {
    std::uint64_t tid = 0;
    const std::size_t tid_colon = number_before(line, end, tid);
    if (tid_colon == npos) {
        return false;
    }
    const std::size_t pid_colon = number_before(line, tid_colon, source.pid);
    if (pid_colon == npos) {
        return false;
    }
    source.begin = host_begin(line, pid_colon);
    source.host = line.substr(source.begin, pid_colon - source.begin);
    source.tid = static_cast<std::int64_t>(tid & INT64_MAX);
    return !source.host.empty();
}

// Writers that share a pipe glue lines: "count 26843node1:12:12 [0] NCCL INFO ...". The host seems
// to be "26843node1"; one already known that ends it, with the same pid, is the likelier reading.
// At the beginning of a line what stands before it must be no part of a host's name:
//     "  8388608  2097152  float  sum  -1node1:12:12 [1]", half a row of nccl-tests; of one before
//     2.13, which prints no root: "  8388608  2097152  float  sumnode1:12:12 [1]"
//     "nodenode1:12:12 [0]", the beginning of another record
void Origins::drop_glued_text(std::string_view line, std::size_t after, Source& source) {
    const auto alike = of_pid_.find(source.pid);
    if (alike == of_pid_.end() || alike->second.size() > glue_search_limit) {
        return;
    }
    const std::string_view before = line.substr(0, source.begin);
    const bool torn = after != 0 || looks_torn(before) || begins_row(before);
    std::size_t best = 0;
    for (const std::uint32_t process : alike->second) {
        const std::string_view host = result_.processes[process].host;
        if (host.size() <= best || source.host.size() <= host.size() ||
            !source.host.ends_with(host)) {
            continue;
        }
        const std::string_view glued = source.host.substr(0, source.host.size() - host.size());
        if (torn || is_number(glued) || is_no_name(glued) || begins_record(host, glued)) {
            best = host.size();
        }
    }
    if (best > 0) {
        source.begin += source.host.size() - best;
        source.host.remove_prefix(source.host.size() - best);
    }
}

// "64 16 float sumnode1:12:12 [1]" may be the first line of a process. Its host seems to be
// "sumnode1" until a line of "node1" with that pid comes: then the process has that host.
std::uint32_t Origins::find_seen_glued(const Process& found) {
    const auto alike = of_pid_.find(found.pid);
    if (alike == of_pid_.end() || alike->second.size() > glue_search_limit) {
        return NONE;
    }
    for (const std::uint32_t process : alike->second) {
        Process& seen = result_.processes[process];
        if (seen.host.size() > found.host.size() && seen.host.ends_with(found.host) &&
            begins_row(seen.prefix)) {
            seen.host = found.host;
            seen.prefix = found.prefix;
            return process;
        }
    }
    return NONE;
}

std::uint32_t Origins::find_process(Process found) {
    // A line without a host is known by what its launcher put before it.
    std::string key = found.host.empty() ? found.prefix : found.host;
    key.push_back('\0');
    key += found.host.empty() ? "-" : std::to_string(found.pid);
    if (host_after_row_ && !found.host.empty()) {
        const auto renamed = renamed_.find(key);
        const std::uint32_t seen =
            renamed == renamed_.end() ? find_seen_glued(found) : renamed->second;
        if (seen != NONE) {
            renamed_.emplace(std::move(key), seen);
            return seen;
        }
    }
    const std::uint32_t process = process_keys_.intern(key);
    if (process == result_.processes.size()) {
        if (!found.host.empty()) {
            of_pid_[found.pid].push_back(process);
            host_after_row_ = host_after_row_ || begins_row(found.prefix);
        }
        result_.processes.push_back(std::move(found));
        cache_.fill({});  // what looked like a host may now be text glued to this one
    }
    return process;
}

std::uint32_t Origins::find_thread(std::uint32_t process, std::int64_t tid) {
    const std::uint32_t thread = threads_.intern({process, tid});
    if (thread == result_.threads.tid.size()) {
        result_.threads.process.push(process);
        result_.threads.tid.push(tid);
    }
    return thread;
}

Origin Origins::resolve(std::string_view line, const Anchor& anchor, std::size_t after,
                        std::uint64_t line_number) {
    // The record's prefix ends before " [dev] NCCL INFO", or before " NCCL CALL" without a device.
    std::size_t end = anchor.begin > after ? anchor.begin - 1 : anchor.begin;
    std::size_t device = device_before(line, end);
    std::size_t place = anchor.begin;
    if (device == npos && (anchor.level == Level::warn || anchor.level == Level::trace)) {
        // "host:1:2 [0] transport/net.cc:12 (ncclNetInit) NCCL WARN text"
        for (std::size_t at = end; at > after + 1 && device == npos; --at) {
            if (line[at - 1] == ' ' && line[at - 2] == ']') {
                device = device_before(line, at - 1);
                place = at;
            }
        }
        place = device == npos ? anchor.begin : place;
    }
    if (device != npos) {
        end = device > after && line[device - 1] == ' ' ? device - 1 : device;
    }

    Cached* cached = nullptr;
    if (end >= after + 8) {
        std::uint64_t tail;
        std::memcpy(&tail, line.data() + end - 8, 8);
        cached = &cache_[mix(0, tail) >> 24 & 255];
        const std::size_t length = cached->key.size();
        if (length != 0 && end - after >= length &&
            std::memcmp(line.data() + end - length, cached->key.data(), length) == 0) {
            const std::size_t begin = end - length;
            if (begin == 0 || is_blank(line[begin - 1]) || ends_tag(line, begin)) {
                if (begin == 0 || line[begin - 1] != '\x1b') {
                    return {cached->process, cached->thread, begin, place};
                }
            }
        }
    }

    Source source{device == npos ? end : device, {}, 0, 0};
    const bool hosted = split_source(line.substr(0, end), end, source) && source.begin >= after;
    if (!hosted) {
        source = {device == npos ? anchor.begin : device, {}, 0, 0};
    } else {
        drop_glued_text(line, after, source);
    }
    const std::string_view prefix = after == 0 ? line.substr(0, source.begin) : std::string_view();
    const std::uint32_t process = find_process(
        {std::string(source.host), clean_text(prefix, prefix_bytes), source.pid, line_number});
    const std::uint32_t thread = find_thread(process, source.tid);
    if (hosted && cached != nullptr) {
        *cached = {std::string(line.substr(source.begin, end - source.begin)), process, thread};
    }
    return {process, thread, source.begin, place};
}

}  // namespace logscan
