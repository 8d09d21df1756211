// What the processes exchange: where each runs, whether a step succeeded everywhere, how
// long the slowest took.
//
// Every function is collective over all processes, and only the thread that initialised MPI calls
// it.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "backend.h"

namespace collscope {

// A number and the rank of the plan it comes from.
struct Slowest {
    double value = 0;
    int rank = 0;
};

class Control {
public:
    // `local_ranks`: ranks of the plan in each process.
    explicit Control(int local_ranks);
    ~Control();
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;

    int process() const { return process_; }
    int processes() const { return processes_; }
    bool writer() const { return process_ == 0; }
    int first_rank() const { return process_ * local_ranks_; }
    int local_ranks() const { return local_ranks_; }
    const std::vector<int>& here() const { return here_; }  // processes of this host, in order
    int processes_on_host() const { return static_cast<int>(here_.size()); }
    // Host of a rank of the plan.
    const std::string& host(int rank) const {
        return hosts_[static_cast<std::size_t>(rank / local_ranks_)];
    }
    const std::vector<std::string>& hosts() const { return hosts_; }  // by process

    void barrier() const { MPI_Barrier(comm_); }
    // Ok when every process is ok; otherwise every process gets the text of the first that is not.
    Status agree(const Status& mine) const;
    // Sets `value` to the largest of all processes and returns what `agree` does, in one message
    // when all are ok.
    Status slowest(const Status& mine, double& value) const;
    Slowest slowest_rank(Slowest mine) const;
    void max_each(std::vector<double>& values) const;
    void sum_each(std::vector<unsigned long long>& values) const;
    bool any(bool mine) const;
    std::string broadcast(std::string text) const;                       // that of the writer
    std::vector<std::string> gather_all(const std::string& text) const;  // by process

private:
    Status text_of_first(int first, const std::string& mine) const;

    MPI_Comm comm_ = MPI_COMM_NULL;
    int local_ranks_;
    int process_ = 0;
    int processes_ = 1;
    std::vector<int> here_;
    std::vector<std::string> hosts_;
};

}  // namespace collscope
