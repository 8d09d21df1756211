// Native tests of the result file: lines, bandwidths, and what a resumed run keeps.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "check.h"
#include "csv.h"

namespace {

using namespace collscope;

std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

Row sample_row(int id, const std::string& status) {
    const Plan plan = parse_plan(
                          "collscope-plan 1\nmode unique\nnranks 4\ncomm 5 0,2\ncomm 6 1,3\n"
                          "class 3 op=AllReduce datatype=Float32 redop=Sum count=250 calls=7 "
                          "comms=5,6\n")
                          .plan;
    Row row = row_of(plan, plan.classes.front());
    row.class_id = id;
    row.status = status;
    row.samples_us = {2, 1, 4};
    row.iterations = 60;
    row.nnodes = 1;
    return row;
}

// 1000 bytes in 2 us are 0.5 GB/s; with 2 ranks busbw is the same.
void writes_a_line() {
    Row row = sample_row(3, "ok");
    row.n_wrong = 0;
    CHECK(line_of(row) ==
          "AllReduce,Float32,Sum,,250,1000,0,2,1,7,2,1,4,1,60,0.5,0.5,0,,,,,,ok,3,,\"5,6\",,,,,,"
          "2;1;4");
    row.samples_us.clear();
    row.message = "first \"line\",\nsecond";
    row.n_wrong.reset();
    CHECK(line_of(row) ==
          "AllReduce,Float32,Sum,,250,1000,0,2,1,7,,,,,60,,,,,,,,,ok,3,,\"5,6\",,,,,"
          "\"first \"\"line\"\", second\",");
}

void has_nccl_tests_factors() {
    CHECK(bus_factor(Op::AllReduce, 8) == 1.75);
    CHECK(bus_factor(Op::AllGather, 8) == 0.875);
    CHECK(bus_factor(Op::AllToAllv, 4) == 0.75);
    CHECK(bus_factor(Op::Broadcast, 8) == 1.0);
    CHECK(bus_factor(Op::SendRecv, 2) == 1.0);
    CHECK(!bus_factor(Op::AllReduce, 1));
}

std::string file_of(const std::string& rows) {
    return "# collscope-replay: 1\n# plan: 00000000000000aa\n" + header_line() + "\n" + rows;
}

void keeps_what_is_finished() {
    Row other = sample_row(8, "failed");
    other.label = "B";
    const std::string ok = line_of(sample_row(3, "ok")) + "\n";
    const std::string not_mine = line_of(other) + "\n";
    const std::string bad = line_of(sample_row(4, "timeout")) + "\n";
    const std::string torn = line_of(sample_row(5, "ok")).substr(0, 60);
    const Kept kept =
        keep_finished(file_of(ok + bad + not_mine + torn), "00000000000000aa", "", "");
    CHECK(kept.error.empty());
    CHECK(kept.text == file_of(ok + not_mine));
    CHECK((kept.finished == std::set<int>{3}) && !kept.sequence_finished);
}

void keeps_a_sequence_as_a_whole() {
    Row step = sample_row(3, "ok");
    step.method = "sequence";
    Row total = sample_row(0, "ok");
    total.op = "Sequence";
    total.method = "sequence";
    const std::string done = file_of(line_of(step) + "\n" + line_of(total) + "\n");
    const Kept whole = keep_finished(done, "00000000000000aa", "", "");
    CHECK(whole.sequence_finished && whole.text == done);
    // Its classes are measured in one pass, and would stand there twice.
    total.status = "failed";
    const std::string cut = file_of(line_of(step) + "\n" + line_of(total) + "\n");
    const Kept part = keep_finished(cut, "00000000000000aa", "", "");
    CHECK(!part.sequence_finished && part.text == file_of(""));
}

void refuses_to_resume_another_file() {
    CHECK(keep_finished(file_of(""), "00000000000000bb", "", "").error ==
          "it holds results of another plan");
    const std::string foreign = "it is not a result file of this version";
    CHECK(keep_finished("a,b\n1,2\n", "00000000000000aa", "", "").error == foreign);
    CHECK(keep_all("a,b\n1,2\n").error == foreign);
    CHECK(keep_all("").error.empty() && keep_all("").text.empty());
    CHECK(keep_finished("", "00000000000000aa", "", "").text.empty());
    CHECK(keep_all(file_of("torn")).text == file_of(""));
}

void writes_line_by_line() {
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("collscope-csv-" + std::to_string(getpid()));
    {
        CsvWriter csv;
        CHECK(csv.open(path, "").ok());
        CHECK(csv.write_metadata({{"plan", "x\ny"}}).ok());
        CHECK(csv.write(sample_row(1, "ok")).ok());
        const std::string so_far = "# collscope-replay: 1\n# plan: x y\n" + header_line() + "\n" +
                                   line_of(sample_row(1, "ok")) + "\n";
        CHECK(read(path) == so_far);
        csv.write_last({sample_row(2, "timeout")});
        CHECK(csv.write(sample_row(3, "ok")).ok());
        CHECK(read(path) == so_far + line_of(sample_row(2, "timeout")) + "\n");
    }
    {
        CsvWriter csv;  // a second block of metadata, no second header
        CHECK(csv.open(path, file_of("")).ok() && csv.write_metadata({}).ok());
        CHECK(read(path) == file_of("") + "# collscope-replay: 1\n");
    }
    std::filesystem::remove(path);
    CsvWriter csv;
    CHECK(!csv.open("/nonexistent/folder/a.csv", "").ok());
    CsvWriter full;
    CHECK(full.open("/dev/full", "").ok() && !full.write(sample_row(1, "ok")).ok());
}

}  // namespace

int main() {
    writes_a_line();
    has_nccl_tests_factors();
    keeps_what_is_finished();
    keeps_a_sequence_as_a_whole();
    refuses_to_resume_another_file();
    writes_line_by_line();
    return check::result();
}
