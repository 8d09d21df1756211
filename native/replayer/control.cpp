#include "control.h"

#include <array>

namespace collscope {

Control::Control(int local_ranks) : local_ranks_(local_ranks) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_rank(comm_, &process_);
    MPI_Comm_size(comm_, &processes_);
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, process_, MPI_INFO_NULL, &here);
    int processes_here = 0;
    MPI_Comm_size(here, &processes_here);
    here_.resize(static_cast<std::size_t>(processes_here));
    MPI_Allgather(&process_, 1, MPI_INT, here_.data(), 1, MPI_INT, here);
    MPI_Comm_free(&here);
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    MPI_Get_processor_name(name.data(), &length);
    hosts_ = gather_all(name.data());
}

Control::~Control() { MPI_Comm_free(&comm_); }

Status Control::agree(const Status& mine) const {
    int first = mine.ok() ? processes_ : process_;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm_);
    return text_of_first(first, mine.error);
}

Status Control::slowest(const Status& mine, double& value) const {
    std::array<double, 2> both = {value, static_cast<double>(mine.ok() ? -processes_ : -process_)};
    MPI_Allreduce(MPI_IN_PLACE, both.data(), 2, MPI_DOUBLE, MPI_MAX, comm_);
    value = both[0];
    return text_of_first(static_cast<int>(-both[1]), mine.error);
}

Status Control::text_of_first(int first, const std::string& mine) const {
    if (first == processes_) [[likely]] {
        return {};
    }
    int length = static_cast<int>(mine.size());
    MPI_Bcast(&length, 1, MPI_INT, first, comm_);
    std::string text = mine;
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, first, comm_);
    return {text};
}

Slowest Control::slowest_rank(Slowest mine) const {
    struct {
        double value;
        int rank;
    } pair = {mine.value, mine.rank};
    MPI_Allreduce(MPI_IN_PLACE, &pair, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm_);
    return {pair.value, pair.rank};
}

void Control::max_each(std::vector<double>& values) const {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  comm_);
}

void Control::sum_each(std::vector<unsigned long long>& values) const {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                  MPI_UNSIGNED_LONG_LONG, MPI_SUM, comm_);
}

bool Control::any(bool mine) const {
    int flag = mine ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MAX, comm_);
    return flag != 0;
}

std::string Control::broadcast(std::string text) const {
    int length = static_cast<int>(text.size());
    MPI_Bcast(&length, 1, MPI_INT, 0, comm_);
    text.resize(static_cast<std::size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, 0, comm_);
    return text;
}

std::vector<std::string> Control::gather_all(const std::string& text) const {
    const int mine = static_cast<int>(text.size());
    const auto n = static_cast<std::size_t>(processes_);
    std::vector<int> lengths(n);
    std::vector<int> places(n);
    MPI_Allgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_);
    int total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        places[i] = total;
        total += lengths[i];
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    MPI_Allgatherv(text.data(), mine, MPI_CHAR, all.data(), lengths.data(), places.data(), MPI_CHAR,
                   comm_);
    std::vector<std::string> out(n);
    for (std::size_t i = 0; i < n; ++i) {
        out[i] =
            all.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(lengths[i]));
    }
    return out;
}

}  // namespace collscope
