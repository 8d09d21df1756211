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
    static constexpr std::size_t longest = 63;

    // The number of a name, from 1; 0 for null, "", and where all numbers are taken.
    std::uint8_t number(const char* text);

    // The name of a number, or "" where there is none yet.
    std::string name(std::uint8_t number) const;

private:
    enum : std::uint8_t { empty, being_written, whole };
    struct Name {
        std::atomic<std::uint8_t> state{empty};
        std::array<char, longest + 1> text{};
    };

    std::array<Name, most + 1> names_;  // 0 is nobody's
};

}  // namespace collscope::recorder
