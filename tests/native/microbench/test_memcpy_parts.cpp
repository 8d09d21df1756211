// Options, rows and the pattern of the memcpy benchmark.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "memcpy/arguments.h"
#include "memcpy/check.h"
#include "memcpy/rows.h"

using namespace collscope;

namespace {

ParsedCopyOptions parsed(std::vector<const char*> words) {
    words.insert(words.begin(), "memcpy");
    return parse_copy_options(static_cast<int>(words.size()), words.data());
}

void options_are_read() {
    const ParsedCopyOptions all =
        parsed({"--csv", "a.csv", "--sizes", "4096,1", "--pairs", "0:1,3:2", "--only", "ipc,peer",
                "--budget", "0.5", "--rounds", "3", "--label", "x"});
    CHECK(all.error.empty());
    CHECK((all.options.sizes == std::vector<std::uint64_t>{4096, 1}));
    CHECK((all.options.pairs == std::vector<std::pair<int, int>>{{0, 1}, {3, 2}}));
    CHECK(all.options.groups.ipc && all.options.groups.peer);
    CHECK(!all.options.groups.within && !all.options.groups.host);
    CHECK(all.options.budget_s == 0.5 && all.options.rounds == 3 && all.options.label == "x");
    const ParsedCopyOptions few = parsed({"--csv", "a", "--sizes", "8"});
    CHECK(few.error.empty() && few.options.pairs.empty() && few.options.groups.within);
}

void bad_options_are_named() {
    const std::vector<std::pair<const char*, const char*>> bad = {
        {"--sizes", "0"},      {"--sizes", "4K"}, {"--sizes", "1,"},   {"--pairs", "1:1"},
        {"--pairs", "0-1"},    {"--pairs", ":1"}, {"--only", "gpu"},   {"--budget", "0"},
        {"--budget", "nan"},   {"--rounds", "0"}, {"--backend", "cl"}, {"--csv", ""},
        {"--timeout", "soon"}, {"--label", ""}};
    for (const auto& [name, value] : bad) {
        const std::string error = parsed({"--csv", "a", "--sizes", "8", name, value}).error;
        CHECK(error == std::string(name) + ": `" + value + "` is not a valid value. See --help.");
    }
    CHECK(parsed({"--csv", "a"}).error == "command line: --csv or --sizes is missing. See --help.");
    CHECK(parsed({"--csv"}).error == "--csv: its value is missing. See --help.");
    CHECK(parsed({"plan"}).error == "command line: `plan` is unknown. See --help.");
}

// 4096 bytes in 2 us are 2.048 GB/s; the middle of 1, 2 and 4 us is 2, the distances 1, 0 and 2.
void a_row_is_one_line() {
    CopyRow row;
    row.label = "a, b";
    row.kind = "peer_async";
    row.src_device = 0;
    row.access = "peer";
    row.size_bytes = 4096;
    row.samples_us = {4, 1, 2};
    row.iterations = 60;
    row.n_wrong = 0;
    row.checked = "all";
    row.message = "two\nlines";
    CHECK(
        line_of(row) ==
        "\"a, b\",0,peer_async,0,,one,peer,4096,2,1,4,1,60,2.048,0,all,ok,\"two lines\",,,,,4;1;2");
    row.carries = false;
    CHECK(line_of(row).find(",60,,0,all") != std::string::npos);
    const std::string header = copy_header();
    CHECK(
        header.starts_with("label,round,kind,src_device,dst_device,direction,access,size_bytes,"));
}

void blocks_cover_what_they_should() {
    std::uint64_t at = 0;
    for (const Block& block : blocks_of((std::uint64_t{3} << 20) + 5)) {
        CHECK(block.offset == at);
        at += block.bytes;
    }
    CHECK(at == (std::uint64_t{3} << 20) + 5);
    const std::uint64_t large = (std::uint64_t{1} << 40) + 3;
    const std::vector<Block> sample = blocks_of(large);
    CHECK(sample.size() == 16 && sample.front().offset == 0);
    CHECK(sample.back().offset + sample.back().bytes == large);
    CHECK(!all_checked(large) && all_checked(std::uint64_t{16} << 20));
}

void a_pattern_depends_on_seed_and_place() {
    std::vector<std::byte> whole(64);
    std::vector<std::byte> part(30);
    make_pattern(7, 0, whole);
    make_pattern(7, 13, part);  // begins and ends within a word
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + 13));
    make_pattern(8, 13, part);
    CHECK(!std::equal(part.begin(), part.end(), whole.begin() + 13));
}

void every_wrong_byte_is_counted() {
    const std::uint64_t size = (std::uint64_t{1} << 20) + 100;
    std::vector<std::byte> memory(size);
    write_pattern(1, size, [&](const Block& block, std::vector<std::byte>& host) {
        std::copy(host.begin(), host.end(), memory.begin() + static_cast<long>(block.offset));
        return Status{};
    });
    const auto read = [&](const Block& block, std::vector<std::byte>& host) {
        const auto from = memory.begin() + static_cast<long>(block.offset);
        std::copy(from, from + static_cast<long>(block.bytes), host.begin());
        return Status{};
    };
    std::uint64_t wrong = 0;
    CHECK(count_wrong(1, size, read, wrong).ok() && wrong == 0);
    memory.front() ^= std::byte{1};
    memory.back() ^= std::byte{1};
    CHECK(count_wrong(1, size, read, wrong).ok() && wrong == 2);
    const auto refuse = [](const Block&, std::vector<std::byte>&) { return Status{"gone"}; };
    CHECK(count_wrong(1, size, refuse, wrong).error == "gone");
}

}  // namespace

int main() {
    options_are_read();
    bad_options_are_named();
    a_row_is_one_line();
    blocks_cover_what_they_should();
    a_pattern_depends_on_seed_and_place();
    every_wrong_byte_is_counted();
    return check::result();
}
