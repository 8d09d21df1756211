// A bounded queue of records: any thread puts, one takes. No lock, no wait, no allocation: where
// the ring is full the record is dropped and counted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "format.h"
#include "process.h"

namespace collscope::recorder {

// A record as it will stand in the file; check and ordinal are the writer's.
struct Cell {
    Header header;
    std::uint32_t of_callback;  // 1: a callback made it
    std::uint32_t spent_ns;     // in this callback, times the callbacks that it stands for
    alignas(8) unsigned char body[96];
};

static_assert(sizeof(CallBody) <= sizeof(Cell::body) && sizeof(ProxyBody) <= sizeof(Cell::body));

template <typename Body>
Cell cell_of(Kind kind, std::uint8_t small, std::uint32_t comm, const Body& body) {
    Cell cell;
    cell.header = {0, sizeof(Header) + sizeof(Body), kind, small, 0, comm};
    cell.of_callback = 0;
    cell.spent_ns = 0;
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

    // False where it is full. The time since `began_ns` is the callback's; 0: there is none.
    bool put(const Cell& cell, std::uint64_t began_ns = 0) {
        std::uint64_t at = head_.load(std::memory_order_relaxed);
        for (;;) {
            Slot& slot = slots_[at % slots];
            const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
            if (turn == at) {
                if (head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
                    slot.cell.header = cell.header;
                    std::memcpy(slot.cell.body, cell.body, cell.header.size - sizeof(Header));
                    fetch(at + ahead);
                    slot.cell.of_callback = began_ns != 0 ? 1 : 0;
                    slot.cell.spent_ns = began_ns != 0 ? spent(at, began_ns) : 0;
                    slot.turn.store(at + 1, std::memory_order_release);
                    return true;
                }
            } else if (turn < at) {
                dropped_.fetch_add(1, std::memory_order_relaxed);
                if (began_ns != 0) {
                    dropped_ns_.fetch_add(monotonic_ns() - began_ns, std::memory_order_relaxed);
                }
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
    // Time in callbacks whose records were dropped.
    std::uint64_t dropped_ns() const { return dropped_ns_.load(std::memory_order_relaxed); }

private:
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> turn;
        Cell cell;
    };
    static_assert(sizeof(Slot) == 128);

    // A clock read is a large part of a callback. So all of the first are timed, then one in eight.
    // They lie at multiples of the golden ratio, which no period of the calls meets.
    static constexpr std::uint64_t timed_first = 64;
    static constexpr int share_bits = 3;
    static std::uint32_t spent(std::uint64_t at, std::uint64_t began_ns) {
        const bool first = at < timed_first;
        if (!first && at * 0x9e3779b97f4a7c15u >> (64 - share_bits) != 0) {
            return 0;
        }
        const std::uint64_t ns = (monotonic_ns() - began_ns) << (first ? 0 : share_bits);
        return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, ~std::uint32_t{0}));
    }

    // A slot was last the writer's, on another core. So its memory is fetched before its turn.
    static constexpr std::uint64_t ahead = 4;
    void fetch(std::uint64_t at) const {
        const auto* slot = reinterpret_cast<const char*>(&slots_[at % slots]);
        __builtin_prefetch(slot, 1);
        __builtin_prefetch(slot + 64, 1);
    }

    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<std::uint64_t> head_{0};
    alignas(64) std::uint64_t tail_ = 0;  // the writer's
    alignas(64) std::atomic<std::uint64_t> dropped_{0};
    std::atomic<std::uint64_t> dropped_ns_{0};
};

}  // namespace collscope::recorder
