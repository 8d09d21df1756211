#include "plan.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "fnv.h"
#include "layout.h"
#include "plan_check.h"
#include "plan_text.h"

namespace collscope {

namespace {

using namespace plan_text;

constexpr std::array<std::string_view, 10> op_names = {
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
    "AllToAll",  "AllToAllv", "Gather",        "Scatter",   "SendRecv"};
constexpr std::array<std::string_view, 5> redop_names = {"Sum", "Prod", "Max", "Min", "Avg"};
constexpr std::array<std::string_view, 6> shapes = {"alltoall", "alltoallv", "gather",
                                                    "scatter",  "shift",     "sendrecv"};
constexpr std::uint64_t most_transfer_bytes = std::uint64_t{1} << 40;
constexpr int most_ranks = 1 << 20;
// Ranks and ids that all ranges of a plan stand for, as in collscope/replay/parse.py.
constexpr std::uint64_t most_listed = std::uint64_t{1} << 22;

template <std::size_t N>
std::size_t index_in(const std::array<std::string_view, N>& names, std::string_view text,
                     std::string_view what) {
    const auto at = std::find(names.begin(), names.end(), text);
    if (at == names.end()) {
        fail(std::string(what) + " " + quoted(text) + " is unknown",
             "schemas/plan.md lists the known ones");
    }
    return static_cast<std::size_t>(at - names.begin());
}

class Parser {
public:
    ParsedPlan run(std::string_view text) {
        plan_.digest = fnv1a_hex(text);
        try {
            while (!text.empty()) {
                ++line_;
                std::string_view line = next_part(text, '\n');
                line = line.substr(0, line.find('#'));
                if (!line.empty() && line.back() == '\r') {
                    line.remove_suffix(1);
                }
                statement(line);
            }
            finish();
        } catch (const Fault& fault) {
            return {{}, "line " + std::to_string(line_) + ": " + fault.text};
        }
        return {std::move(plan_), {}};
    }

private:
    void statement(std::string_view rest) {
        const std::string_view word = next_field(rest);
        if (word.empty()) {
            return;
        }
        if (!versioned_) {
            version(word, rest);
        } else if (word == "mode") {
            mode(rest);
        } else if (word == "nranks") {
            nranks(rest);
        } else if (word == "scaled_from") {
            once(!plan_.scaled_from, word);
            plan_.scaled_from = small_number(next_field(rest), "scaled_from", most_ranks);
        } else if (word == "comm") {
            comm(rest);
        } else if (word == "class") {
            add_class(rest);
        } else if (word == "transfers") {
            transfers(rest);
        } else if (word == "step") {
            step(rest);
        } else {
            fail("statement " + quoted(word) + " is unknown",
                 "Use a collscope-replayer of the release that wrote the plan");
        }
        if (const std::string_view extra = next_field(rest); !extra.empty()) {
            fail("there is more on the line than expected, from " + quoted(extra) + " on",
                 "Remove it, or put it on a line of its own");
        }
    }

    void version(std::string_view word, std::string_view& rest) {
        if (word != "collscope-plan") {
            fail("this is not a plan: it begins with " + quoted(word),
                 "Give a file whose first statement is `collscope-plan 1`");
        }
        if (const std::string_view v = next_field(rest); v != "1") {
            fail("plan version " + quoted(v) + " is unknown, this replayer reads version 1",
                 "Use a collscope-replayer of the release that wrote the plan");
        }
        versioned_ = true;
    }

    static void once(bool first, std::string_view word) {
        if (!first) {
            fail(std::string(word) + " is given twice", "Keep one of them");
        }
    }

    void nranks(std::string_view& rest) {
        once(plan_.nranks == 0, "nranks");
        plan_.nranks = small_number(next_field(rest), "nranks", most_ranks);
        if (plan_.nranks == 0) {
            fail("nranks is 0", "A plan needs at least one rank");
        }
    }

    void mode(std::string_view& rest) {
        once(!moded_, "mode");
        const std::string_view value = next_field(rest);
        if (value != "unique" && value != "sequence") {
            fail("mode " + quoted(value) + " is unknown", "Write `unique` or `sequence`");
        }
        plan_.sequence = value == "sequence";
        moded_ = true;
    }

    // `0-3` and `0,2,5-7`
    void comm(std::string_view& rest) {
        if (plan_.nranks == 0) {
            fail("comm comes before nranks", "Put `nranks N` first");
        }
        Comm comm;
        comm.id = small_number(next_field(rest), "the communicator's id", INT32_MAX);
        std::string_view list = next_field(rest);
        while (!list.empty()) {
            std::string_view range = next_part(list, ',');
            const int first = rank(next_part(range, '-'), plan_.nranks);
            const int last = range.empty() ? first : rank(range, plan_.nranks);
            list_of(first, last);
            for (int r = first; r <= last; ++r) {
                comm.ranks.push_back(r);
            }
        }
        std::vector<int> sorted = comm.ranks;
        std::sort(sorted.begin(), sorted.end());
        if (sorted.empty() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
            fail("communicator " + std::to_string(comm.id) + " has no rank, or one twice",
                 "List each of its ranks once");
        }
        if (!comm_index_.try_emplace(comm.id, static_cast<int>(plan_.comms.size())).second) {
            fail("communicator " + std::to_string(comm.id) + " is defined twice",
                 "Give each its own id");
        }
        plan_.comms.push_back(std::move(comm));
    }

    // Counts what a range stands for, before it takes memory.
    void list_of(int first, int last) {
        listed_ += last < first ? 0 : static_cast<std::uint64_t>(last - first) + 1;
        if (listed_ > most_listed) {
            fail("ranges of more than " + std::to_string(most_listed) + " ranks and ids in all",
                 "Write a smaller plan");
        }
    }

    static int rank(std::string_view text, int nranks) {
        return small_number(text, "a rank", nranks - 1);
    }

    void add_class(std::string_view& rest) {
        if (!moded_) {
            fail("class comes before mode", "Put `mode unique` or `mode sequence` first");
        }
        Class cls;
        cls.id = small_number(next_field(rest), "the class's id", INT32_MAX);
        keys_.clear();
        for (std::string_view field = next_field(rest); !field.empty(); field = next_field(rest)) {
            const std::string_view key = next_part(field, '=');
            if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) {
                fail("class " + std::to_string(cls.id) + " has " + quoted(key) + " twice",
                     "Keep one of them");
            }
            keys_.push_back(key);
            set(cls, key, field);
        }
        check_class(plan_, cls, keys_);
        if (!class_index_.try_emplace(cls.id, static_cast<int>(plan_.classes.size())).second) {
            fail("class " + std::to_string(cls.id) + " is defined twice", "Give each its own id");
        }
        stated_.push_back(
            {line_, std::find(keys_.begin(), keys_.end(), "size_bytes") != keys_.end()});
        plan_.classes.push_back(std::move(cls));
    }

    void set(Class& cls, std::string_view key, std::string_view value) {
        if (key == "op") {
            cls.op = static_cast<Op>(index_in(op_names, value, "op"));
        } else if (key == "datatype") {
            const std::optional<Datatype> type = datatype_named(value);
            if (!type) {
                fail("datatype " + quoted(value) + " is unknown",
                     "schemas/plan.md lists the known ones");
            }
            cls.datatype = *type;
        } else if (key == "redop") {
            cls.redop = static_cast<Redop>(index_in(redop_names, value, "redop"));
        } else if (key == "count") {
            cls.count = number(value, "count", most_bytes);
        } else if (key == "root") {
            cls.root = small_number(value, "root", most_ranks);
        } else if (key == "in_place") {
            cls.in_place = number(value, "in_place", 1) == 1;
        } else if (key == "calls") {
            cls.calls = number(value, "calls", UINT32_MAX);
        } else if (key == "comms") {
            cls.comms = comms(value);
        } else if (key == "shape") {
            cls.shape = shapes[index_in(shapes, value, "shape")];
        } else if (key == "size_bytes") {
            cls.size_bytes = number(value, "size_bytes", most_bytes);
        } else {
            fail("key " + quoted(key) + " of a class is unknown",
                 "Use a collscope-replayer of the release that wrote the plan");
        }
    }

    // `0,2,5-7`: ids
    std::vector<int> comms(std::string_view list) {
        std::vector<int> out;
        while (!list.empty()) {
            std::string_view range = next_part(list, ',');
            const int first = small_number(next_part(range, '-'), "a communicator", INT32_MAX - 1);
            const int last =
                range.empty() ? first : small_number(range, "a communicator", INT32_MAX - 1);
            list_of(first, last);
            for (int id = first; id <= last; ++id) {
                out.push_back(comm_of(id));
            }
        }
        return out;
    }

    int comm_of(int id) const {
        const auto at = comm_index_.find(id);
        if (at == comm_index_.end()) {
            fail("communicator " + std::to_string(id) + " is not defined",
                 "Put its `comm` line before this one");
        }
        return at->second;
    }

    Class& class_of(std::string_view text) {
        const int id = small_number(text, "a class", INT32_MAX);
        const auto at = class_index_.find(id);
        if (at == class_index_.end()) {
            fail("class " + std::to_string(id) + " is not defined",
                 "Put its `class` line before this one");
        }
        return plan_.classes[static_cast<std::size_t>(at->second)];
    }

    int which_of(const Class& cls, std::string_view text) const {
        const int index = comm_of(small_number(text, "a communicator", INT32_MAX));
        const auto at = std::find(cls.comms.begin(), cls.comms.end(), index);
        if (at == cls.comms.end()) {
            fail("communicator " + std::string(text) + " does not belong to class " +
                     std::to_string(cls.id),
                 "Add it to the `comms=` of the class");
        }
        return static_cast<int>(at - cls.comms.begin());
    }

    // 2 0 0>1:1024 1>2:2048 2>3:16
    void transfers(std::string_view& rest) {
        Class& cls = class_of(next_field(rest));
        if (!cls.point_to_point()) {
            fail("class " + std::to_string(cls.id) + " has transfers but no shape",
                 "Add `shape=` to the class, or remove the transfers");
        }
        const auto which = static_cast<std::size_t>(which_of(cls, next_field(rest)));
        const int nranks = plan_.comms[static_cast<std::size_t>(cls.comms[which])].size();
        for (std::string_view item = next_field(rest); !item.empty(); item = next_field(rest)) {
            Transfer transfer;
            transfer.src = rank(next_part(item, '>'), nranks);
            transfer.dst = rank(next_part(item, ':'), nranks);
            transfer.count = number(item, "elements of a transfer",
                                    most_transfer_bytes / itemsize(cls.datatype));
            cls.transfers[which].push_back(transfer);
        }
    }

    // step 3@0 4@1
    void step(std::string_view& rest) {
        if (!plan_.sequence) {
            fail("a step in mode unique", "Write `mode sequence`, or remove the steps");
        }
        Step step;
        for (std::string_view item = next_field(rest); !item.empty(); item = next_field(rest)) {
            const Class& cls = class_of(next_part(item, '@'));
            const int which = which_of(cls, item);
            step.items.push_back({static_cast<int>(&cls - plan_.classes.data()), which});
        }
        if (step.items.empty()) {
            fail("a step without a class", "Write `step CLASS@COMM`");
        }
        plan_.steps.push_back(std::move(step));
    }

    void finish() {
        if (!versioned_ || !moded_ || plan_.nranks == 0) {
            fail("the plan ends before its statements `collscope-plan 1`, `mode` and `nranks`",
                 "It may have been cut short: write it again");
        }
        if (plan_.sequence ? plan_.steps.empty() : plan_.classes.empty()) {
            fail(plan_.sequence ? "the plan has no step" : "the plan has no class",
                 "There is nothing to measure: choose calls when planning");
        }
        if (plan_.scaled_from && *plan_.scaled_from < plan_.nranks) {
            fail("scaled_from is less than nranks", "It counts the ranks of the job");
        }
        for (std::size_t i = 0; i < plan_.classes.size(); ++i) {
            Class& cls = plan_.classes[i];
            if (!cls.point_to_point()) {
                continue;  // check_class has given it its size
            }
            line_ = stated_[i].line;
            for (const std::vector<Transfer>& list : cls.transfers) {
                if (list.empty()) {
                    fail(
                        "class " + std::to_string(cls.id) + " has a communicator without transfers",
                        "Add a `transfers` line for each of its communicators");
                }
            }
            check_size(plan_, cls, stated_[i].size, "transfers give ");
        }
    }

    // Of a class: where it stands, and whether its line has size_bytes.
    struct Stated {
        int line = 0;
        bool size = false;
    };

    Plan plan_;
    std::uint64_t listed_ = 0;
    int line_ = 0;
    bool versioned_ = false;
    bool moded_ = false;
    std::unordered_map<int, int> comm_index_;   // id -> index
    std::unordered_map<int, int> class_index_;  // id -> index
    std::vector<Stated> stated_;                // by index into Plan::classes
    std::vector<std::string_view> keys_;        // of the class being read
};

}  // namespace

int Comm::rank_of(int world_rank) const {
    const auto at = std::find(ranks.begin(), ranks.end(), world_rank);
    return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
}

ParsedPlan parse_plan(std::string_view text) { return Parser().run(text); }

std::string_view name_of(Op op) { return op_names[static_cast<std::size_t>(op)]; }

std::string_view name_of(Redop redop) { return redop_names[static_cast<std::size_t>(redop)]; }

}  // namespace collscope
