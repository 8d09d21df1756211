#include "intern.h"

namespace logscan {

void Slots::grow() {
    std::vector<Slot> old(slots_.size() * 2, Slot{0, NONE});
    old.swap(slots_);
    for (const Slot& slot : old) {
        if (slot.index == NONE) {
            continue;
        }
        std::size_t at = slot.hash & mask();
        while (slots_[at].index != NONE) {
            at = (at + 1) & mask();
        }
        slots_[at] = slot;
    }
}

std::uint32_t StringTable::intern(std::string_view text) {
    const auto fresh = static_cast<std::uint32_t>(strings_.size());
    const std::uint32_t found = slots_.find_or_add(
        hash_bytes(text), fresh, [&](std::uint32_t i) { return strings_[i] == text; });
    if (found != NONE) [[likely]] {
        return found;
    }
    strings_.emplace_back(text);
    return fresh;
}

}  // namespace logscan
