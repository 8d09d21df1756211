// Joins the scan of later lines to that of the lines before them, so that two threads can share a
// log. The outcome is that of one scan, to the last index, or none.
#include <algorithm>

#include "scanner.h"

namespace logscan {

namespace {

constexpr std::size_t host_pairs_limit = 1 << 20;

using Map = std::vector<std::uint32_t>;  // what the indices of the later scan become

std::uint32_t later_line(std::uint64_t line, std::uint32_t lines) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(lines + line, line_number_limit));
}

Map append_strings(StringTable& to, const StringTable& from) {
    Map map;
    for (const std::string& string : from.strings()) {
        map.push_back(to.intern(string));
    }
    return map;
}

// "26843node1" where "node1" with the same pid is known: maybe a number glued to a host.
bool looks_glued(const Process& process, const Process& known) {
    return process.pid == known.pid && !known.host.empty() &&
           process.host.size() > known.host.size() && process.host.ends_with(known.host);
}

}  // namespace

bool Origins::depends_on(const Origins& earlier) const {
    const std::vector<Process>& here = result_.processes;
    const std::vector<Process>& before = earlier.result_.processes;
    if (dropped_glued_text_ || here.size() * (here.size() + before.size()) > host_pairs_limit) {
        return true;
    }
    return std::any_of(here.begin(), here.end(), [&](const Process& process) {
        const auto glued = [&](const Process& known) { return looks_glued(process, known); };
        return std::any_of(here.begin(), here.end(), glued) ||
               std::any_of(before.begin(), before.end(), glued);
    });
}

void Origins::append(const Origins& later, std::uint32_t lines, Map& processes, Map& threads) {
    for (Process process : later.result_.processes) {
        process.first_line = later_line(process.first_line, lines);
        processes.push_back(find_process(std::move(process)));
    }
    const Threads& rows = later.result_.threads;
    for (std::size_t i = 0; i < rows.tid.size(); ++i) {
        threads.push_back(find_thread(processes[rows.process[i]], rows.tid[i]));
    }
}

// The first generation of a key in the later lines continues the last one here where all its
// lines agree: none of them would have begun another. The later generations follow.
bool Collectives::append(const Collectives& later, const Map& processes, Map& rows) {
    const Comms& comms = later.result_.comms;
    const auto own = [&](std::size_t i) { return Ranks{comms.nranks[i], comms.global_rank[i]}; };
    std::vector<std::uint32_t> keys;
    for (std::size_t i = 0; i < comms.ptr.size(); ++i) {
        keys.push_back(find_comm_key({processes[comms.process[i]], comms.ptr[i]}));
        const std::uint32_t row = comm_rows_[keys[i]];
        if (comms.generation[i] == 0 && row != NONE && !agrees(row, own(i))) {
            return false;
        }
    }
    if (later.distrusted_) {
        return false;
    }
    for (std::size_t i = 0; i < comms.ptr.size(); ++i) {
        const std::uint32_t row = comm_rows_[keys[i]];
        if (comms.generation[i] == 0 && row != NONE) {
            learn(row, own(i));
            rows.push_back(row);
        } else {
            rows.push_back(add_comm(keys[i], own(i)));
        }
    }
    return true;
}

// The tables that depend on no earlier line.
class Append {
public:
    Append(Result& to, Result& from, std::uint32_t lines) : to_(to), from_(from), lines_(lines) {}

    // What the indices of the later scan become; processes, threads and communicators are given.
    Map& map(Index index) { return maps_[static_cast<std::size_t>(index)]; }

    void tables() {
        map(Index::op) = append_strings(to_.ops, from_.ops);
        map(Index::kernel_name) = append_strings(to_.kernel_names, from_.kernel_names);
        map(Index::tuning_name) = append_strings(to_.tuning_names, from_.tuning_names);
        for (Signature signature : from_.signatures.keys()) {
            signature.op = map(Index::op)[signature.op];
            map(Index::signature).push_back(to_.signatures.intern(signature));
        }
        table(to_.calls, from_.calls);
        table(to_.groups, from_.groups);
        table(to_.kernels, from_.kernels);
        table(to_.tunings, from_.tunings);
        table(to_.messages, from_.messages);
        std::vector<std::string>& text = from_.messages.text;
        std::move(text.begin(), text.end(), std::back_inserter(to_.messages.text));
        samples();
    }

private:
    template <class Table>
    void table(Table& to, const Table& from) {
        Table::columns([&](const char*, auto member) { column(to.*member, from.*member); });
    }

    template <class T, Index index>
    void column(Column<T, index>& to, const Column<T, index>& from) {
        const auto joined = [&](T value) -> T {
            if constexpr (index == Index::none) {
                return value;
            } else if constexpr (index == Index::line) {
                return later_line(value, lines_);
            } else {
                return value == NONE ? NONE : map(index)[value];
            }
        };
        std::transform(from.data(), from.data() + from.size(), to.extend(from.size()), joined);
    }

    void samples() {
        for (auto& [line, text] : from_.unknown_samples) {
            if (to_.unknown_samples.size() < Result::unknown_kept) {
                to_.unknown_samples.emplace_back(later_line(line, lines_), std::move(text));
            }
        }
        std::array<std::uint64_t, counter_count> counted = to_.counters;
        for (Damage& damage : from_.damage) {
            if (++counted[static_cast<std::size_t>(damage.code)] <= Result::damage_kept) {
                damage.line = later_line(damage.line, lines_);
                to_.damage.push_back(std::move(damage));
            }
        }
        for (std::size_t i = 0; i < counter_count; ++i) {
            to_.counters[i] += from_.counters[i];
        }
    }

    Result& to_;
    Result& from_;
    std::uint32_t lines_;
    std::array<Map, static_cast<std::size_t>(Index::size_)> maps_;
};

bool Scanner::append(Scanner& later) {
    // A version block that is open here may claim bare lines there.
    if (block_until_ > line_ || later.origins_.depends_on(origins_)) {
        return false;
    }
    Append append(result_, later.result_, line_);
    // Stays where it is when the rest is refused: feeding the lines would add the same.
    origins_.append(later.origins_, line_, append.map(Index::process), append.map(Index::thread));
    if (!collectives_.append(later.collectives_, append.map(Index::process),
                             append.map(Index::comm))) {
        return false;
    }
    append.tables();
    if (later.block_until_ != 0) {
        block_until_ = line_ + later.block_until_;
    }
    line_ = later_line(later.line_, line_);
    return true;
}

}  // namespace logscan
