#include "paired.h"

#include <future>
#include <memory>
#include <system_error>
#include <thread>

namespace logscan {

namespace {

// Glued lines and the like come again and again: a log with that many is left to one thread.
constexpr int refused_limit = 16;

std::unique_ptr<Scanner> scan(std::string_view data) {
    auto scanner = std::make_unique<Scanner>();
    scanner->feed(data);
    return scanner;
}

}  // namespace

void PairedScanner::feed(std::string_view data) {
    if (data.size() >= least_ && refused_ < refused_limit) {
        const std::size_t middle = data.find('\n', data.size() / 2);
        const std::size_t last = data.rfind('\n');
        // The second half ends with a line's end as well, what follows stays with this scanner.
        if (middle < last && last != std::string_view::npos &&
            feed_halves(data.substr(0, middle + 1), data.substr(middle + 1, last - middle))) {
            data.remove_prefix(last + 1);
        }
    }
    scanner_.feed(data);
}

// False when no thread could be started: nothing was taken then.
bool PairedScanner::feed_halves(std::string_view first, std::string_view second) {
    std::future<std::unique_ptr<Scanner>> ahead;
    try {
        ahead = std::async(std::launch::async, scan, second);
    } catch (const std::system_error&) {
        refused_ = refused_limit;
        return false;
    }
    scanner_.feed(first);
    if (!scanner_.append(*ahead.get())) {
        ++refused_;
        scanner_.feed(second);
    }
    return true;
}

}  // namespace logscan
