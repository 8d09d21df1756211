#include "names.h"

#include <cstring>

namespace collscope::recorder {

std::uint8_t Names::number(const char* text) {
    if (text == nullptr || *text == '\0') {
        return 0;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(text);
    std::atomic<std::uint8_t>& last =
        last_numbers_[(address ^ address >> 6) % last_numbers_.size()];
    const std::uint8_t likely = last.load(std::memory_order_relaxed);
    if (likely != 0 && is_name(likely, text)) {
        return likely;
    }
    for (std::size_t i = 1; i <= most; ++i) {
        Name& name = names_[i];
        std::uint8_t state = name.state.load(std::memory_order_acquire);
        if (state == empty) {
            if (name.state.compare_exchange_strong(state, being_written,
                                                   std::memory_order_acquire)) {
                std::strncpy(name.text.data(), text, longest);
                name.state.store(whole, std::memory_order_release);
                last.store(static_cast<std::uint8_t>(i), std::memory_order_relaxed);
                return static_cast<std::uint8_t>(i);
            }
        }
        // One that another thread writes at this moment is passed by: a name may have two numbers.
        if (is_name(static_cast<std::uint8_t>(i), text)) {
            last.store(static_cast<std::uint8_t>(i), std::memory_order_relaxed);
            return static_cast<std::uint8_t>(i);
        }
    }
    return 0;
}

bool Names::is_name(std::uint8_t number, const char* text) const {
    const Name& name = names_[number];
    return name.state.load(std::memory_order_acquire) == whole &&
           std::strncmp(name.text.data(), text, longest) == 0;
}

std::string Names::name(std::uint8_t number) const {
    const Name& name = names_[number];
    return name.state.load(std::memory_order_acquire) == whole ? name.text.data() : "";
}

}  // namespace collscope::recorder
