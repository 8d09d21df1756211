#include "digest.h"

#include <bit>

namespace logscan {

namespace {

class Digest {
public:
    template <class T>
    void column(const char* name, const Column<T>& column) {
        text_ += name;
        for (std::size_t i = 0; i < column.size(); ++i) {
            text_ += ' ';
            if constexpr (std::is_same_v<T, double>) {
                text_ += std::to_string(std::bit_cast<std::uint64_t>(column[i]));  // NaN too
            } else {
                text_ += std::to_string(column[i]);
            }
        }
        text_ += '\n';
    }

    template <class... Columns>
    void table(const char* name, const Columns&... columns) {
        (column(name, columns), ...);
    }

    void strings(const char* name, const std::vector<std::string>& strings) {
        for (const std::string& string : strings) {
            text_ += name;
            text_ += ' ' + string + '\n';
        }
    }

    void add(const std::string& line) { text_ += line + '\n'; }
    std::string take() { return std::move(text_); }

private:
    std::string text_;
};

std::string row(std::initializer_list<std::int64_t> values) {
    std::string text;
    for (const std::int64_t value : values) {
        text += std::to_string(value) + ' ';
    }
    return text;
}

}  // namespace

std::string digest(const Result& result) {
    Digest out;
    for (const Process& process : result.processes) {
        out.add(process.host + ' ' + std::to_string(process.pid) + " <" + process.prefix + "> " +
                std::to_string(process.first_line));
    }
    out.table("threads", result.threads.process, result.threads.tid);
    out.strings("op", result.ops.strings());
    const Comms& comms = result.comms;
    out.table("comms", comms.process, comms.ptr, comms.nranks, comms.global_rank, comms.generation);
    for (const Signature& s : result.signatures.keys()) {
        out.add(row({static_cast<std::int64_t>(s.count), s.op, s.datatype, s.redop, s.root,
                     s.nranks, s.flags}));
    }
    const Calls& calls = result.calls;
    out.table("coll", calls.comm, calls.sig, calls.op_count, calls.slot, calls.task, calls.thread,
              calls.line, calls.source);
    const Groups& groups = result.groups;
    out.table("groups", groups.process, groups.thread, groups.line, groups.delta);
    const Kernels& k = result.kernels;
    out.table("kernel", k.process, k.kind, k.time_ns, k.rank, k.block, k.channel, k.thread,
              k.op_count, k.op_count2, k.name, k.bus_id, k.nranks, k.comm_ptr, k.root, k.nc,
              k.line);
    out.strings("kernel_name", result.kernel_names.strings());
    const Tunings& t = result.tunings;
    out.table("tuning", t.process, t.thread, t.line, t.kind, t.op, t.bytes, t.algorithm, t.protocol,
              t.kernel, t.channels, t.time_us, t.comm_ptr);
    out.strings("tuning_name", result.tuning_names.strings());
    const Messages& messages = result.messages;
    out.table("messages", messages.process, messages.thread, messages.line, messages.kind);
    out.strings("message", messages.text);
    for (const auto& [line, text] : result.unknown_samples) {
        out.add(std::to_string(line) + ' ' + text);
    }
    for (std::size_t i = 0; i < counter_count; ++i) {
        out.add(std::string(counter_names[i]) + ' ' + std::to_string(result.counters[i]));
    }
    for (const Damage& damage : result.damage) {
        out.add(row({static_cast<std::int64_t>(damage.line), static_cast<int>(damage.code)}) +
                damage.excerpt);
    }
    return out.take();
}

}  // namespace logscan
