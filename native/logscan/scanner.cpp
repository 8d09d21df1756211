#include "scanner.h"

#include <algorithm>

#include "text.h"

namespace logscan {

namespace {

constexpr std::size_t sample_bytes = 300;
constexpr std::uint32_t version_block_lines = 64;  // ranks on one stdout may come between

std::string_view trim_end(std::string_view text) {
    while (!text.empty() && is_blank(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

// What Ray adds to one of several equal lines, when it leaves out the rest:
// "host:12:12 [0] NCCL INFO text [repeated 7x across cluster]"; the first such line of a log goes
// on with "(Ray deduplicates logs by default. ...)". 0: nothing.
std::uint64_t left_out(std::string_view line) {
    constexpr std::size_t tail = 400;
    line = trim_end(line);
    if (line.empty() || (line.back() != ']' && line.back() != ')' && line.back() != 'm')) {
        return 0;
    }
    line.remove_prefix(line.size() > tail ? line.size() - tail : 0);
    constexpr std::string_view word = "[repeated ";
    const std::size_t at = find(line, word);
    if (at == npos) {
        return 0;
    }
    line.remove_prefix(at + word.size());
    const std::size_t digits = line.find_first_not_of("0123456789");
    std::uint64_t times = 0;
    Cursor number(line.substr(0, digits));
    const bool whole = digits != npos && number.take_decimal(times);
    return whole && line.substr(digits).starts_with("x across cluster]") ? times : 0;
}

// A progress bar may overwrite what follows a carriage return.
std::string_view before_return(std::string_view text) { return text.substr(0, text.find('\r')); }

}  // namespace

void Scanner::feed(std::string_view data) {
    result_.counters[static_cast<std::size_t>(Counter::bytes)] += data.size();
    saw_nul_ = saw_nul_ || std::memchr(data.data(), '\0', data.size()) != nullptr;
    const char* p = data.data();
    const char* const end = p + data.size();
    while (p != end) {
        const auto* newline =
            static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
        if (newline == nullptr) {
            keep({p, static_cast<std::size_t>(end - p)});
            return;
        }
        const std::string_view line(p, static_cast<std::size_t>(newline - p));
        if (pending_bytes_ == 0) [[likely]] {
            scan_line(line, true);
        } else {
            keep(line);
            scan_line(pending_, true);
            pending_.clear();
            pending_bytes_ = 0;
        }
        p = newline + 1;
    }
}

// One byte more than the limit is kept, so that scan_line sees that the line is overlong.
void Scanner::keep(std::string_view part) {
    pending_.append(part.substr(0, line_limit + 1 - pending_.size()));
    pending_bytes_ += part.size();
}

Result Scanner::finish() {
    if (pending_bytes_ != 0) {
        scan_line(pending_, false);
        pending_.clear();
        pending_bytes_ = 0;
    }
    return std::move(result_);
}

void Scanner::scan_line(std::string_view line, bool newline) {
    line_ = std::min(line_ + 1, line_number_limit);
    result_.count(Counter::lines);
    if (line.size() > line_limit) [[unlikely]] {
        line = line.substr(0, line_limit);
        newline = false;
        result_.damaged(Counter::overlong, line_, line);
    }
    if (saw_nul_ && !line.empty() && std::memchr(line.data(), '\0', line.size()) != nullptr) {
        result_.damaged(Counter::nul, line_, line);
    }
    const Anchor anchor = find_anchor(line, 0);
    if (anchor.begin == npos) {
        scan_foreign(line);
        return;
    }
    if (const std::uint64_t times = left_out(line); times != 0) [[unlikely]] {
        result_.damaged(Counter::repeated, line_, line, times);
    }
    scan_records(line, anchor, newline);
}

// A physical line holds several records where processes share a stream.
void Scanner::scan_records(std::string_view line, const Anchor& first, bool newline) {
    Anchor anchor = first;
    Origin origin = origins_.resolve(line, anchor, 0, line_);
    for (;;) {
        const Place place{origin.process, origin.thread, line_, !newline};
        const std::string_view rest = line.substr(anchor.message);
        if (anchor.level == Level::info && Collectives::is_call(rest) &&
            collectives_.coll_if_whole(rest, place) == Outcome::stored) [[likely]] {
            return;
        }
        const Anchor next = find_anchor(line, anchor.message);
        if (next.begin == npos) {
            dispatch(line, anchor, origin, line.size(), place);
            return;
        }
        const Origin follower = origins_.resolve(line, next, anchor.message, line_);
        result_.damaged(Counter::interleaved, line_, line);
        dispatch(line, anchor, origin, follower.begin, {place.process, place.thread, line_, true});
        anchor = next;
        origin = follower;
    }
}

void Scanner::dispatch(std::string_view line, const Anchor& anchor, const Origin& origin,
                       std::size_t end, const Place& place) {
    const std::string_view message =
        before_return(line.substr(anchor.message, end - anchor.message));
    if (trim_end(message).empty() && end != line.size()) {
        result_.damaged(Counter::torn, line_, line);  // only the prefix was printed
        return;
    }
    switch (anchor.level) {
        case Level::warn:
            store_message(result_, place, MessageKind::warn,
                          before_return(line.substr(origin.place, end - origin.place)));
            return;
        case Level::call:
            call(message, place);
            return;
        case Level::info:
        case Level::trace:
            info(message, place);
            return;
    }
}

void Scanner::info(std::string_view message, const Place& place) {
    if (Collectives::is_call(message)) {
        report(collectives_.coll(message, place), message, place);
        return;
    }
    if (message.starts_with("## [")) {
        report(kernels_.parse(message, place), message, place);
        return;
    }
    const Outcome outcome = tuning_.parse(message, place);
    if (outcome != Outcome::other) {
        report(outcome, message, place);
        return;
    }
    text(message, place);
}

void Scanner::call(std::string_view message, const Place& place) {
    const bool start = message.starts_with("ncclGroupStart()");
    if (start || message.starts_with("ncclGroupEnd()")) {
        result_.groups.process.push(place.process);
        result_.groups.thread.push(place.thread);
        result_.groups.line.push(place.line);
        result_.groups.delta.push(start ? 1 : -1);
    } else if (message.starts_with("ncclComm")) {
        store_message(result_, place, MessageKind::misc, message);
    } else if (message.starts_with("ncclGet") || message.starts_with("ncclRedOp") ||
               message.starts_with("ncclMem")) {
        result_.count(Counter::structure_skipped);
    } else {
        report(collectives_.call(message, place), message, place);
    }
}

void Scanner::text(std::string_view message, const Place& place) {
    const std::string_view trimmed = trim_end(message);
    const MessageKind kind = classify(trimmed);
    if (kind == MessageKind::skipped) {
        result_.count(Counter::structure_skipped);
        return;
    }
    if (kind == MessageKind::unknown) {
        unknown(trimmed, place);
        return;
    }
    if (trimmed.starts_with("RCCL version")) {
        block_until_ = line_ + version_block_lines;
    }
    store_message(result_, place, kind, trimmed);
}

void Scanner::report(Outcome outcome, std::string_view record, const Place& place) {
    if (outcome == Outcome::torn) {
        result_.damaged(Counter::torn, place.line, record);
    } else if (outcome == Outcome::invalid_number) {
        result_.damaged(Counter::invalid_number, place.line, record);
    }
}

void Scanner::unknown(std::string_view message, const Place& place) {
    result_.count(Counter::unknown);
    if (result_.unknown_samples.size() < Result::unknown_kept) {
        result_.unknown_samples.emplace_back(place.line, clean_text(message, sample_bytes));
    }
}

void Scanner::scan_foreign(std::string_view line) {
    std::size_t offset = 0;
    if (is_bare_version(line, line_ <= block_until_, offset)) {
        const Place nobody{NONE, NONE, line_, false};
        const std::string_view text = before_return(line.substr(offset));
        store_message(result_, nobody, MessageKind::version, text);
        if (text.starts_with("RCCL version")) {
            block_until_ = line_ + version_block_lines;
        }
        return;
    }
    // "Broadcast: opCount 1 sendbuff 0x7f..." whose prefix another writer swallowed
    if (contains(line, ": opCount ")) {
        result_.damaged(Counter::torn, line_, line);
        return;
    }
    result_.count(Counter::foreign);
}

}  // namespace logscan
