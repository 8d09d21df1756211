// How far the run is, on stderr.
#pragma once

#include <string>

#include "csv.h"

namespace collscope {

class Progress {
public:
    // `total`: classes to measure. On a terminal a line overwrites the one before.
    Progress(bool on, std::size_t total);
    ~Progress();

    void finished(const Row& row);

private:
    bool on_;
    bool terminal_;
    std::size_t total_;
    std::size_t done_ = 0;
    double begun_s_;
};

}  // namespace collscope
