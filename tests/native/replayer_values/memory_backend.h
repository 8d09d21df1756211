// A backend of plain memory, and the operations as their manuals define them, done in the
// simplest way.
#pragma once

#include <cstring>
#include <vector>

#include "backend.h"
#include "layout.h"
#include "reduce.h"

// Device memory is host memory; there is nothing to enqueue.
class MemoryBackend : public collscope::Backend {
public:
    using Status = collscope::Status;

    std::string name() const override { return "memory"; }
    std::string library() const override { return ""; }
    std::string library_path() const override { return ""; }
    std::string runtime() const override { return ""; }
    std::string device(int) const override { return ""; }
    int local_ranks() const override { return 1; }
    Status allocate(int, std::size_t, std::byte*&) override { return {"none"}; }
    Status copy_in(int, std::byte* device, const std::byte* host, std::size_t bytes) override {
        std::memcpy(device, host, bytes);
        return {};
    }
    Status copy_out(int, std::byte* host, const std::byte* device, std::size_t bytes) override {
        if (refuses) {
            return {"copy refused"};
        }
        std::memcpy(host, device, bytes);
        copied_out += bytes;
        return {};
    }
    Status copy_within(int, std::byte* to, const std::byte* from, std::size_t bytes) override {
        std::memcpy(to, from, bytes);  // the sanitizer objects to overlap
        return {};
    }
    Status fill(int, std::byte* device, unsigned char byte, std::size_t bytes) override {
        std::memset(device, byte, bytes);
        return {};
    }
    Status create_communicator(int) override { return {}; }
    Status group_start() override { return {}; }
    Status group_end() override { return {}; }
    Status enqueue(int, const collscope::Class&, int, collscope::Buffers) override { return {}; }
    Status mark_start(int, int) override { return {}; }
    Status mark_stop(int, int) override { return {}; }
    Status elapsed_us(int, int, double&) override { return {}; }
    Status synchronise(int) override { return {}; }
    bool has_graphs() const override { return false; }
    Status capture_begin(int) override { return {}; }
    Status capture_end(int) override { return {}; }
    Status graph_launch(int) override { return {}; }
    void abort() override {}

    bool refuses = false;
    std::size_t copied_out = 0;
};

// One rank's memory: exactly the arena, so that the sanitizer sees what is beside it.
struct Memory {
    std::vector<std::byte> arena;
    collscope::Buffers buffers;
};

using Contents = std::vector<std::vector<std::byte>>;  // per rank

// What each rank's receive buffer holds after the call; empty where it receives nothing.
Contents received(const collscope::Class& cls, int which, const Contents& sent);
