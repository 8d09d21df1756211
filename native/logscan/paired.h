// A scanner that has the later half of each large piece scanned by a second thread.
#pragma once

#include "scanner.h"

namespace logscan {

class PairedScanner {
public:
    // Pieces of fewer bytes are scanned by one thread.
    explicit PairedScanner(std::size_t least = 1 << 20) : least_(least) {}

    // As Scanner::feed and Scanner::finish, with the same outcome.
    void feed(std::string_view data);
    Result finish() { return scanner_.finish(); }

private:
    bool feed_halves(std::string_view first, std::string_view second);

    Scanner scanner_;
    std::size_t least_;
    int refused_ = 0;  // second halves that had to be scanned again
};

}  // namespace logscan
