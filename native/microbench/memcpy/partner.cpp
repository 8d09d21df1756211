#include "memcpy/partner.h"

#include <cstring>

namespace collscope {

namespace {

constexpr char nothing_more = 0;

std::string packed(const Wish& wish) {
    std::string text(sizeof wish, '\0');
    std::memcpy(text.data(), &wish, sizeof wish);
    return text;
}

Wish unpacked(const std::string& text) {
    Wish wish;
    std::memcpy(&wish, text.data(), sizeof wish);
    return wish;
}

Status settle(const Control& control, const Status& mine, std::uint64_t& n_wrong) {
    std::vector<unsigned long long> sum = {n_wrong};
    control.sum_each(sum);
    n_wrong = sum.front();
    return control.agree(mine);
}

}  // namespace

Status Partner::together(const Wish& wish, const Part& mine, std::uint64_t& n_wrong) const {
    control_.broadcast(packed(wish));
    const Status status = mine(wish, n_wrong);
    return settle(control_, status, n_wrong);
}

void Partner::serve(const Part& part) const {
    while (true) {
        const Wish wish = unpacked(control_.broadcast(""));
        if (wish.what == nothing_more) {
            return;
        }
        std::uint64_t n_wrong = 0;
        const Status status = part(wish, n_wrong);
        settle(control_, status, n_wrong);
    }
}

void Partner::dismiss() const { control_.broadcast(packed({nothing_more, 0, 0})); }

}  // namespace collscope
