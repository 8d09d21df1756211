#include "known_calls.h"

#include <cstring>

namespace logscan {

namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Two sums, of two words at a time: word after word would take as long as reading the line.
std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
    constexpr std::uint64_t factor = 0x9E3779B97F4A7C15ull;
    std::uint64_t first = seed ^ text.size();
    std::uint64_t second = ~seed;
    std::uint64_t words[4];
    for (; text.size() >= sizeof words; text.remove_prefix(sizeof words)) {
        std::memcpy(words, text.data(), sizeof words);
        first = fold(first ^ words[0], words[1] ^ factor);
        second = fold(second ^ words[2], words[3] ^ factor);
    }
    return fold(first, second ^ hash_bytes(text));
}

}  // namespace

const KnownCall* KnownCalls::find(std::uint32_t thread, std::string_view op,
                                  std::string_view rest) {
    if (off_) {
        return nullptr;
    }
    if (++tried_ == trial) {
        off_ = found_ < trial / 4;
        tried_ = found_ = 0;
    }
    hash_ = hash_text(rest, mix(thread, op.size()));
    const std::uint32_t at = slots_.find(hash_, [&](std::uint32_t i) {
        const Line& line = lines_[i];
        return line.thread == thread && line.text.size() == op.size() + rest.size() &&
               std::memcmp(line.text.data(), op.data(), op.size()) == 0 &&
               std::memcmp(line.text.data() + op.size(), rest.data(), rest.size()) == 0;
    });
    if (at == NONE) {
        return nullptr;
    }
    ++found_;
    return &lines_[at].call;
}

void KnownCalls::add(std::uint32_t thread, std::string_view op, std::string_view rest,
                     const KnownCall& call) {
    if (off_ || rest.size() > 1024) {
        return;
    }
    if (lines_.size() == most_lines) {  // the job goes on with other buffers
        lines_.clear();
        slots_ = Slots();
    }
    slots_.find_or_add(hash_, static_cast<std::uint32_t>(lines_.size()),
                       [](std::uint32_t) { return false; });
    Line& line = lines_.emplace_back();
    line.text.reserve(op.size() + rest.size());
    line.text.append(op).append(rest);
    line.thread = thread;
    line.call = call;
}

}  // namespace logscan
