// Filling and checking: right results of every operation pass, and each kind of fault is counted.
#include <algorithm>
#include <cstring>
#include <string>

#include "check.h"
#include "every.h"
#include "memory_backend.h"
#include "verify.h"

namespace {

using namespace collscope;

// All ranks of one call, filled and exchanged.
struct Call {
    Call(Class its, int ranks) : cls(std::move(its)), nranks(ranks) {
        Contents sent;
        for (int rank = 0; rank < nranks; ++rank) {
            const Layout layout = layout_of(cls, 0, rank, nranks);
            layouts.push_back(layout);
            memories.push_back({std::vector<std::byte>(layout.arena_bytes), {}});
            memories.back().buffers = layout.at(memories.back().arena.data());
            CHECK(fill_inputs(backend, 0, part(rank), {}).ok());
            const std::byte* send = memories.back().buffers.send;
            sent.emplace_back(send, send + layout.send_bytes);
        }
        results = received(cls, 0, sent);
    }

    RankCall part(int rank) const {
        return {cls, 0, rank, nranks, memories[static_cast<std::size_t>(rank)].buffers};
    }
    void deliver() {
        for (std::size_t rank = 0; rank < memories.size(); ++rank) {
            if (layouts[rank].recv_bytes != 0) {
                CHECK(results[rank].size() == layouts[rank].recv_bytes);
                std::memcpy(memories[rank].buffers.recv, results[rank].data(),
                            results[rank].size());
            }
        }
    }
    Checked checked(int rank, const VerifyOptions& options = {}) {
        return check_outputs(backend, 0, part(rank), options, staging);
    }

    Class cls;
    int nranks;
    MemoryBackend backend;
    Staging staging;
    std::vector<Layout> layouts;
    std::vector<Memory> memories;
    Contents results;
};

Class class_of(Op op, Datatype type, std::uint64_t count, Redop redop = Redop::Sum, int root = 0) {
    Class cls;
    cls.op = op;
    cls.datatype = type;
    cls.count = count;
    cls.redop = redop;
    cls.root = root;
    cls.comms = {0};
    return cls;
}

Class group_of(Datatype type, int nranks) {
    Class cls = class_of(Op::AllToAllv, type, 0);
    cls.shape = "alltoallv";
    cls.transfers.emplace_back();
    for (int src = 0; src < nranks; ++src) {
        for (int dst = nranks; dst-- > 0;) {
            cls.transfers.back().push_back({src, dst, static_cast<std::uint64_t>(src * 700 + dst)});
        }
    }
    return cls;
}

// After the call nothing is wrong, and all that is wanted was looked at.
void passes(const Class& cls, int nranks) {
    Call call(cls, nranks);
    call.deliver();
    for (int rank = 0; rank < nranks; ++rank) {
        const Layout& layout = call.layouts[static_cast<std::size_t>(rank)];
        const Checked result = call.checked(rank);
        CHECK(result.status.ok());
        CHECK(result.n_wrong == 0);
        CHECK(result.first_wrong.empty());
        CHECK(!result.sampled);
        CHECK(result.n_checked == layout.recv_bytes / itemsize(cls.datatype));
    }
}

void passes_both_places(Class cls, int nranks) {
    passes(cls, nranks);
    cls.in_place = true;
    passes(cls, nranks);
}

void passes_every_operation() {
    for (const Datatype type : every::datatypes) {
        for (const int nranks : {1, 3, 4}) {
            passes(group_of(type, nranks), nranks);
            for (const std::uint64_t count : {1, 7, 1009, 3000}) {
                for (const Op op : {Op::AllReduce, Op::ReduceScatter, Op::Reduce}) {
                    for (const Redop redop : every::redops) {
                        passes_both_places(class_of(op, type, count, redop, nranks - 1), nranks);
                    }
                }
                for (const Op op :
                     {Op::AllGather, Op::Broadcast, Op::AllToAll, Op::Gather, Op::Scatter}) {
                    passes_both_places(class_of(op, type, count, Redop::Sum, nranks - 1), nranks);
                }
            }
        }
    }
}

void counts_what_is_wrong() {
    Call call(class_of(Op::AllGather, Datatype::Float32, 50000), 4);
    const Checked before = call.checked(1);
    CHECK(before.n_wrong == 200000);
    CHECK(before.first_wrong.find(
              "element 0 of the receive buffer, from rank 0, was not written") == 0);
    call.deliver();
    float wrong = -7;
    std::byte* recv = call.memories[1].buffers.recv;
    std::memcpy(recv + 123456 * sizeof wrong, &wrong, sizeof wrong);
    std::memcpy(recv + 199999 * sizeof wrong, &wrong, sizeof wrong);
    const Checked after = call.checked(1);
    CHECK(after.n_wrong == 2);
    CHECK(after.first_wrong.find("element 123456 of the receive buffer, from rank 2, is -7, ") ==
          0);
    CHECK(call.checked(0).n_wrong == 0);
    call.backend.refuses = true;
    CHECK(call.checked(0).status.error == "copy refused");
}

// In place, a call that does nothing leaves the input there.
void notices_a_call_that_did_nothing() {
    for (const Op op : {Op::AllReduce, Op::AllGather, Op::ReduceScatter, Op::Broadcast}) {
        Class cls = class_of(op, Datatype::Bfloat16, 1000, Redop::Sum, 0);
        cls.in_place = true;
        Call call(cls, 4);
        CHECK(call.checked(2).n_wrong > 500);
    }
}

// Blocks of a multiple of the period, in exchanged places.
void notices_exchanged_blocks() {
    for (const Op op : {Op::AllToAll, Op::AllGather, Op::ReduceScatter, Op::Scatter}) {
        Call call(class_of(op, Datatype::Int32, 1009 * 4), 4);
        call.deliver();
        if (op == Op::AllToAll || op == Op::AllGather) {
            std::byte* recv = call.memories[0].buffers.recv;
            std::swap_ranges(recv, recv + 1009 * 16, recv + 1009 * 16);
        } else {
            std::swap(call.results[0], call.results[1]);
            call.deliver();
        }
        CHECK(call.checked(0).n_wrong > 4000);
    }
    Call call(class_of(Op::AllToAll, Datatype::Int32, 1009 * 4), 4);
    std::swap(call.results[0], call.results[1]);  // blocks for another rank
    call.deliver();
    CHECK(call.checked(0).n_wrong > 4000 * 4);
}

void checks_a_sample_of_much() {
    const std::uint64_t count = 3000000;
    Call call(class_of(Op::AllReduce, Datatype::Int32, count), 2);
    call.deliver();
    VerifyOptions options;
    options.limit_bytes = 1 << 20;
    call.backend.copied_out = 0;
    Checked result = call.checked(0, options);
    CHECK(result.sampled && result.n_wrong == 0);
    CHECK(call.backend.copied_out == result.n_checked * 4);
    CHECK(result.n_checked <= (1 << 18) && result.n_checked > (1 << 17));
    std::byte* recv = call.memories[0].buffers.recv;
    recv[0] ^= std::byte{1};
    recv[count * 4 - 1] ^= std::byte{1};
    CHECK(call.checked(0, options).n_wrong == 2);
    std::memset(recv + count * 2, 0xA5, count / 2);  // an eighth of all
    CHECK(call.checked(0, options).n_wrong > 10000);
    options.limit_bytes = count * 4;
    CHECK(!call.checked(0, options).sampled);
}

void compares_through_several_copies() {
    const std::uint64_t count = Staging::capacity + Staging::capacity / 2 + 77;
    Call call(class_of(Op::Broadcast, Datatype::Uint8, count), 2);
    call.deliver();
    call.memories[1].buffers.recv[Staging::capacity] ^= std::byte{1};
    const Checked result = call.checked(1);
    CHECK(result.n_checked == count);
    CHECK(result.n_wrong == 1);
    CHECK(result.first_wrong.find("element 16777216 ") == 0);
}

// Average over 3: one contributor, two roundings are allowed, three steps of the type are not.
void allows_rounding_of_averages() {
    const Class cls = class_of(Op::AllReduce, Datatype::Bfloat16, 100000, Redop::Avg);
    Call call(cls, 3);
    call.deliver();
    const Pattern pattern = pattern_of(cls, 3, Fp8Form::Ocp);
    for (std::size_t i = 0; i < cls.count; ++i) {
        // The product with the rounded third, 0x3eab = 171 / 512.
        encode(Datatype::Bfloat16, pattern.reduced(i) * 3 * 171 / 512,
               call.memories[0].buffers.recv + 2 * i);
    }
    CHECK(call.checked(0).n_wrong == 0);
    auto* bits = reinterpret_cast<std::uint16_t*>(call.memories[0].buffers.recv);
    std::uint64_t changed = 0;
    for (std::size_t i = 90000; i < cls.count; i += 100) {
        if (bits[i] != 0) {
            bits[i] = static_cast<std::uint16_t>(bits[i] + 4);
            ++changed;
        }
    }
    CHECK(changed > 90 && call.checked(0).n_wrong == changed);
}

void knows_the_fp8_form_of_devices() {
    CHECK(fp8_form_of("gfx942:sramecc+:xnack-") == Fp8Form::Fnuz);
    CHECK(fp8_form_of("AMD Instinct MI300X") == Fp8Form::Fnuz);
    CHECK(fp8_form_of("gfx950") == Fp8Form::Ocp);
    CHECK(fp8_form_of("NVIDIA H200") == Fp8Form::Ocp);
    CHECK(fp8_form_of("") == Fp8Form::Ocp);
}

}  // namespace

int main() {
    passes_every_operation();
    counts_what_is_wrong();
    notices_a_call_that_did_nothing();
    notices_exchanged_blocks();
    checks_a_sample_of_much();
    compares_through_several_copies();
    allows_rounding_of_averages();
    knows_the_fp8_form_of_devices();
    return check::result();
}
