// A bounded queue of records: any thread puts, one takes. No lock, no wait, no allocation: where
// the ring is full the record is dropped and counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "format.h"

namespace collscope::recorder {

// A record as it will stand in the file; check and ordinal are the writer's.
struct Cell {
    Header header;
    alignas(8) unsigned char body[96];
};

static_assert(sizeof(CallBody) <= sizeof(Cell::body) && sizeof(ProxyBody) <= sizeof(Cell::body));

template <typename Body>
Cell cell_of(Kind kind, std::uint8_t small, std::uint32_t comm, const Body& body) {
    Cell cell;
    cell.header = {0, sizeof(Header) + sizeof(Body), kind, small, 0, comm};
    std::memcpy(cell.body, &body, sizeof body);
    return cell;
}

template <typename Body>
Body body_of(const Cell& cell) {
    Body body;
    std::memcpy(&body, cell.body, sizeof body);
    return body;
}

class Ring {
public:
    static constexpr std::size_t slots = 1 << 15;  // 4 MiB

    Ring() : slots_(std::make_unique<Slot[]>(slots)) {
        for (std::size_t i = 0; i < slots; ++i) {
            slots_[i].turn.store(i, std::memory_order_relaxed);
        }
    }

    // False where it is full.
    bool put(const Cell& cell) {
        std::uint64_t at = head_.load(std::memory_order_relaxed);
        for (;;) {
            Slot& slot = slots_[at % slots];
            const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
            if (turn == at) {
                if (head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
                    std::memcpy(&slot.cell, &cell, cell.header.size);
                    slot.turn.store(at + 1, std::memory_order_release);
                    return true;
                }
            } else if (turn < at) {
                dropped_.fetch_add(1, std::memory_order_relaxed);
                return false;
            } else {
                at = head_.load(std::memory_order_relaxed);
            }
        }
    }

    // The next record, or null; `release` frees it.
    const Cell* peek() const {
        const Slot& slot = slots_[tail_ % slots];
        return slot.turn.load(std::memory_order_acquire) == tail_ + 1 ? &slot.cell : nullptr;
    }

    void release() {
        slots_[tail_ % slots].turn.store(tail_ + slots, std::memory_order_release);
        ++tail_;
    }

    std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

private:
    struct Slot {
        std::atomic<std::uint64_t> turn;
        Cell cell;
    };

    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<std::uint64_t> head_{0};
    alignas(64) std::uint64_t tail_ = 0;  // the writer's
    alignas(64) std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace collscope::recorder
