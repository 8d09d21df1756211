// Stands in for NCCL's side of the tuner interface: opens the plugin as the library does, keeps
// what the plugin logs, and has a cost table.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "check.h"
#include "plugin_api.h"

namespace library {

using namespace collscope::tuner;

struct Line {
    int level;
    unsigned long subsystem;
    std::string text;
};

inline std::mutex lines_lock;
inline std::vector<Line> lines;

[[gnu::format(printf, 5, 6)]] inline void logger(int level, unsigned long subsystem, const char*,
                                                 int, const char* format, ...) {
    char text[2048];
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    const std::lock_guard<std::mutex> hold(lines_lock);
    lines.push_back({level, subsystem, text});
}

inline std::size_t logged(int level, const std::string& part) {
    const std::lock_guard<std::mutex> hold(lines_lock);
    std::size_t found = 0;
    for (const Line& line : lines) {
        found += line.level == level && line.text.find(part) != std::string::npos;
    }
    return found;
}

inline void* opened() {
    static void* handle = dlopen(COLLSCOPE_TUNER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(EXIT_FAILURE);
    }
    return handle;
}

template <typename Tuner>
const Tuner& exported(const char* symbol) {
    const void* found = dlsym(opened(), symbol);
    if (found == nullptr) {
        std::fprintf(stderr, "no %s\n", symbol);
        std::exit(EXIT_FAILURE);
    }
    return *static_cast<const Tuner*>(found);
}

// Writes a file into the folder of the test and names it to the plugin.
inline void use_csv(const std::string& name, const std::string& text,
                    const char* variable = "COLLSCOPE_TUNER_CSV") {
    std::FILE* file = std::fopen(name.c_str(), "wb");
    CHECK(file != nullptr);
    CHECK(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    std::fclose(file);
    setenv(variable, name.c_str(), 1);
}

// float[7][3] of one call, all costs 1 but those ruled out.
struct Costs {
    std::array<float, algorithms * protocols> cells;

    Costs() { cells.fill(1.0f); }
    float& at(int algorithm, int protocol) {
        return cells[static_cast<std::size_t>(algorithm * protocols + protocol)];
    }
    // As the library passes it.
    float** block() { return reinterpret_cast<float**>(cells.data()); }

    // "ring/ll128" where exactly one cell became the cheapest, "" where none did.
    std::string chosen() const {
        static const char* const names[] = {"tree", "ring",     "cnd", "cnc",
                                            "nvls", "nvlstree", "pat"};
        static const char* const ways[] = {"ll", "ll128", "simple"};
        std::string found;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (cells[i] == 0.0f) {
                found += std::string(names[i / protocols]) + "/" + ways[i % protocols];
            }
        }
        return found;
    }
};

// One communicator over the fifth interface.
class Communicator {
public:
    Communicator(std::size_t nranks, std::size_t nnodes, Logger log = logger) {
        CHECK(tuner_.init(&context_, 0x1234, nranks, nnodes, log, nullptr, nullptr) == success);
    }
    ~Communicator() { CHECK(tuner_.finalize(context_) == success); }
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    // What became of a call, as "ring/ll128 8": 0 channels where the plugin set none.
    std::string choice(int collective, std::size_t bytes, int pipe_ops = 1, int registered = 0) {
        Costs costs;
        return choice(costs, collective, bytes, pipe_ops, registered);
    }
    std::string choice(Costs& costs, int collective, std::size_t bytes, int pipe_ops = 1,
                       int registered = 0) {
        int channels = 0;
        CHECK(tuner_.get_coll_info(context_, collective, bytes, pipe_ops, costs.block(), algorithms,
                                   protocols, registered, &channels) == success);
        const std::string chosen = costs.chosen();
        return chosen.empty() && channels == 0 ? "" : chosen + " " + std::to_string(channels);
    }
    void* context() { return context_; }

private:
    const TunerV5& tuner_ = exported<TunerV5>("ncclTunerPlugin_v5");
    void* context_ = nullptr;
};

}  // namespace library
