#include "scan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "json.h"

namespace tracescan {

namespace {

// As in collscope/parsers/traces/kineto_slices.py.
constexpr double latest_us = 4e15;
constexpr double longest_us = 1e13;

constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                             1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
constexpr std::uint64_t exact_limit = std::uint64_t{1} << 53;

enum class Category { other, kernel, copy, memset, launch, flow, sync, host };

// What a value of `args` that msgspec reads may be; see kineto_events.py.
enum class Field { any, correlation, seq, stream, device, integer, text, number_or_text, ranks };

struct NamedField {
    std::string_view name;
    Field field;
};

constexpr NamedField fields[] = {
    {"correlation", Field::correlation},
    {"stream", Field::stream},
    {"device", Field::device},
    {"External id", Field::integer},
    {"Collective name", Field::text},
    {"In msg nelems", Field::integer},
    {"Out msg nelems", Field::integer},
    {"Group size", Field::integer},
    {"dtype", Field::text},
    {"In split size", Field::ranks},
    {"Out split size", Field::ranks},
    {"Process Group Name", Field::number_or_text},
    {"Process Group ID", Field::number_or_text},
    {"Process Group Description", Field::text},
    {"Process Group Ranks", Field::ranks},
    {"Global rank start", Field::integer},
    {"Global rank stride", Field::integer},
    {"Rank", Field::integer},
    {"rank", Field::integer},
    {"Src Rank", Field::integer},
    {"Dst Rank", Field::integer},
    {"Seq", Field::seq},
    {"wait_on_cuda_event_id", Field::integer},
};

Field field_of(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(fields), std::end(fields), [name](const NamedField& known) {
            return known.name.size() == name.size() && known.name[0] == name[0] &&
                   known.name == name;
        });
    return found == std::end(fields) ? Field::any : found->field;
}

struct NamedCategory {
    std::string_view name;
    Category category;
};

constexpr NamedCategory categories[] = {
    {"cpu_op", Category::host},        {"kernel", Category::kernel},
    {"ac2g", Category::flow},          {"cuda_runtime", Category::launch},
    {"cuda_driver", Category::launch}, {"user_annotation", Category::host},
    {"Kernel", Category::kernel},      {"gpu_memcpy", Category::copy},
    {"Memcpy", Category::copy},        {"gpu_memset", Category::memset},
    {"Memset", Category::memset},      {"Runtime", Category::launch},
    {"hip_runtime", Category::launch}, {"privateuse1_runtime", Category::launch},
    {"cuda_sync", Category::sync},     {"Operator", Category::host},
};

Category category_of(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(categories), std::end(categories),
                     [name](const NamedCategory& known) { return known.name == name; });
    return found == std::end(categories) ? Category::other : found->category;
}

bool starts_with(std::string_view text, std::string_view start) {
    return text.substr(0, start.size()) == start;
}

// Numbers of distinct texts; text that a view shows must live as long.
class Interned {
public:
    explicit Interned(Table& table) : table_(table) {}

    std::int32_t operator()(std::string_view value, std::int32_t event) {
        // Runs of equal values are long.
        if (!table_.values.empty() && table_.values[static_cast<std::size_t>(last_)] == value) {
            return last_;
        }
        const auto [at, added] =
            places_.emplace(value, static_cast<std::int32_t>(table_.values.size()));
        if (added) {
            table_.values.push_back(value);
            table_.first.push_back(event);
        }
        return last_ = at->second;
    }

private:
    Table& table_;
    std::unordered_map<std::string_view, std::int32_t> places_;
    std::int32_t last_ = 0;
};

struct Arguments {
    bool there = false;
    bool correlated = false;
    std::int64_t correlation = -1;
    std::int64_t seq = -1;
    std::string_view stream;  // as written; empty: none
    std::string_view device;
};

struct Event {
    std::string_view phase;
    bool has_phase = false;
    std::string_view category;
    std::string_view name;  // with its quotes; empty: none
    bool name_escaped = false;
    std::string_view thread;  // as written; empty: none
    bool numbered = false;
    bool id_is_text = false;
    std::int64_t id = -1;
    bool has_time = false;
    double time_us = 0;
    bool has_duration = false;
    double duration_us = 0;
    Arguments arguments;
};

class Scan {
public:
    Scan(std::string_view text, bool exact, std::int64_t origin_us)
        : text_(text), cursor_(text), exact_(exact) {
        found_.origin_us = origin_us;
    }

    Events run() {
        cursor_.blanks();
        if (cursor_.done()) {
            return std::move(found_);
        }
        for (;;) {
            const auto begin = position();
            const Event event = read();
            keep(event, begin, position());
            ++number_;
            cursor_.blanks();
            if (cursor_.done()) {
                return std::move(found_);
            }
            cursor_.take(',');
            cursor_.blanks();
        }
    }

private:
    std::int64_t position() const { return cursor_.at() - text_.data(); }

    std::string_view since(const char* begin) const {
        return {begin, static_cast<std::size_t>(cursor_.at() - begin)};
    }

    Event read() {
        Event event;
        cursor_.take('{');
        cursor_.blanks();
        while (!cursor_.took('}')) {
            const Text key = member();
            read_member(key.raw, event);
            next_member();
        }
        if (!event.has_phase) {
            throw NotPlain();
        }
        return event;
    }

    Text member() {
        const Text key = cursor_.string();
        if (key.escaped) {
            throw NotPlain();
        }
        cursor_.blanks();
        cursor_.take(':');
        cursor_.blanks();
        return key;
    }

    void next_member() {
        cursor_.blanks();
        if (cursor_.took(',')) {
            cursor_.blanks();
            if (cursor_.peek() != '"') {
                throw NotPlain();
            }
        } else if (cursor_.peek() != '}') {
            throw NotPlain();
        }
    }

    void read_member(std::string_view key, Event& event) {
        if (key == "ph") {
            event.phase = plain_text();
            event.has_phase = true;
        } else if (key == "cat") {
            event.category = cursor_.took_null() ? std::string_view() : plain_text();
        } else if (key == "name") {
            const char* const begin = cursor_.at();
            event.name_escaped = !cursor_.took_null() && cursor_.string().escaped;
            event.name = *begin == 'n' ? std::string_view() : since(begin);
        } else if (key == "tid") {
            event.thread = number_or_text();
        } else if (key == "id") {
            identifier(event);
        } else if (key == "ts") {
            event.has_time = !cursor_.took_null();
            event.time_us = event.has_time ? time() : 0;
        } else if (key == "dur") {
            event.has_duration = !cursor_.took_null();
            event.duration_us = event.has_duration ? value(cursor_.decimal()) : 0;
        } else if (key == "args") {
            event.arguments = Arguments();
            if (!cursor_.took_null()) {
                arguments(event.arguments);
            }
        } else {
            cursor_.value();
        }
    }

    std::string_view plain_text() {
        const Text found = cursor_.string();
        if (found.escaped) {
            throw NotPlain();
        }
        return found.raw;
    }

    // The text of the file; empty for null.
    std::string_view number_or_text() {
        if (cursor_.took_null()) {
            return {};
        }
        const char* const begin = cursor_.at();
        if (*begin == '"') {
            cursor_.string();
        } else {
            cursor_.small_integer();
        }
        return since(begin);
    }

    void identifier(Event& event) {
        event.numbered = event.id_is_text = false;
        if (cursor_.took_null()) {
            return;
        }
        if (cursor_.peek() == '"') {
            cursor_.string();
            event.id_is_text = true;
            return;
        }
        event.id = cursor_.small_integer();
        event.numbered = true;
    }

    // Exact where it is given: a quotient of two numbers that doubles hold is rounded once.
    double value(const Decimal& number) const {
        if (number.digits >= exact_limit || (number.digits == 0 && number.negative)) {
            throw NotPlain();
        }
        const double found = static_cast<double>(number.digits) / powers[number.decimals];
        return number.negative ? -found : found;
    }

    double time() {
        const Decimal number = cursor_.decimal();
        if (!exact_) {
            return value(number);
        }
        constexpr int most_decimals = 3;
        constexpr std::uint64_t most_digits = 4'000'000'000'000'000'000;
        if (number.negative || number.decimals > most_decimals || number.digits > most_digits) {
            throw NotPlain();
        }
        const auto scale = static_cast<std::int64_t>(powers[number.decimals]);
        const auto digits = static_cast<std::int64_t>(number.digits);
        if (found_.origin_us == 0) {
            found_.origin_us = std::min(digits / scale, static_cast<std::int64_t>(latest_us));
            if (found_.origin_us == 0) {
                throw NotPlain();
            }
        }
        const std::int64_t since_origin = digits - found_.origin_us * scale;
        const bool before = since_origin < 0;
        const auto size = static_cast<std::uint64_t>(before ? -since_origin : since_origin);
        return value({size, number.decimals, before && size != 0});
    }

    void arguments(Arguments& found) {
        cursor_.take('{');
        found.there = true;
        cursor_.blanks();
        while (!cursor_.took('}')) {
            argument(field_of(member().raw), found);
            next_member();
        }
    }

    void argument(Field field, Arguments& found) {
        switch (field) {
            case Field::any:
                cursor_.value();
                return;
            case Field::correlation:
                found.correlated = !cursor_.took_null();
                found.correlation = found.correlated ? cursor_.small_integer() : -1;
                return;
            case Field::seq:
                found.seq = cursor_.took_null() ? -1 : cursor_.small_integer();
                return;
            case Field::stream:
                found.stream = number_or_text();
                return;
            case Field::device:
                found.device = number_or_text();
                return;
            case Field::integer:
                if (!cursor_.took_null()) {
                    cursor_.small_integer();
                }
                return;
            case Field::text:
                if (!cursor_.took_null()) {
                    cursor_.string();
                }
                return;
            case Field::number_or_text:
                number_or_text();
                return;
            case Field::ranks:
                if (!cursor_.took('[')) {
                    cursor_.took_null() ? void() : static_cast<void>(cursor_.string());
                    return;
                }
                integers();
        }
    }

    void integers() {
        cursor_.blanks();
        if (cursor_.took(']')) {
            return;
        }
        for (;;) {
            cursor_.small_integer();
            cursor_.blanks();
            if (cursor_.took(']')) {
                return;
            }
            cursor_.take(',');
            cursor_.blanks();
        }
    }

    void keep(const Event& event, std::int64_t begin, std::int64_t end) {
        const Category category = category_of(event.category);
        switch (category) {
            case Category::other:
                return;
            case Category::kernel:
            case Category::copy:
            case Category::memset:
                keep_gpu(event, category, begin, end);
                return;
            case Category::launch:
                if (event.arguments.correlated && event.has_time) {
                    keep_call(event, call_names_(event.name, number_), event.arguments.correlation,
                              told_duration(event));
                }
                return;
            case Category::flow:
                if (event.id_is_text) {  // msgspec may take it for a number
                    throw NotPlain();
                }
                if (event.phase == "s" && event.numbered && event.has_time) {
                    keep_call(event, -1, event.id, -1);
                }
                return;
            case Category::sync:
                keep_other(begin, end);
                return;
            case Category::host:
                found_.cpu = found_.cpu || event.category != "user_annotation";
                if (is_told(event)) {
                    keep_other(begin, end);
                }
        }
    }

    // Whether an operator or annotation may describe a collective or a step.
    // "c10d::_allgather_base_" of PyTorch before 2.4
    static bool is_told(const Event& event) {
        const std::string_view name = event.name.substr(event.name.empty() ? 0 : 1);
        return event.name_escaped || name == "record_param_comms\"" || starts_with(name, "nccl:") ||
               starts_with(name, "c10d::") || starts_with(name, "symm_mem::") ||
               starts_with(name, "ProfilerStep") || starts_with(name, "execute_") ||
               starts_with(name, "step[");  // vLLM's, SGLang's
    }

    static double told_duration(const Event& event) {
        const double duration = event.duration_us;
        return event.has_duration && duration >= 0 && duration < longest_us ? duration : -1;
    }

    void keep_gpu(const Event& event, Category category, std::int64_t begin, std::int64_t end) {
        const double at = event.time_us + static_cast<double>(found_.origin_us);
        if (event.phase != "X" || !event.has_time || told_duration(event) < 0 || at < 0 ||
            at >= latest_us) {
            ++found_.bad;
            return;
        }
        const Arguments& args = event.arguments;
        Gpu& gpu = found_.gpu;
        gpu.kind.push_back(static_cast<std::int8_t>(category) -
                           static_cast<std::int8_t>(Category::kernel));
        gpu.name.push_back(names_(event.name, number_));
        gpu.stream.push_back(stream(args.device, args.stream.empty() ? event.thread : args.stream));
        gpu.start_us.push_back(event.time_us);
        gpu.duration_us.push_back(event.duration_us);
        gpu.correlation.push_back(args.correlation);
        gpu.seq.push_back(args.seq);
        gpu.event.push_back(number_);
        gpu.begin.push_back(begin);
        gpu.end.push_back(end);
    }

    // Pairs are few, so they are searched from the last one found on.
    std::int32_t stream(std::string_view device, std::string_view stream) {
        const std::size_t size = found_.devices.values.size();
        for (std::size_t k = 0; k < size; ++k) {
            const std::size_t place = (last_stream_ + k) % size;
            if (found_.devices.values[place] == device && found_.streams.values[place] == stream) {
                last_stream_ = place;
                return static_cast<std::int32_t>(place);
            }
        }
        if (size == most_streams) {
            throw NotPlain();
        }
        found_.devices.values.push_back(device);
        found_.devices.first.push_back(number_);
        found_.streams.values.push_back(stream);
        last_stream_ = size;
        return static_cast<std::int32_t>(size);
    }

    void keep_call(const Event& event, std::int32_t name, std::int64_t correlation,
                   double duration_us) {
        Calls& calls = found_.calls;
        calls.name.push_back(name);
        calls.thread.push_back(threads_(event.thread, number_));
        calls.start_us.push_back(event.time_us);
        calls.duration_us.push_back(duration_us);
        calls.correlation.push_back(correlation);
    }

    void keep_other(std::int64_t begin, std::int64_t end) {
        found_.others.event.push_back(number_);
        found_.others.begin.push_back(begin);
        found_.others.end.push_back(end);
    }

    static constexpr std::size_t most_streams = 1024;

    std::string_view text_;
    Cursor cursor_;
    bool exact_;
    Events found_;
    Interned names_{found_.names};
    Interned call_names_{found_.call_names};
    Interned threads_{found_.threads};
    std::size_t last_stream_ = 0;
    std::int32_t number_ = 0;
};

}  // namespace

std::optional<Events> scan(std::string_view text, bool exact, std::int64_t origin_us) {
    if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        return std::nullopt;
    }
    try {
        return Scan(text, exact, origin_us).run();
    } catch (const NotPlain&) {
        return std::nullopt;
    }
}

}  // namespace tracescan
