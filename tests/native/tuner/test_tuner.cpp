// The plugin as a library sees it: opened by dlopen, called through the structures it exports. It
// reads its CSV once per process, so each case is a process of its own: test_tuner CASE.
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "library.h"

using namespace library;

namespace {

const std::string rows =
    "# collscope.tuner_csv/1\n"
    "# a comment, with, commas\n"
    "\n"
    "allreduce,0,65536,tree,simple,2,1,-1,-1,1\r\n"
    "allreduce,0,65536,tree,ll,-1,1,8\n"
    " allreduce , 65537,1048576,\tring,ll128,16\n"
    "allreduce,1048577,-1,nvls,simple,8,1,8,-1,-1\n"
    "allreduce,0,-1,ring,simple,4,2,-1,3\n"
    "allgather,0,4294967295,ring,simple,4,2,-1\n"
    "broadcast,100,100,ring,ll,1";

void newest() {
    use_csv("newest.csv", rows);
    Communicator one(8, 1);
    CHECK(one.choice(all_reduce, 0, 1, 1) == "tree/simple 2");
    CHECK(one.choice(all_reduce, 65536, 1, 1) == "tree/simple 2");
    CHECK(one.choice(all_reduce, 65536, 1, 0) == "tree/ll 0");
    CHECK(one.choice(all_reduce, 65537) == "ring/ll128 16");
    CHECK(one.choice(all_reduce, 1048576) == "ring/ll128 16");
    CHECK(one.choice(all_reduce, 1048577) == "nvls/simple 8");
    CHECK(one.choice(all_reduce, SIZE_MAX) == "nvls/simple 8");
    CHECK(one.choice(all_gather, 1000).empty());
    CHECK(one.choice(broadcast, 99).empty());
    CHECK(one.choice(broadcast, 100) == "ring/ll 1");
    CHECK(one.choice(broadcast, 101).empty());
    CHECK(one.choice(reduce, 100).empty());
    CHECK(one.choice(reduce_scatter, 100).empty());
    CHECK(one.choice(-1, 100).empty() && one.choice(5, 100).empty() && one.choice(99, 100).empty());

    Communicator four(4, 1);
    CHECK(four.choice(all_reduce, 100).empty());
    CHECK(four.choice(all_reduce, 2000000).empty());
    CHECK(four.choice(all_reduce, 70000) == "ring/ll128 16");

    Communicator two_nodes(16, 2);
    CHECK(two_nodes.choice(all_gather, 1000) == "ring/simple 4");
    CHECK(two_nodes.choice(all_reduce, 100, 3) == "ring/simple 4");
    CHECK(two_nodes.choice(all_reduce, 100, 2).empty());
    CHECK(logged(log_warn, "") == 0);
}

// A cell that the library rules out stays so; the next row that matches is tried, as in NVIDIA's
// example plugin. A table with fewer algorithms or protocols is respected too.
void ruled_out() {
    use_csv("ruled_out.csv", "allreduce,0,100,pat,simple,8\nallreduce,0,100,ring,ll128,4\n");
    Communicator comm(8, 1);
    Costs costs;
    costs.at(pat, simple) = ignored_cost;
    CHECK(comm.choice(costs, all_reduce, 10) == "ring/ll128 4");
    CHECK(costs.at(pat, simple) == ignored_cost);
    costs = Costs();
    costs.at(pat, simple) = costs.at(ring, ll128) = ignored_cost;
    CHECK(comm.choice(costs, all_reduce, 10).empty());
    CHECK(logged(log_info, "pat/simple, channels 8 (line 1), which the library rules out") == 1);

    const auto& tuner = exported<TunerV5>("ncclTunerPlugin_v5");
    std::array<float, 12> small;
    small.fill(1.0f);
    int channels = 0;
    CHECK(tuner.get_coll_info(comm.context(), all_reduce, 10, 1,
                              reinterpret_cast<float**>(small.data()), 6, 2, 0, &channels) == 0);
    CHECK(channels == 4 && small[ring * 2 + ll128] == 0.0f);
    CHECK(tuner.get_coll_info(comm.context(), all_reduce, 10, 1, nullptr, 7, 3, 0, &channels) == 0);
    CHECK(tuner.get_coll_info(comm.context(), all_reduce, 10, 1, costs.block(), 0, 3, 0,
                              &channels) == 0);
    CHECK(tuner.get_coll_info(comm.context(), all_reduce, 10, 1, Costs().block(), 7, 3, 0,
                              nullptr) == 0);
}

void third_and_fourth() {
    use_csv("third.csv", rows, "NCCL_TUNER_CONFIG_FILE");
    const auto& third = exported<TunerV3>("ncclTunerPlugin_v3");
    const auto& fourth = exported<TunerV4>("ncclTunerPlugin_v4");
    CHECK(std::strcmp(third.name, "collscope") == 0 && std::strcmp(fourth.name, "collscope") == 0);
    void* context = nullptr;
    CHECK(third.init(8, 1, logger, &context) == success && context != nullptr);
    Costs costs;
    int channels = 0;
    // Whether buffers are registered is not known here: the row that asks for it is passed over.
    CHECK(third.get_coll_info(context, all_reduce, 100, 1, costs.block(), 7, 3, &channels) == 0);
    CHECK(costs.chosen() == "tree/ll" && channels == 0);
    // The preview of this interface has two ints before the table: nothing may be written.
    CHECK(third.get_coll_info(context, all_reduce, 100, 1, reinterpret_cast<float**>(1), 7, 3,
                              &channels) == 0);
    CHECK(third.destroy(context) == success);

    CHECK(fourth.init(8, 1, logger, &context) == success);
    costs = Costs();
    CHECK(fourth.get_coll_info(context, all_reduce, 100, 1, costs.block(), 7, 3, 1, &channels) ==
          success);
    CHECK(costs.chosen() == "tree/simple" && channels == 2);
    CHECK(fourth.destroy(context) == success);
}

// The second interface takes a choice unseen, so what NCCL 2.21 cannot do is not asked for.
void second() {
    use_csv("second.csv",
            "allreduce,0,9,ring,simple,3\nallreduce,10,19,ring,ll128,3\n"
            "allreduce,20,29,nvls,simple,3\nallreduce,30,39,pat,simple,3\n"
            "allreduce,40,49,nvls_tree,simple,-1\nallreduce,50,59,collnet_chain,simple,-1\n"
            "broadcast,0,9,tree,simple,-1\nallgather,0,9,nvls,ll,-1\nallgather,0,9,ring,ll,-1\n");
    const auto& tuner = exported<TunerV2>("ncclTunerPlugin_v2");
    const auto choice = [&](void* context, int collective, std::size_t bytes, int collnet,
                            int nvls_support) {
        int algorithm = -1;
        int protocol = -1;
        int channels = 0;
        CHECK(tuner.get_coll_info(context, collective, bytes, collnet, nvls_support, 1, &algorithm,
                                  &protocol, &channels) == success);
        return std::array<int, 3>{algorithm, protocol, channels};
    };
    const std::array<int, 3> untouched = {-1, -1, 0};
    void* one = nullptr;
    void* two = nullptr;
    CHECK(tuner.init(8, 1, logger, &one) == success && tuner.init(16, 2, logger, &two) == success);
    CHECK((choice(one, all_reduce, 5, 0, 0) == std::array<int, 3>{ring, simple, 3}));
    CHECK(choice(one, all_reduce, 15, 0, 1) == untouched);
    CHECK(choice(one, all_reduce, 25, 0, 0) == untouched);
    CHECK((choice(one, all_reduce, 25, 0, 1) == std::array<int, 3>{nvls, simple, 3}));
    CHECK(choice(two, all_reduce, 25, 0, 1) == untouched);
    CHECK((choice(two, all_reduce, 25, 1, 1) == std::array<int, 3>{nvls, simple, 3}));
    CHECK(choice(one, all_reduce, 35, 1, 1) == untouched);
    CHECK(choice(one, all_reduce, 45, 1, 1) == untouched);
    CHECK((choice(two, all_reduce, 45, 0, 1) == std::array<int, 3>{nvls_tree, simple, 0}));
    CHECK(choice(two, all_reduce, 55, 0, 1) == untouched);
    CHECK((choice(two, all_reduce, 55, 1, 1) == std::array<int, 3>{collnet_chain, simple, 0}));
    CHECK(choice(one, broadcast, 5, 0, 0) == untouched);
    CHECK((choice(one, all_gather, 5, 0, 1) == std::array<int, 3>{ring, ll, 0}));
    CHECK(choice(nullptr, all_reduce, 5, 0, 0) == untouched);
    CHECK(tuner.destroy(one) == success && tuner.destroy(two) == success);
}

// The library's own choice stands, and there is one warning however many communicators there are.
void expect_one_warning(const std::string& part) {
    for (int i = 0; i < 3; ++i) {
        Communicator comm(8, 1);
        CHECK(comm.choice(all_reduce, 100).empty());
        CHECK(comm.choice(broadcast, 1 << 20).empty());
    }
    CHECK(logged(log_warn, "") == 1);
    CHECK(logged(log_warn, part) == 1);
}

void unnamed() { expect_one_warning("no CSV: the library chooses"); }

void absent() {
    setenv("COLLSCOPE_TUNER_CSV", "/nonexistent/tuner.csv", 1);
    expect_one_warning("/nonexistent/tuner.csv: cannot be opened");
}

void folder() {
    setenv("COLLSCOPE_TUNER_CSV", ".", 1);
    expect_one_warning(".: cannot be read");
}

void empty() {
    use_csv("empty.csv", "");
    expect_one_warning("no rows");
}

void binary() {
    std::string noise;
    for (unsigned i = 0, x = 1; i < 100000; ++i, x = x * 1664525 + 1013904223) {
        noise += static_cast<char>(x >> 24);
    }
    use_csv("binary.csv", noise);
    expect_one_warning("no usable row (line 1: not 6 to 10 columns)");
}

void newer_file() {
    use_csv("newer.csv", "# collscope.tuner_csv/2\nallreduce,0,1000,ring,simple,4,1,8\n");
    expect_one_warning("a format that this plugin does not know");
}

void too_many() {
    std::string text;
    for (int i = 0; i < 9000; ++i) {
        text += "allreduce,0,1000,ring,simple,4\n";
    }
    use_csv("many.csv", text);
    expect_one_warning("more than 8192 rows");
}

void wrong_rows() {
    for (const char* row : {
             "allreduce,0,9,ring,simple",
             "allreduce,0,9,ring,simple,1,1,1,1,1,1",
             ",,,,,",
             "allreduce,9,0,ring,simple,1",
             "allreduce,-1,9,ring,simple,1",
             "allreduce,0,18446744073709551616,ring,simple,1",
             "allreduce,0,9,RING,simple,1",
             "alltoall,0,9,ring,simple,1",
             "allreduce,0,9,ring,ll64,1",
             "allreduce,0,9,ring,simple,0",
             "allreduce,0,9,ring,simple,129",
             "allreduce,0,9,ring,simple,-2",
             "allreduce,0,9,ring,simple,1x",
             "allreduce,0,9,ring,simple,1,0",
             "allreduce,0,9,ring,simple,1,1,99999999999999999999",
             "allreduce,0,9,ring,simple,1,1,1,1,2",
             "allreduce,0x1,9,ring,simple,1",
         }) {
        std::string text = std::string(row) + "\nallreduce,0,9,tree,ll,5\n";
        use_csv("wrong.csv", text);
        // Another process each, since a process reads one file.
        const std::string command = std::string(program_invocation_name) + " one_wrong_row";
        if (std::system(command.c_str()) != 0) {
            std::fprintf(stderr, "row %s\n", row);
            CHECK(false);
        }
    }
}

void one_wrong_row() {
    setenv("COLLSCOPE_TUNER_CSV", "wrong.csv", 1);
    Communicator comm(8, 1);
    Communicator other(8, 1);
    CHECK(comm.choice(all_reduce, 5) == "tree/ll 5");
    CHECK(logged(log_warn, "") == 1);
    CHECK(logged(log_warn, "wrong.csv: line 1: ") == 1 && logged(log_warn, "1 of 2 rows") == 1);
}

// A library that knows only other interfaces finds nothing, and reports it.
void unknown_interface() {
    CHECK(dlsym(opened(), "ncclTunerPlugin_v1") == nullptr);
    CHECK(dlsym(opened(), "ncclTunerPlugin_v99") == nullptr);
    for (const char* symbol :
         {"ncclTunerPlugin_v2", "ncclTunerPlugin_v3", "ncclTunerPlugin_v4", "ncclTunerPlugin_v5"}) {
        CHECK(dlsym(opened(), symbol) != nullptr);
    }
}

// The file is read once: ranks of one job that start late must not see an edit.
void read_once() {
    use_csv("once.csv", "allreduce,0,9,tree,ll,5\n");
    Communicator first(8, 1);
    use_csv("once.csv", "allreduce,0,9,ring,ll,6\n");
    Communicator second_one(8, 1);
    CHECK(second_one.choice(all_reduce, 5) == "tree/ll 5");
}

void logs_once() {
    use_csv("logs.csv", "allreduce,0,4095,tree,ll,5\nallreduce,4096,-1,ring,simple,-1\n");
    Communicator comm(8, 1);
    for (int i = 0; i < 100; ++i) {
        for (const std::size_t bytes : {2048u, 3000u, 4096u, 5000u, 8192u}) {
            comm.choice(all_reduce, bytes);
        }
    }
    // 2048…4095 and 4096…8191 are a bucket each; 8192 begins another.
    CHECK(logged(log_info, "allreduce 2048 B on 8 ranks: tree/ll, channels 5 (line 1)") == 1);
    CHECK(logged(log_info, "allreduce 4096 B on 8 ranks: ring/simple, channels default (line 2)") ==
          1);
    CHECK(logged(log_info, "allreduce 8192 B") == 1);
    CHECK(logged(log_info, "allreduce ") == 3);
    CHECK(logged(log_info, "2 of 2 rows are for 8 ranks on 1 nodes") == 1);
    for (const Line& line : lines) {
        CHECK(line.subsystem == log_tuning && line.text.starts_with("TUNER/collscope: "));
    }
}

void without_logger() {
    use_csv("quiet.csv", "allreduce,0,9,tree,ll,5\n");
    Communicator comm(8, 1, nullptr);
    CHECK(comm.choice(all_reduce, 5) == "tree/ll 5");
    CHECK(lines.empty());
}

// Against a plain search over random rows that overlap.
void agrees_with_search() {
    struct Plain {
        std::size_t low, high;
        int algorithm, pipe_ops;
    };
    unsigned state = 7;
    const auto random = [&](unsigned below) {
        state = state * 1664525 + 1013904223;
        return (state >> 8) % below;
    };
    std::vector<Plain> plain;
    std::string text;
    for (int i = 0; i < 300; ++i) {
        const std::size_t low = random(1000);
        const Plain row = {low, low + random(60), static_cast<int>(random(2)),
                           static_cast<int>(random(3)) - 1};
        plain.push_back(row);
        text += "reduce," + std::to_string(row.low) + "," + std::to_string(row.high) + "," +
                (row.algorithm == tree ? "tree" : "ring") + ",ll," + std::to_string(i % 100 + 1) +
                ",-1,-1," + std::to_string(row.pipe_ops) + "\n";
    }
    use_csv("random.csv", text);
    Communicator comm(2, 1);
    for (std::size_t bytes = 0; bytes < 1100; ++bytes) {
        for (int pipe_ops = 0; pipe_ops < 3; ++pipe_ops) {
            std::string wanted;
            for (std::size_t i = 0; i < plain.size() && wanted.empty(); ++i) {
                const Plain& row = plain[i];
                if (row.low <= bytes && bytes <= row.high &&
                    (row.pipe_ops == -1 || row.pipe_ops == pipe_ops)) {
                    wanted = (row.algorithm == tree ? "tree/ll " : "ring/ll ") +
                             std::to_string(i % 100 + 1);
                }
            }
            CHECK(comm.choice(reduce, bytes, pipe_ops) == wanted);
        }
    }
}

void concurrent() {
    use_csv("concurrent.csv", "allreduce,0,4095,tree,ll,5\nallreduce,4096,-1,ring,simple,6\n");
    constexpr int threads = 8;
    std::vector<std::thread> all;
    std::array<int, threads> wrong{};
    Communicator shared(8, 1);
    for (int t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
            Communicator own(8, 1);
            int& count = wrong[static_cast<std::size_t>(t)];
            for (int i = 0; i < 2000; ++i) {
                count += shared.choice(all_reduce, 3000) != "tree/ll 5";
                count += own.choice(all_reduce, 5000) != "ring/simple 6";
            }
        });
    }
    for (std::thread& thread : all) {
        thread.join();
    }
    for (const int count : wrong) {
        CHECK(count == 0);
    }
    CHECK(logged(log_info, "allreduce 3000 B") == 1);
    CHECK(logged(log_info, "allreduce 5000 B") == threads);
    CHECK(logged(log_warn, "") == 0);
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, std::function<void()>> cases = {
        {"newest", newest},
        {"ruled_out", ruled_out},
        {"third_and_fourth", third_and_fourth},
        {"second", second},
        {"unnamed", unnamed},
        {"absent", absent},
        {"folder", folder},
        {"empty", empty},
        {"binary", binary},
        {"newer_file", newer_file},
        {"too_many", too_many},
        {"wrong_rows", wrong_rows},
        {"one_wrong_row", one_wrong_row},
        {"unknown_interface", unknown_interface},
        {"read_once", read_once},
        {"logs_once", logs_once},
        {"without_logger", without_logger},
        {"agrees_with_search", agrees_with_search},
        {"concurrent", concurrent},
    };
    unsetenv("NCCL_TUNER_CONFIG_FILE");
    const auto found = argc == 2 ? cases.find(argv[1]) : cases.end();
    if (found == cases.end()) {
        std::fprintf(stderr, "usage: test_tuner CASE\n");
        return EXIT_FAILURE;
    }
    found->second();
    return check::result();
}
