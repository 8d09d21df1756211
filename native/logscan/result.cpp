#include "result.h"

#include "text.h"

namespace logscan {

namespace {

constexpr std::size_t excerpt_bytes = 160;

// Length of the colour code at the start of `text`, 0 if there is none.
std::size_t colour_code(std::string_view text) {
    if (text.size() < 3 || text[0] != '\x1b' || text[1] != '[') {
        return 0;
    }
    std::size_t at = 2;
    while (at < text.size() && (is_digit(text[at]) || text[at] == ';')) {
        ++at;
    }
    return at < text.size() ? at + 1 : 0;
}

}  // namespace

void Result::damaged(Counter code, std::uint64_t line, std::string_view record,
                     std::uint64_t times) {
    count(code, times);
    if (counted(code) <= damage_kept * times) {
        damage.push_back({line, code, clean_text(record, excerpt_bytes)});
    }
}

std::string clean_text(std::string_view raw, std::size_t limit) {
    std::string text;
    text.reserve(raw.size() < limit ? raw.size() : limit);
    for (std::size_t at = 0; at < raw.size() && text.size() < limit;) {
        const std::size_t code = raw[at] == '\x1b' ? colour_code(raw.substr(at)) : 0;
        if (code == 0 && raw[at] != '\0') {
            text.push_back(raw[at]);
        }
        at += code == 0 ? 1 : code;
    }
    while (!text.empty() && is_blank(text.back())) {
        text.pop_back();
    }
    return text;
}

}  // namespace logscan
