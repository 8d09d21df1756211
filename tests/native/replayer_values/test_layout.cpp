// Buffers of each operation, by hand.
#include <cstdint>
#include <vector>

#include "check.h"
#include "layout.h"

namespace {

using namespace collscope;

Class class_of(Op op, std::uint64_t count, bool in_place, int root = 0) {
    Class cls;
    cls.op = op;
    cls.datatype = Datatype::Float32;
    cls.count = count;
    cls.in_place = in_place;
    cls.root = root;
    cls.comms = {0};
    return cls;
}

void check_sides(const Layout& layout, std::uint64_t send, std::uint64_t recv,
                 std::uint64_t send_offset, std::uint64_t recv_offset, std::uint64_t arena) {
    CHECK(layout.send_bytes == send);
    CHECK(layout.recv_bytes == recv);
    CHECK(layout.send_offset == send_offset);
    CHECK(layout.recv_offset == recv_offset);
    CHECK(layout.arena_bytes == arena);
}

bool is_piece(const Piece& piece, std::uint64_t offset, std::uint64_t count, int source,
              std::uint64_t index) {
    return piece.offset == offset && piece.count == count && piece.source == source &&
           piece.index == index;
}

bool is_message(const Message& message, int peer, std::uint64_t offset, std::uint64_t count) {
    return message.peer == peer && message.offset == offset && message.count == count;
}

// Rank 2 of 4, 100 floats: 400 bytes, 512 aligned; root 1.
void lays_out_of_place() {
    check_sides(layout_of(class_of(Op::AllReduce, 100, false), 0, 2, 4), 400, 400, 0, 512, 1024);
    check_sides(layout_of(class_of(Op::AllGather, 100, false), 0, 2, 4), 400, 1600, 0, 512, 2560);
    check_sides(layout_of(class_of(Op::ReduceScatter, 100, false), 0, 2, 4), 1600, 400, 0, 2048,
                2560);
    check_sides(layout_of(class_of(Op::AllToAll, 100, false), 0, 2, 4), 1600, 1600, 0, 2048, 4096);
    check_sides(layout_of(class_of(Op::Broadcast, 100, false, 1), 0, 2, 4), 0, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Broadcast, 100, false, 1), 0, 1, 4), 400, 400, 0, 512, 1024);
    check_sides(layout_of(class_of(Op::Reduce, 100, false, 1), 0, 2, 4), 400, 0, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Reduce, 100, false, 1), 0, 1, 4), 400, 400, 0, 512, 1024);
    check_sides(layout_of(class_of(Op::Gather, 100, false, 1), 0, 2, 4), 400, 0, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Gather, 100, false, 1), 0, 1, 4), 400, 1600, 0, 512, 2560);
    check_sides(layout_of(class_of(Op::Scatter, 100, false, 1), 0, 2, 4), 0, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Scatter, 100, false, 1), 0, 1, 4), 1600, 400, 0, 2048, 2560);
    check_sides(layout_of(class_of(Op::AllReduce, 0, false), 0, 2, 4), 0, 0, 0, 0, 512);
}

void lays_in_place() {
    check_sides(layout_of(class_of(Op::AllReduce, 100, true), 0, 2, 4), 400, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::AllGather, 100, true), 0, 2, 4), 400, 1600, 800, 0, 2048);
    check_sides(layout_of(class_of(Op::ReduceScatter, 100, true), 0, 2, 4), 1600, 400, 0, 800,
                2048);
    check_sides(layout_of(class_of(Op::Broadcast, 100, true, 1), 0, 2, 4), 0, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Broadcast, 100, true, 1), 0, 1, 4), 400, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Reduce, 100, true, 1), 0, 2, 4), 400, 0, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Gather, 100, true, 3), 0, 3, 4), 400, 1600, 1200, 0, 2048);
    check_sides(layout_of(class_of(Op::Gather, 100, true, 3), 0, 2, 4), 400, 0, 0, 0, 512);
    check_sides(layout_of(class_of(Op::Scatter, 100, true, 3), 0, 3, 4), 1600, 400, 0, 1200, 2048);
    check_sides(layout_of(class_of(Op::Scatter, 100, true, 3), 0, 2, 4), 0, 400, 0, 0, 512);
    check_sides(layout_of(class_of(Op::AllGather, 100, true), 0, 0, 1), 400, 400, 0, 0, 512);
    const Layout exchange = layout_of(class_of(Op::AllToAll, 100, true), 0, 2, 4);
    check_sides(exchange, 1600, 1600, 0, 2048, 4096);
    CHECK(exchange.in_place_ignored);
    CHECK(!layout_of(class_of(Op::AllGather, 100, true), 0, 2, 4).in_place_ignored);
    CHECK(!layout_of(class_of(Op::AllToAll, 100, false), 0, 2, 4).in_place_ignored);
}

void says_what_is_wanted() {
    const Layout scattered = layout_of(class_of(Op::ReduceScatter, 100, false), 0, 2, 4);
    CHECK(scattered.wanted.size() == 1);
    CHECK(is_piece(scattered.wanted.at(0), 0, 100, from_reduction, 200));
    const Layout exchange = layout_of(class_of(Op::AllToAll, 100, false), 0, 2, 4);
    CHECK(exchange.wanted.size() == 4);
    CHECK(is_piece(exchange.wanted.at(3), 300, 100, 3, 200));
    const Layout gathered = layout_of(class_of(Op::AllGather, 100, true), 0, 2, 4);
    CHECK(is_piece(gathered.wanted.at(3), 300, 100, 3, 0));
    const Layout spread = layout_of(class_of(Op::Scatter, 100, false, 1), 0, 2, 4);
    CHECK(is_piece(spread.wanted.at(0), 0, 100, 1, 200));
    const Layout copied = layout_of(class_of(Op::Broadcast, 100, false, 1), 0, 2, 4);
    CHECK(is_piece(copied.wanted.at(0), 0, 100, 1, 0));
    CHECK(layout_of(class_of(Op::Reduce, 100, false, 1), 0, 2, 4).wanted.empty());
    CHECK(layout_of(class_of(Op::Gather, 100, false, 1), 0, 2, 4).wanted.empty());
    CHECK(layout_of(class_of(Op::Gather, 100, false, 1), 0, 1, 4).wanted.size() == 4);
}

// The second communicator's list; rank 1 sends 5 to 0, 7 to 2 and 2 to itself, and has 3 from 0.
void lays_groups() {
    Class cls = class_of(Op::AllToAllv, 0, true);
    cls.shape = "alltoallv";
    cls.comms = {0, 1};
    cls.transfers = {{{0, 1, 9}},
                     {{1, 0, 5}, {0, 2, 4}, {1, 2, 7}, {0, 1, 3}, {1, 1, 2}, {2, 0, 1000}}};
    const Layout layout = layout_of(cls, 1, 1, 3);
    check_sides(layout, 14 * 4, 5 * 4, 0, 512, 1024);
    CHECK(layout.in_place_ignored);
    CHECK(layout.wanted.size() == 2);
    CHECK(is_piece(layout.wanted.at(0), 0, 3, 0, 4));
    CHECK(is_piece(layout.wanted.at(1), 3, 2, 1, 12));
    const Messages messages = messages_of(cls, 1, 1, 3);
    CHECK(messages.sends.size() == 3);
    CHECK(is_message(messages.sends.at(1), 2, 5, 7));
    CHECK(is_message(messages.sends.at(2), 1, 12, 2));
    CHECK(messages.recvs.size() == 2);
    CHECK(is_message(messages.recvs.at(1), 1, 3, 2));
    check_sides(layout_of(cls, 0, 2, 3), 0, 0, 0, 0, 512);
    CHECK(size_bytes_of(cls, 3) == 1005 * 4);  // rank 0 receives 5 and 1000
}

void has_messages_for_old_libraries() {
    const Messages exchange = messages_of(class_of(Op::AllToAll, 100, false), 0, 2, 4);
    CHECK(exchange.sends.size() == 4 && exchange.recvs.size() == 4);
    CHECK(is_message(exchange.sends.at(3), 3, 300, 100));
    CHECK(is_message(exchange.recvs.at(1), 1, 100, 100));
    const Messages leaf = messages_of(class_of(Op::Gather, 100, false, 1), 0, 2, 4);
    CHECK(leaf.sends.size() == 1 && leaf.recvs.empty());
    CHECK(is_message(leaf.sends.at(0), 1, 0, 100));
    const Messages root = messages_of(class_of(Op::Scatter, 100, false, 1), 0, 1, 4);
    CHECK(root.sends.size() == 4 && root.recvs.size() == 1);
    CHECK(is_message(root.sends.at(2), 2, 200, 100));
    CHECK(messages_of(class_of(Op::AllReduce, 100, false), 0, 2, 4).sends.empty());
}

// Table of nccl-tests: vectors for AllReduce, Broadcast and Reduce; all shards for the others.
void knows_the_size() {
    for (const Op op : {Op::AllReduce, Op::Broadcast, Op::Reduce}) {
        CHECK(size_bytes_of(class_of(op, 100, false), 4) == 400);
    }
    for (const Op op : {Op::AllGather, Op::ReduceScatter, Op::AllToAll, Op::Gather, Op::Scatter}) {
        CHECK(size_bytes_of(class_of(op, 100, false), 4) == 1600);
    }
    // As a group of messages, without a rank's message to itself.
    for (const Op op : {Op::AllToAll, Op::Gather, Op::SendRecv}) {
        Class cls = class_of(op, 0, false);
        cls.shape = "sendrecv";
        cls.transfers = {{{1, 0, 100}, {2, 0, 100}, {3, 0, 100}}};
        CHECK(size_bytes_of(cls, 4) == (op == Op::SendRecv ? 400 : 1600));
    }
}

}  // namespace

int main() {
    lays_out_of_place();
    lays_in_place();
    says_what_is_wanted();
    lays_groups();
    has_messages_for_old_libraries();
    knows_the_size();
    return check::result();
}
