#include "plan_check.h"

#include <algorithm>
#include <string>

#include "layout.h"
#include "plan_text.h"

namespace collscope::plan_text {

namespace {

using Keys = std::vector<std::string_view>;

bool has(const Keys& keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool takes_redop(Op op) {
    return op == Op::AllReduce || op == Op::ReduceScatter || op == Op::Reduce;
}

bool takes_root(Op op) {
    return op == Op::Broadcast || op == Op::Reduce || op == Op::Gather || op == Op::Scatter;
}

bool has_messages(Op op) {
    return op == Op::AllToAll || op == Op::AllToAllv || op == Op::Gather || op == Op::Scatter ||
           op == Op::SendRecv;
}

int ranks_of(const Plan& plan, const Class& cls) {
    return plan.comms[static_cast<std::size_t>(cls.comms[0])].size();
}

void check_comms(const Plan& plan, const Class& cls, const std::string& name) {
    const int size = ranks_of(plan, cls);
    std::vector<bool> used(static_cast<std::size_t>(plan.nranks), false);
    for (const int index : cls.comms) {
        const Comm& comm = plan.comms[static_cast<std::size_t>(index)];
        if (comm.size() != size) {
            fail(name + " has communicators of " + std::to_string(size) + " and of " +
                     std::to_string(comm.size()) + " ranks",
                 "Make a class of each size");
        }
        for (const int r : comm.ranks) {
            if (!plan.sequence && used[static_cast<std::size_t>(r)]) {
                fail(name + " has rank " + std::to_string(r) + " in two communicators",
                     "In mode unique they run at the same time and must be disjoint");
            }
            used[static_cast<std::size_t>(r)] = true;
        }
    }
    if (cls.root && *cls.root >= size) {
        fail(name + " has root " + std::to_string(*cls.root) + " of " + std::to_string(size) +
                 " ranks",
             "Ranks of a communicator count from 0");
    }
}

}  // namespace

void check_size(const Plan& plan, Class& cls, bool stated, std::string_view source) {
    const std::uint64_t size = size_bytes_of(cls, ranks_of(plan, cls));
    if (stated && cls.size_bytes != size) {
        fail("class " + std::to_string(cls.id) + " has size_bytes " +
                 std::to_string(cls.size_bytes) + ", but its " + std::string(source) +
                 std::to_string(size),
             "Correct one of them, or leave size_bytes out");
    }
    cls.size_bytes = size;
}

void check_class(const Plan& plan, Class& cls, const Keys& keys) {
    const std::string name = "class " + std::to_string(cls.id);
    for (const std::string_view key : {"op", "datatype", "comms"}) {
        if (!has(keys, key)) {
            fail(name + " has no " + quoted(key), "Every class needs op, datatype and comms");
        }
    }
    const bool p2p = cls.point_to_point();
    if (cls.comms.empty() || cls.calls == 0) {
        fail(name + " has no communicator or no calls", "Remove it, or give it some");
    }
    if (!p2p && (cls.op == Op::AllToAllv || cls.op == Op::SendRecv)) {
        fail(name + " has op " + std::string(name_of(cls.op)) + " but no shape",
             "Add `shape=` and a `transfers` line");
    }
    if (p2p && !has_messages(cls.op)) {
        fail(name + " has a shape, but op " + std::string(name_of(cls.op)),
             "Only AllToAll, AllToAllv, Gather, Scatter and SendRecv are groups of Send and Recv");
    }
    if (!p2p && cls.count == 0) {
        fail(name + " has no count, or one of 0", "Add `count=`");
    }
    if (takes_redop(cls.op) != cls.redop.has_value()) {
        fail(name + (cls.redop ? " has a redop" : " has no redop"),
             "Only AllReduce, ReduceScatter and Reduce take one");
    }
    if (takes_root(cls.op) ? !cls.root && !p2p : cls.root.has_value()) {
        fail(name + (cls.root ? " has a root" : " has no root"),
             "Only Broadcast, Reduce, Gather and Scatter take one");
    }
    check_comms(plan, cls, name);
    if (p2p) {
        cls.transfers.resize(cls.comms.size());
    } else {
        const std::uint64_t row =
            itemsize(cls.datatype) * static_cast<std::uint64_t>(ranks_of(plan, cls));
        if (cls.count > most_bytes / row) {
            fail(name + " has count " + std::to_string(cls.count), "No machine holds that much");
        }
        check_size(plan, cls, has(keys, "size_bytes"), "count gives ");
    }
}

}  // namespace collscope::plan_text
