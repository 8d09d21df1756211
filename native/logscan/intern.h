// Hash tables from bytes, and from small keys of whole machine words, to indices 0, 1, 2, ...
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace logscan {

inline constexpr std::uint32_t NONE = 0xFFFFFFFFu;

inline std::uint64_t mix(std::uint64_t seed, std::uint64_t word) {
    const std::uint64_t product = (seed ^ word) * 0x9E3779B97F4A7C15ull;
    return product ^ (product >> 32);
}

inline std::uint64_t hash_bytes(std::string_view text) {
    std::uint64_t sum = text.size();
    while (text.size() >= 8) {
        std::uint64_t word;
        std::memcpy(&word, text.data(), 8);
        sum = mix(sum, word);
        text.remove_prefix(8);
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, text.data(), text.size());
    return mix(sum, tail);
}

// Open addressing over indices; the owner keeps the keys. At most half full.
class Slots {
public:
    // Index for which `same(index)` holds among those of this hash, or NONE after storing `fresh`.
    template <class Same>
    std::uint32_t find_or_add(std::uint64_t hash, std::uint32_t fresh, Same same) {
        std::size_t at = hash & mask();
        for (; slots_[at].index != NONE; at = (at + 1) & mask()) {
            if (slots_[at].hash == hash && same(slots_[at].index)) {
                return slots_[at].index;
            }
        }
        slots_[at] = {hash, fresh};
        if (++used_ * 2 > slots_.size()) {
            grow();
        }
        return NONE;
    }

    // The same without storing.
    template <class Same>
    std::uint32_t find(std::uint64_t hash, Same same) const {
        for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
            if (slots_[at].index == NONE || (slots_[at].hash == hash && same(slots_[at].index))) {
                return slots_[at].index;
            }
        }
    }

private:
    struct Slot {
        std::uint64_t hash;
        std::uint32_t index;
    };

    std::size_t mask() const { return slots_.size() - 1; }
    void grow();

    std::vector<Slot> slots_ = std::vector<Slot>(64, Slot{0, NONE});
    std::size_t used_ = 0;
};

// Strings, each once, in order of first appearance.
class StringTable {
public:
    std::uint32_t intern(std::string_view text);
    const std::vector<std::string>& strings() const { return strings_; }

private:
    std::vector<std::string> strings_;
    Slots slots_;
};

// Keys made of 64-bit words without padding, each once, in order of first appearance.
template <class Key>
class KeyTable {
    static_assert(std::is_trivially_copyable_v<Key> && sizeof(Key) % 8 == 0);

public:
    std::uint32_t intern(const Key& key) {
        const auto fresh = static_cast<std::uint32_t>(keys_.size());
        const std::uint32_t found = slots_.find_or_add(
            hash(key), fresh, [&](std::uint32_t i) { return words(keys_[i]) == words(key); });
        if (found != NONE) [[likely]] {
            return found;
        }
        keys_.push_back(key);
        return fresh;
    }

    const std::vector<Key>& keys() const { return keys_; }

private:
    using Words = std::array<std::uint64_t, sizeof(Key) / 8>;

    static Words words(const Key& key) { return std::bit_cast<Words>(key); }

    static std::uint64_t hash(const Key& key) {
        std::uint64_t sum = 0;
        for (const std::uint64_t word : words(key)) {
            sum = mix(sum, word);
        }
        return sum;
    }

    std::vector<Key> keys_;
    Slots slots_;
};

}  // namespace logscan
