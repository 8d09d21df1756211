// FNV-1a (64 bits): a plan's fingerprint.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace collscope {

// Offset basis and prime of http://www.isthe.com/chongo/tech/comp/fnv/.
inline std::string fnv1a_hex(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : bytes) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
}

}  // namespace collscope
