// Names that the library hands over as text (operation, datatype, algorithm, protocol), each kept
// once under a number. Any thread looks up, without a lock; the writer reads what is there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace collscope::recorder {

class Names {
public:
    static constexpr std::size_t most = 255;
    static constexpr std::size_t longest = 62;

    // The number of a name, from 1; 0 for null, "", and where all numbers are taken.
    std::uint8_t number(const char* text);

    // The name of a number, or "" where there is none yet.
    std::string name(std::uint8_t number) const;

private:
    // Whether a number has this name.
    bool is_name(std::uint8_t number, const char* text) const;

    enum : std::uint8_t { empty, being_written, whole };
    struct alignas(64) Name {
        std::atomic<std::uint8_t> state{empty};
        std::array<char, longest + 1> text{};
    };

    std::array<Name, most + 1> names_;  // 0 is nobody's
    // By the address of a text the number that it had last: the text there may be another by now.
    alignas(64) std::array<std::atomic<std::uint8_t>, 64> last_numbers_{};
};

}  // namespace collscope::recorder
