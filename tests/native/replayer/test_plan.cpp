// Native tests of the plan's parser: what it takes, and that what it refuses is named by line.
#include <random>
#include <string>

#include "check.h"
#include "fnv.h"
#include "plan.h"

namespace {

using namespace collscope;

const std::string head = "collscope-plan 1\nmode unique\nnranks 4\ncomm 0 0-3\n";
const std::string sequence_head = "collscope-plan 1\nmode sequence\nnranks 4\ncomm 0 0-3\n";

// The example of schemas/plan.md.
void reads_the_documented_example() {
    const ParsedPlan parsed = parse_plan(
        "# a comment\n"
        "collscope-plan 1\r\n"
        "mode unique\n"
        "nranks 4\n"
        "\n"
        "comm 0 0-3\n"
        "comm 1 0,2   # trailing\n"
        "comm 2 1,3\n"
        "class 0 op=AllReduce datatype=Bfloat16 redop=Avg count=4194304 in_place=1 calls=26 "
        "comms=1,2\n"
        "class 1 op=Broadcast datatype=Float32 count=1024 root=0 in_place=1 calls=13 comms=0\n"
        "class 2 op=AllToAllv datatype=Float32 shape=alltoallv size_bytes=8192 calls=2 comms=0\n"
        "transfers 2 0 0>1:1024 1>2:2048\n"
        "transfers 2 0 2>3:16\n");
    CHECK(parsed.error.empty());
    const Plan& plan = parsed.plan;
    CHECK(!plan.sequence && plan.nranks == 4 && !plan.scaled_from);
    CHECK(plan.comms.size() == 3 && plan.classes.size() == 3);
    CHECK((plan.comms[2].ranks == std::vector<int>{1, 3}));
    CHECK(plan.comms[2].rank_of(3) == 1 && plan.comms[2].rank_of(0) == -1);
    const Class& first = plan.classes[0];
    CHECK(first.op == Op::AllReduce && first.datatype == Datatype::Bfloat16);
    CHECK(first.redop == Redop::Avg && first.count == 4194304 && first.in_place);
    CHECK(first.calls == 26 && !first.root && first.size_bytes == 8388608);
    CHECK((first.comms == std::vector<int>{1, 2}));
    CHECK(plan.classes[1].root == 0 && !plan.classes[1].redop);
    const Class& last = plan.classes[2];
    CHECK(last.point_to_point() && last.size_bytes == 8192 && last.count == 0);
    CHECK(last.transfers.size() == 1 && last.transfers[0].size() == 3);
    CHECK(last.transfers[0][1].src == 1 && last.transfers[0][1].dst == 2);
    CHECK(last.transfers[0][2].count == 16);
}

void reads_steps() {
    const ParsedPlan parsed = parse_plan(sequence_head +
                                         "scaled_from 8\ncomm 7 2,0\n"
                                         "class 3 op=AllGather datatype=Int8 count=5 comms=0,7\n");
    CHECK(parsed.error.starts_with("line 7: class 3 has communicators of 4 and of 2 ranks"));
    const ParsedPlan good = parse_plan(sequence_head +
                                       "scaled_from 8\ncomm 7 2,0\n"
                                       "class 3 op=AllGather datatype=Int8 count=5 comms=0\n"
                                       "class 4 op=AllGather datatype=Int8 count=5 comms=7\n"
                                       "step 3@0\nstep 4@7 3@0\n");
    CHECK(good.error.empty());
    CHECK(good.plan.sequence && good.plan.scaled_from == 8 && good.plan.steps.size() == 2);
    CHECK(good.plan.steps[1].items[0].cls == 1 && good.plan.steps[1].items[1].cls == 0);
    CHECK(good.plan.classes[0].size_bytes == 20 && good.plan.classes[1].size_bytes == 10);
}

struct Refusal {
    std::string text;
    std::string error;  // how it begins
};

const std::string reduce = "class 0 op=AllReduce datatype=Float32 redop=Sum count=4 comms=0";

const Refusal refusals[] = {
    {"", "line 0: the plan ends before"},
    {"mode unique\n", "line 1: this is not a plan"},
    {"collscope-plan 2\n", "line 1: plan version `2` is unknown, this replayer reads version 1"},
    {"collscope-plan 1\nmode both\n", "line 2: mode `both` is unknown"},
    {"collscope-plan 1\nmode unique\nnranks 0\n", "line 3: nranks is 0"},
    {"collscope-plan 1\nmode unique\nnranks -1\n", "line 3: nranks is `-1`"},
    {"collscope-plan 1\ncomm 0 0-3\n", "line 2: comm comes before nranks"},
    {head, "line 4: the plan has no class"},
    {head + "comm 0 1\n", "line 5: communicator 0 is defined twice"},
    {head + "comm 1 0,4\n", "line 5: a rank is `4`"},
    {head + "comm 1 2,0-3\n", "line 5: communicator 1 has no rank, or one twice"},
    {head + "comm 1\n", "line 5: communicator 1 has no rank"},
    {"collscope-plan 1\nmode unique\nnranks 1048576\ncomm 0 "
     "0-1048575,0-1048575,0-1048575,0-1048575,0\n",
     "line 4: ranges of more than 4194304 ranks and ids in all"},
    {head + "speed 9\n", "line 5: statement `speed` is unknown"},
    {head + "comm 1 0 5\n", "line 5: there is more on the line than expected, from `5` on"},
    {head + "class 0 op=AllReduce\n", "line 5: class 0 has no `datatype`"},
    {head + "class 0 op=AllSum datatype=Int8 comms=0\n", "line 5: op `AllSum` is unknown"},
    {head + "class 0 op=AllReduce datatype=Int9 comms=0\n", "line 5: datatype `Int9` is unknown"},
    {head + reduce + " colour=red\n", "line 5: key `colour` of a class is unknown"},
    {head + reduce + " count=5\n", "line 5: class 0 has `count` twice"},
    {head + reduce + " root=0\n", "line 5: class 0 has a root"},
    {head + reduce + " calls=0\n", "line 5: class 0 has no communicator or no calls"},
    {head + reduce + " in_place=2\n", "line 5: in_place is `2`"},
    {head + reduce + " size_bytes=17\n",
     "line 5: class 0 has size_bytes 17, but its count gives 16"},
    {head + reduce + "\n" + reduce + "\n", "line 6: class 0 is defined twice"},
    {head + reduce + "\nstep 0@0\n", "line 6: a step in mode unique"},
    {head + reduce + "\ntransfers 0 0 0>1:4\n", "line 6: class 0 has transfers but no shape"},
    {head + "class 0 op=AllReduce datatype=Int8 count=4 comms=0\n", "line 5: class 0 has no redop"},
    {head + "class 0 op=AllGather datatype=Int8 redop=Sum count=4 comms=0\n",
     "line 5: class 0 has a redop"},
    {head + "class 0 op=Reduce datatype=Int8 redop=Sum count=4 comms=0\n",
     "line 5: class 0 has no root"},
    {head + "class 0 op=Broadcast datatype=Int8 root=4 count=4 comms=0\n",
     "line 5: class 0 has root 4 of 4 ranks"},
    {head + "class 0 op=AllGather datatype=Int8 comms=0\n", "line 5: class 0 has no count"},
    {head + "class 0 op=AllGather datatype=Int8 count=4 comms=1\n",
     "line 5: communicator 1 is not defined"},
    {head + "class 0 op=AllGather datatype=Int8 count=18446744073709551615 comms=0\n",
     "line 5: count is `18446744073709551615`"},
    {head + "class 0 op=AllGather datatype=Float64 count=1125899906842624 comms=0\n",
     "line 5: class 0 has count 1125899906842624"},
    {head + "comm 1 3\nclass 0 op=AllGather datatype=Int8 count=4 comms=0,1\n",
     "line 6: class 0 has communicators of 4 and of 1 ranks"},
    {head + "comm 1 0,1\ncomm 2 1,2\nclass 0 op=AllGather datatype=Int8 count=4 comms=1,2\n",
     "line 7: class 0 has rank 1 in two communicators"},
    {head + "class 0 op=SendRecv datatype=Int8 comms=0\n",
     "line 5: class 0 has op SendRecv but no shape"},
    {head + "class 0 op=AllGather datatype=Int8 shape=shift comms=0\n",
     "line 5: class 0 has a shape, but op AllGather"},
    {head + "class 0 op=SendRecv datatype=Int8 shape=shift comms=0\n",
     "line 5: class 0 has a communicator without transfers"},
    {head + "class 0 op=SendRecv datatype=Int8 shape=shift comms=0\ntransfers 0 0 0>4:1\n",
     "line 6: a rank is `4`"},
    {head + "class 0 op=SendRecv datatype=Int8 shape=shift comms=0\ntransfers 0 0 0>1\n",
     "line 6: elements of a transfer is ``"},
    // Rank 2 receives most: 2048 elements of 4 bytes.
    {head + "class 0 op=AllToAllv datatype=Float32 shape=alltoallv size_bytes=16384 comms=0\n"
            "transfers 0 0 0>1:1024 1>2:2048\n",
     "line 5: class 0 has size_bytes 16384, but its transfers give 8192"},
    {head + "class 0 op=SendRecv datatype=Int8 shape=shift size_bytes=0 comms=0\n"
            "transfers 0 0 0>1:9\n",
     "line 5: class 0 has size_bytes 0, but its transfers give 9"},
    // Ranks were checked against the first of them.
    {head + "nranks 2\n" + reduce + "\n", "line 5: nranks is given twice"},
    {head + "mode sequence\n", "line 5: mode is given twice"},
    {head + "scaled_from 8\nscaled_from 16\n", "line 6: scaled_from is given twice"},
    {head + "class 0 op=AllGather datatype=Int8 count=0 comms=0\n", "line 5: class 0 has no count"},
    {sequence_head + reduce + "\n", "line 5: the plan has no step"},
    {sequence_head + reduce + "\nstep\n", "line 6: a step without a class"},
    {sequence_head + reduce + "\nstep 0@1\n", "line 6: communicator 1 is not defined"},
    {sequence_head + reduce + "\nstep 1@0\n", "line 6: class 1 is not defined"},
    {sequence_head + "comm 1 0-3\n" + reduce + "\nstep 0@1\n",
     "line 7: communicator 1 does not belong to class 0"},
};

void refuses_and_says_where() {
    for (const Refusal& refusal : refusals) {
        const ParsedPlan parsed = parse_plan(refusal.text);
        if (!parsed.error.starts_with(refusal.error)) {
            std::fprintf(stderr, "got: %s\nnot: %s\n", parsed.error.c_str(), refusal.error.c_str());
        }
        CHECK(parsed.error.starts_with(refusal.error));
        CHECK(parsed.error.ends_with("."));
    }
}

// Whatever the bytes, the parser answers.
void survives_damage() {
    const std::string good = sequence_head + reduce + "\nstep 0@0\n" +
                             "class 1 op=SendRecv datatype=Int8 shape=shift comms=0\n"
                             "transfers 1 0 0>1:4 1>2:4\nstep 1@0 0@0\n";
    CHECK(parse_plan(good).error.empty());
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
        std::string bad = good.substr(0, random() % (good.size() + 1));
        for (unsigned i = random() % 4; i > 0 && !bad.empty(); --i) {
            bad[random() % bad.size()] = "0123456789 \n\t=@>:,-#xA\0\xff"[random() % 23];
        }
        const ParsedPlan parsed = parse_plan(bad);
        CHECK(parsed.error.empty() || parsed.error.starts_with("line "));
    }
}

// Vectors of the FNV specification's author (isthe.com/chongo/tech/comp/fnv, test_fnv.c).
void digests_are_fnv1a() {
    CHECK(fnv1a_hex("") == "cbf29ce484222325");
    CHECK(fnv1a_hex("a") == "af63dc4c8601ec8c");
    CHECK(fnv1a_hex("foobar") == "85944171f73967e8");
    CHECK(parse_plan(head + reduce).plan.digest == fnv1a_hex(head + reduce));
}

}  // namespace

int main() {
    reads_the_documented_example();
    reads_steps();
    refuses_and_says_where();
    survives_damage();
    digests_are_fnv1a();
    return check::result();
}
