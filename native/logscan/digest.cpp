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

    template <class Table>
    void table(const Table& rows) {
        Table::columns([&](const char* name, auto member) { column(name, rows.*member); });
    }

    void signature(const Signature& row) {
        Signature::columns(
            [&](const char*, auto field) { text_ += std::to_string(row.*field) + ' '; });
        text_ += '\n';
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

}  // namespace

std::string digest(const Result& result) {
    Digest out;
    for (const Process& process : result.processes) {
        out.add(process.host + ' ' + std::to_string(process.pid) + " <" + process.prefix + "> " +
                std::to_string(process.first_line));
    }
    out.table(result.threads);
    out.strings("op", result.ops.strings());
    out.table(result.comms);
    for (const Signature& signature : result.signatures.keys()) {
        out.signature(signature);
    }
    out.table(result.calls);
    out.table(result.groups);
    out.table(result.kernels);
    out.strings("kernel_name", result.kernel_names.strings());
    out.table(result.tunings);
    out.strings("tuning_name", result.tuning_names.strings());
    out.table(result.messages);
    out.strings("message", result.messages.text);
    for (const auto& [line, text] : result.unknown_samples) {
        out.add(std::to_string(line) + ' ' + text);
    }
    for (std::size_t i = 0; i < counter_count; ++i) {
        out.add(std::string(counter_names[i]) + ' ' + std::to_string(result.counters[i]));
    }
    for (const Damage& damage : result.damage) {
        out.add(std::to_string(damage.line) + ' ' + std::to_string(static_cast<int>(damage.code)) +
                ' ' + damage.excerpt);
    }
    return out.take();
}

}  // namespace logscan
