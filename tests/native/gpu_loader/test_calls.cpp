// What a class becomes in calls of the library, written down by functions that stand in for it.
#include <string>

#include "check.h"
#include "gpu_calls.h"

using namespace collscope;

namespace {

std::string calls;  // of the current case
std::byte send_data[64];
std::byte recv_data[64];

std::string place(const void* pointer) {
    const auto* at = static_cast<const std::byte*>(pointer);
    const bool sends = at >= send_data && at < send_data + sizeof send_data;
    return (sends ? "s" : "r") + std::to_string(at - (sends ? send_data : recv_data));
}

std::string listed(const std::size_t* values, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) {
        text += (i ? "," : "") + std::to_string(values[i]);
    }
    return text;
}

int group_start() {
    calls += "(";
    return 0;
}
int group_end() {
    calls += ")";
    return 0;
}
int send(const void* data, std::size_t count, int type, int peer, void*, void*) {
    calls += " send " + place(data) + " " + std::to_string(count) + " type " +
             std::to_string(type) + " to " + std::to_string(peer);
    return 0;
}
int recv(void* data, std::size_t count, int type, int peer, void*, void*) {
    calls += " recv " + place(data) + " " + std::to_string(count) + " type " +
             std::to_string(type) + " from " + std::to_string(peer);
    return 0;
}
int refuse_recv(void*, std::size_t, int, int, void*, void*) { return 4; }
int reduce(const void* from, void* to, std::size_t count, int type, int redop, int root, void*,
           void*) {
    calls += "reduce " + place(from) + " " + place(to) + " " + std::to_string(count) + " type " +
             std::to_string(type) + " op " + std::to_string(redop) + " root " +
             std::to_string(root);
    return 0;
}
int all_to_all(const void* from, void* to, std::size_t count, int type, void*, void*) {
    calls += "all-to-all " + place(from) + " " + place(to) + " " + std::to_string(count) +
             " type " + std::to_string(type);
    return 0;
}
int all_to_allv(const void* from, const std::size_t* send_counts, const std::size_t* send_offsets,
                void* to, const std::size_t* recv_counts, const std::size_t* recv_offsets, int,
                void*, void*) {
    calls += "all-to-allv " + place(from) + " " + listed(send_counts, 3) + " at " +
             listed(send_offsets, 3) + " " + place(to) + " " + listed(recv_counts, 3) + " at " +
             listed(recv_offsets, 3);
    return 0;
}
const char* error_string(int) { return "invalid argument"; }
const char* last_error(void*) { return "peer 7 is not there\n"; }

gpu::CollectiveLibrary library() {
    gpu::CollectiveLibrary out;
    out.group_start = group_start;
    out.group_end = group_end;
    out.send = send;
    out.recv = recv;
    out.reduce = reduce;
    out.get_error_string = error_string;
    out.get_last_error = last_error;
    return out;
}

Class two_byte(Op op, std::uint64_t count) {
    Class cls;
    cls.op = op;
    cls.datatype = Datatype::Float16;
    cls.count = count;
    cls.comms = {0};
    return cls;
}

// Calls of rank 1 of 3.
std::string enqueued(const gpu::CollectiveLibrary& api, const Class& cls) {
    calls.clear();
    GpuCalls made(api);
    const Status status = made.enqueue({nullptr, nullptr, 1, 3}, cls, 0, {send_data, recv_data});
    return status.ok() ? calls : calls + status.error;
}

void reductions() {
    Class cls = two_byte(Op::Reduce, 5);
    cls.redop = Redop::Avg;
    cls.root = 2;
    CHECK(enqueued(library(), cls) == "reduce s0 r0 5 type 6 op 4 root 2");
}

// Element offsets are bytes times two.
void all_to_all_with_and_without() {
    const Class cls = two_byte(Op::AllToAll, 4);
    CHECK(enqueued(library(), cls) ==
          "( send s0 4 type 6 to 0 send s8 4 type 6 to 1 send s16 4 type 6 to 2"
          " recv r0 4 type 6 from 0 recv r8 4 type 6 from 1 recv r16 4 type 6 from 2)");
    gpu::CollectiveLibrary nccl = library();
    nccl.all_to_all = all_to_all;
    CHECK(enqueued(nccl, cls) == "all-to-all s0 r0 4 type 6");
    gpu::CollectiveLibrary rccl = library();
    rccl.all_to_all = all_to_all;
    CHECK(enqueued(rccl, cls) == "all-to-all s0 r0 4 type 6");
    // The job used Send and Recv, so the library's function is not the same thing.
    Class shaped = cls;
    shaped.shape = "alltoall";
    shaped.transfers = {{{1, 2, 4}, {0, 1, 4}}};
    CHECK(enqueued(rccl, shaped) == "( send s0 4 type 6 to 2 recv r0 4 type 6 from 0)");
}

void all_to_allv_with_and_without() {
    Class cls = two_byte(Op::AllToAllv, 0);
    cls.transfers = {{{0, 1, 3}, {1, 0, 2}, {1, 2, 5}, {2, 0, 9}}};
    const std::string group =
        "( send s0 2 type 6 to 0 send s4 5 type 6 to 2 recv r0 3 type 6 from 0)";
    gpu::CollectiveLibrary rccl = library();
    rccl.all_to_allv = all_to_allv;
    CHECK(enqueued(rccl, cls) == "all-to-allv s0 2,0,5 at 0,0,2 r0 3,0,0 at 0,0,0");
    CHECK(enqueued(library(), cls) == group);
    // Two messages between the same ranks, wherever: every rank makes a group of it.
    cls.transfers[0].push_back({2, 0, 1});
    CHECK(enqueued(rccl, cls) == group);
}

void refusal() {
    gpu::CollectiveLibrary api = library();
    api.recv = refuse_recv;
    const Class cls = two_byte(Op::SendRecv, 0);
    Class shift = cls;
    shift.shape = "shift";
    shift.transfers = {{{0, 1, 3}}};
    // The group is closed all the same.
    CHECK(enqueued(api, shift) == "()ncclRecv: invalid argument (result 4): peer 7 is not there");
}

}  // namespace

int main() {
    reductions();
    all_to_all_with_and_without();
    all_to_allv_with_and_without();
    refusal();
    return check::result();
}
