#include "session.h"

#include <algorithm>
#include <set>

namespace collscope {

std::string title_of(const Row& row) {
    return "class " + std::to_string(row.class_id.value_or(-1)) + " (" + row.op + " " +
           row.datatype + (row.redop.empty() ? "" : " " + row.redop) + ", " +
           std::to_string(row.size_bytes.value_or(0)) + " bytes, " + std::to_string(row.nranks) +
           " ranks)";
}

Row row_for(const Session& session, const Class& cls) {
    Row row = row_of(session.plan, cls);
    row.nnodes = hosts_of(session, cls.comms);
    row.backend = session.backend.name();
    row.library = session.backend.library();
    row.label = session.options.label;
    row.round = session.options.round;
    return row;
}

void set_place(const Session& session, int rank, Row& row) {
    row.device = session.devices[static_cast<std::size_t>(rank)];
    row.host = session.control.host(rank);
}

int hosts_of(const Session& session, const std::vector<int>& comms) {
    std::size_t most = 0;
    for (const int index : comms) {
        std::set<std::string> hosts;
        for (const int rank : session.plan.comms[static_cast<std::size_t>(index)].ranks) {
            hosts.insert(session.control.host(rank));
        }
        most = std::max(most, hosts.size());
    }
    return static_cast<int>(most);
}

Status create_communicators(Session& session, const std::vector<int>& comms) {
    const int first = session.control.first_rank();
    Status mine;
    std::vector<std::size_t> fresh;
    for (const int index : comms) {
        const auto i = static_cast<std::size_t>(index);
        if (session.comm_tried[i]) {
            continue;
        }
        session.comm_tried[i] = true;
        fresh.push_back(i);
        const std::vector<int>& ranks = session.plan.comms[i].ranks;
        const bool member = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
            return rank >= first && rank < first + session.control.local_ranks();
        });
        if (member && mine.ok()) {
            mine = placed(session, 0, session.backend.create_communicator(index));
        }
    }
    if (!fresh.empty()) {
        const Status all = session.control.agree(mine);
        for (const std::size_t i : fresh) {  // what others had made before, works
            session.comm_errors[i] = all.error;
        }
    }
    for (const int index : comms) {
        if (const std::string& error = session.comm_errors[static_cast<std::size_t>(index)];
            !error.empty()) {
            return {error};
        }
    }
    return {};
}

Status placed(const Session& session, int local, Status status) {
    if (!status.ok()) {
        const int rank = session.control.first_rank() + local;
        status.error = "rank " + std::to_string(rank) + " on " + session.control.host(rank) + ": " +
                       status.error;
    }
    return status;
}

Status report(Session& session, const Row& row) {
    if (!session.control.writer()) {
        return {};
    }
    if (row.status != "ok") {
        const std::string title = row.class_id ? title_of(row) : "the sequence";
        std::fprintf(stderr, "%s: %s: %s\n", title.c_str(), row.status.c_str(),
                     row.message.c_str());
        std::fflush(stderr);
    }
    return session.csv.write(row);
}

}  // namespace collscope
