// Native tests of the scanner of traces: rows worked out by hand, and texts it must not take.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "scan.h"

namespace {

using tracescan::Events;
using tracescan::scan;

bool taken(const std::string& text, bool exact = false) {
    const std::vector<char> copy(text.begin(), text.end());  // of exact size, for the sanitizer
    return scan({copy.data(), copy.size()}, exact, 0).has_value();
}

// An event with one more member.
std::string with(const std::string& member) { return R"({"ph": "X", )" + member + "}"; }

std::string argument(const std::string& member) { return with(R"("args": {)" + member + "}"); }

const std::string kernel =
    R"({"ph": "X", "cat": "kernel", "name": "k<1>", "pid": 0, "tid": 7, "ts": 4479852009040.613,
        "dur": 109.69, "args": {"External id": 9, "device": 0, "stream": 20, "correlation": 33,
        "grid": [24, 1, 1], "Seq": 5}})";
const std::string copy =
    R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy","tid":"s","ts":1,"dur":0,"args":null})";
const std::string launch =
    R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 963, "ts": 2.5,
        "dur": -1, "args": {"correlation": 33}})";
const std::string flow =
    R"({"ph": "s", "id": 182, "tid": 964, "ts": 3, "cat": "ac2g", "name": "ac2g"})";
const std::string record =
    R"({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 2, "dur": 1})";

void columns() {
    const std::string text = kernel + ",\n" + launch + " , " + flow + "," + record + "," + copy;
    const std::optional<Events> found = scan(text, false, 0);
    CHECK(found.has_value());
    if (!found) {
        return;
    }
    const tracescan::Gpu& gpu = found->gpu;
    CHECK(gpu.kind == (std::vector<std::int8_t>{0, 1}));
    CHECK(gpu.name == (std::vector<std::int32_t>{0, 1}));
    CHECK(gpu.stream == (std::vector<std::int32_t>{0, 1}));
    CHECK(gpu.start_us == (std::vector<double>{4479852009040.613, 1}));
    CHECK(gpu.duration_us == (std::vector<double>{109.69, 0}));
    CHECK(gpu.correlation == (std::vector<std::int64_t>{33, -1}));
    CHECK(gpu.seq == (std::vector<std::int64_t>{5, -1}));
    CHECK(gpu.event == (std::vector<std::int32_t>{0, 4}));
    CHECK(text.substr(0, static_cast<std::size_t>(gpu.end[0])) == kernel);
    CHECK(text.substr(static_cast<std::size_t>(gpu.begin[1])) == copy);
    CHECK(found->names.values == (std::vector<std::string_view>{"\"k<1>\"", "\"Memcpy\""}));
    CHECK(found->devices.values == (std::vector<std::string_view>{"0", ""}));
    CHECK(found->streams.values == (std::vector<std::string_view>{"20", "\"s\""}));
    CHECK(found->devices.first == (std::vector<std::int32_t>{0, 4}));
    const tracescan::Calls& calls = found->calls;
    CHECK(calls.name == (std::vector<std::int32_t>{0, -1}));
    CHECK(calls.thread == (std::vector<std::int32_t>{0, 1}));
    CHECK(calls.start_us == (std::vector<double>{2.5, 3}));
    CHECK(calls.duration_us == (std::vector<double>{-1, -1}));
    CHECK(calls.correlation == (std::vector<std::int64_t>{33, 182}));
    CHECK(found->threads.first == (std::vector<std::int32_t>{1, 2}));
    CHECK(found->others.event == (std::vector<std::int32_t>{3}));
    CHECK(found->cpu && found->bad == 0);
}

void untimed() {
    for (const char* times :
         {"", R"("ts": 1, )", R"("ts": -1, "dur": 1, )", R"("ts": 1, "dur": -1, )",
          R"("ts": 4000000000000000, "dur": 1, )", R"("ts": null, "dur": 1, )"}) {
        const std::string text =
            R"({"ph": "X", )" + std::string(times) + R"("cat": "kernel", "name": "k"})";
        const std::optional<Events> found = scan(text, false, 0);
        CHECK(found && found->bad == 1 && found->gpu.kind.empty());
    }
}

void origin() {
    const std::string first =
        R"({"ph": "X", "ts": 1682725898236567.123, "cat": "python_function"})";
    const std::string second =
        R"({"ph": "X", "ts": 1682725898236566.5, "dur": 2, "cat": "Kernel", "name": "k"})";
    const std::optional<Events> found = scan(first + "," + second, true, 0);
    CHECK(found && found->origin_us == 1682725898236567);
    CHECK(found && found->gpu.start_us == (std::vector<double>{-0.5}));
    const std::optional<Events> later = scan(second, true, 1682725898236000);
    CHECK(later && later->gpu.start_us == (std::vector<double>{566.5}));
    CHECK(!taken(first, false));  // a double does not hold it
    CHECK(!taken(R"({"ph": "X", "ts": 1682725898236567.1234})", true));  // beyond ns
    CHECK(!taken(R"({"ph": "X", "ts": 0.5})", true));                    // no origin yet
}

void accepted() {
    CHECK(taken(""));
    CHECK(taken(" \n\t\r"));
    CHECK(taken(R"({"ph":""})"));
    CHECK(taken(with(R"("x": [[], {}, [1, -0.5e+3], "\u00e9\n", true, false, null])")));
    CHECK(taken(with("\"name\": \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"")));
    CHECK(taken(argument(R"("Process Group Ranks": [0, 1], "In split size": "[]", "Rank": null)")));
}

void refused() {
    const std::vector<std::string> bad = {
        "{",
        "{}",
        "[]",
        "1",
        "null",
        ",",
        R"({"ph": "X"},)",
        R"(,{"ph": "X"})",
        R"({"ph": "X"} {"ph": "X"})",
        R"({"ph": "X",})",
        R"({"ph": "X")",
        R"({"ph": null})",
        R"({"ph": 1})",
        R"({"p\u0068": "X"})",
        R"({"cat": "kernel"})",
        with(R"("x": [1,])"),
        with(R"("x": {"a": 1,})"),
        with(R"("x": {"a" 1})"),
        with(R"("x": 01)"),
        with(R"("x": 1.)"),
        with(R"("x": -)"),
        with(R"("x": 1e)"),
        with(R"("x": nul)"),
        with(R"("x": "\x")"),
        with(R"("x": "\u12g4")"),
        with(R"("x": "\ud83d\ude00")"),
        with("\"x\": \"\n\""),
        with("\"x\": \"\xff\""),
        with("\"x\": \"\xc0\xaf\""),
        with("\"x\": \"\xed\xa0\x80\""),
        with("\"x\": \"\xf4\x90\x80\x80\""),
        with("\"x\": \"\xe2\x82\""),
        with(R"("ts": "1")"),
        with(R"("ts": 1e3)"),
        with(R"("ts": 9007199254740993)"),
        with(R"("ts": 0.1234567890123456789)"),
        with(R"("ts": -0)"),
        with(R"("dur": true)"),
        with(R"("tid": 1.5)"),
        with(R"("id": [])"),
        with(R"("cat": "k\u0065rnel")"),
        with(R"("cat": "ac2g", "id": "7")"),
        with(R"("args": [])"),
        argument(R"("correlation": "9")"),
        argument(R"("correlation": 9.0)"),
        argument(R"("correlation": 1234567890123456789)"),
        argument(R"("Rank": "0")"),
        argument(R"("dtype": 1)"),
        argument(R"("Process Group Ranks": [0, "1"])"),
        argument(R"("Process Group Name": [])"),
        argument(R"("stream": {})"),
        with("\"x\": " + std::string(100, '[') + std::string(100, ']')),
    };
    for (const std::string& text : bad) {
        if (taken(text)) {
            std::fprintf(stderr, "taken: %s\n", text.c_str());
        }
        CHECK(!taken(text));
    }
    const std::string whole = kernel + "," + launch;
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
        CHECK(taken(whole.substr(0, cut)) == (cut == kernel.size()));
    }
}

}  // namespace

int main() {
    columns();
    untimed();
    origin();
    accepted();
    refused();
    return check::result();
}
