#include "message.h"

#include "text.h"

namespace logscan {

namespace {

constexpr std::size_t text_bytes = 1100;

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
        if (text.starts_with(word)) {
            return true;
        }
    }
    return false;
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
        if (contains(text, word)) {
            return true;
        }
    }
    return false;
}

// "transport/net_ib.cc:667 -> 2", "[Proxy Service]" may follow
bool is_error_return(std::string_view message) {
    const std::size_t arrow = find(message, " -> ");
    if (arrow == npos || arrow + 4 >= message.size() || !is_digit(message[arrow + 4])) {
        return false;
    }
    const std::string_view place = message.substr(0, arrow);
    const std::size_t colon = place.rfind(':');
    if (colon == npos || colon + 1 >= place.size() || place.find(' ') != npos) {
        return false;
    }
    Cursor number(place.substr(colon + 1));
    std::uint64_t line = 0;
    return number.take_decimal(line) && number.done() && place.find('.') < colon;
}

bool is_init(std::string_view message) {
    const std::size_t dash = find(message, "- ");  // "key 0- Init START" has no blank before it
    return (dash != npos && contains_any(message.substr(dash),
                                         {"- Init ", "- Destroy ", "- Abort ", "- Revoke "})) ||
           message.starts_with("CommRevokeAsync ");
}

// "Channel 00/0 : 0[0] -> 1[1]" without what carries it is cut, as where a terminal wraps lines.
// "Ring 00 : 3 -> 0 -> 1" and "Channel 00/02 : 0 1" list the ranks of a ring.
bool is_link(std::string_view message) {
    if (!starts_with_any(message, {"Channel ", "Ring ", "Coll ", "CollNet"})) {
        return false;
    }
    const std::size_t arrow = find(message, " -> ");
    return contains(message, " via ") ||
           (arrow != npos && find(message.substr(arrow + 1), " -> ") == npos &&
            find(message.substr(0, arrow), " : ") != npos);
}

bool is_env(std::string_view message) {
    return contains_any(message, {" set by environment to ", " set to "}) ||
           starts_with_any(message, {"Comm config", "Invalid value"});
}

bool is_version(std::string_view message) {
    return starts_with_any(message, {"NCCL version", "RCCL version", "HIP version", "ROCm version",
                                     "cudaDriverVersion", "Hostname  ", "Librccl path"});
}

bool is_net(std::string_view message) {
    return message.starts_with("NET/") ||
           contains_any(message, {"/Plugin", "Using network", "plugin", "Plugin Path"});
}

bool is_structure(std::string_view message) {
    return contains_any(message, {" coll channels", "Connected all", "Connected NVLS",
                                  "NVLS multicast", "MSCCL"}) ||
           starts_with_any(message, {"Trees [", "P2P Chunksize", "NVLS comm"});
}

bool is_misc(std::string_view message) {
    return starts_with_any(message, {"Init timings", "ncclCommGrow", "Bootstrap : Using",
                                     "Bootstrap: Using", "Launch mode"}) ||
           contains_any(message, {"NCCL_SPLIT_NOCOLOR", "Generated commHash"});
}

// Proxies, buffers, trees, the drawing of the topology: thousands of lines in a large job, so they
// are recognised before the searches.
bool is_noise(std::string_view message) {
    return starts_with_any(
        message, {"Connected to proxy", "New proxy ", "Imported shareable", "Allocated shareable",
                  "UDS converted", "Tree ", "NVLS Trees", "Pattern ", "GPU/", "CPU/", "NVS/", "+ ",
                  "===", "[Proxy ", "[node_id", "threadThresholds", "Setting affinity"});
}

// What is left of rings, channel lists and the cost table when nothing else claims it.
bool is_listing(std::string_view message) {
    return message.empty() || is_blank(message[0]) || is_digit(message[0]) ||
           starts_with_any(message, {"Ring ", "Channel ", "ReduceScatter |", "Topology detection"});
}

}  // namespace

MessageKind classify(std::string_view message) {
    if (is_noise(message)) {
        return MessageKind::skipped;
    }
    if (is_link(message)) {
        return MessageKind::link;
    }
    if (is_init(message)) {
        return MessageKind::init;
    }
    if (contains(message, " nRanks ") && contains(message, " nNodes ")) {
        return MessageKind::topology;
    }
    if (is_misc(message)) {
        return MessageKind::misc;
    }
    if (is_structure(message)) {
        return MessageKind::structure;
    }
    if (is_version(message)) {
        return MessageKind::version;
    }
    if (is_env(message)) {
        return MessageKind::env;
    }
    if (is_net(message)) {
        return MessageKind::net;
    }
    if (is_error_return(message)) {
        return MessageKind::error_return;
    }
    return is_listing(message) ? MessageKind::skipped : MessageKind::unknown;
}

bool is_bare_version(std::string_view line, bool in_block, std::size_t& offset) {
    // NCCL: "NCCL version 2.18.5+cuda12.2"; RCCL: "RCCL version : 2.22.3-HEAD:271856d"
    offset = find(line, "CCL version ");
    if (offset != npos && offset > 0 && (line[offset - 1] == 'N' || line[offset - 1] == 'R')) {
        --offset;
        return offset == 0 || !is_digit(line[offset - 1]);
    }
    if (!in_block) {
        return false;
    }
    // The lines that follow it: "HIP version  : 6.3.42134", "Librccl path : /opt/rocm/lib/..."
    for (const std::string_view word :
         {"HIP version ", "ROCm version ", "Hostname  ", "Librccl path "}) {
        offset = find(line, word);
        if (offset != npos && contains(line.substr(offset), ": ")) {
            return true;
        }
    }
    return false;
}

void store_message(Result& result, const Place& place, MessageKind kind, std::string_view text) {
    Messages& messages = result.messages;
    messages.process.push(place.process);
    messages.thread.push(place.thread);
    messages.line.push(place.line);
    messages.kind.push(static_cast<std::uint8_t>(kind));
    messages.text.push_back(clean_text(text, text_bytes));
    result.count(Counter::messages);
}

}  // namespace logscan
