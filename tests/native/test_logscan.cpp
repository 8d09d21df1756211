// Native tests of the scanner: verbatim lines of each dialect, what must be rejected first.
// Lines without a note are from public issues or from the logs named in docs; those marked "built"
// are written from the library's format string.
#include <string>
#include <string_view>

#include "check.h"
#include "digest.h"
#include "scanner.h"

namespace {

using logscan::Counter;
using logscan::NONE;
using logscan::Result;
using logscan::Scanner;

const std::string guide =
    "banff-cyxtera-s78-4:52937:52937 [0] NCCL INFO AllReduce: opCount 3 sendbuff 0x7f8bccf79600 "
    "recvbuff 0x7f8bccf79600 count 268435456 datatype 6 op 0 root 0 comm 0xaef8a00 [nranks=8] "
    "stream 0xac16b80 task 0 globalrank 0\n";

Result scan(std::string_view text) {
    Scanner scanner;
    scanner.feed(text);
    return scanner.finish();
}

Result info(std::string_view message) {
    return scan("node:1:2 [0] NCCL INFO " + std::string(message) + "\n");
}

logscan::Signature signature(const Result& result, std::size_t row) {
    return result.signatures.keys().at(result.calls.sig[row]);
}

std::string op(const Result& result, std::size_t row) {
    return result.ops.strings().at(signature(result, row).op);
}

void rejects_what_is_no_call() {
    // TUNING begins with an operation and a colon as well.
    const Result tuning = info("AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}");
    CHECK(tuning.calls.line.size() == 0);
    CHECK(tuning.tunings.line.size() == 1);
    CHECK(scan("AllReduce: the operation that sums\n").counted(Counter::foreign) == 1);
    CHECK(scan("see NCCL_DEBUG=INFO for NCCL INFOrmation\n").counted(Counter::foreign) == 1);
    // issue 147: the prefix was swallowed by another writer
    const Result bare = scan("Broadcast: opCount 1 sendbuff 0x7f00 recvbuff 0x7f00 count 8\n");
    CHECK(bare.calls.line.size() == 0);
    CHECK(bare.counted(Counter::torn) == 1);
    const Result letters = info(
        "AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x1 count many datatype 6 op 0 root 0 comm 0x1 "
        "[nranks=8] stream 0x1");
    CHECK(letters.calls.line.size() == 0);
    CHECK(letters.counted(Counter::invalid_number) == 1);
    const Result huge = info(
        "AllReduce: opCount 3 sendbuff 0x1 recvbuff 0x1 count 18446744073709551616 datatype 6 op 0 "
        "root 0 comm 0x1 [nranks=8] stream 0x1");
    CHECK(huge.calls.line.size() == 0);
}

void keeps_a_cut_call_from_nranks_on() {
    const std::size_t whole = guide.find(" stream");
    for (std::size_t cut = 1; cut < guide.size(); ++cut) {
        const Result result = scan(guide.substr(0, cut));
        CHECK(result.calls.line.size() == (cut >= whole ? 1 : 0));
    }
    // "globalrank 1" may be a cut "globalrank 12": not a new communicator
    std::string line = guide;
    line.replace(line.find("globalrank 0"), 12, "globalrank 12");
    const Result result = scan(line + line.substr(0, line.size() - 2));
    CHECK(result.calls.line.size() == 2);
    CHECK(result.comms.ptr.size() == 1);
    CHECK(result.comms.global_rank[0] == 12);
}

void reads_the_guide() {
    const Result result = scan(guide);
    CHECK(result.processes.size() == 1);
    CHECK(result.processes[0].host == "banff-cyxtera-s78-4");
    CHECK(result.processes[0].pid == 52937);
    CHECK(result.threads.tid[0] == 52937);
    CHECK(op(result, 0) == "AllReduce");
    CHECK(signature(result, 0).count == 268435456);
    CHECK(signature(result, 0).datatype == 6);
    CHECK(signature(result, 0).nranks == 8);
    CHECK(result.calls.op_count[0] == 3);
    CHECK(result.calls.slot[0] == 0);
    CHECK(result.calls.task[0] == 0);
    CHECK(result.calls.line[0] == 1);
    CHECK(result.comms.ptr[0] == 0xaef8a00);
    CHECK(result.comms.global_rank[0] == 0);
    CHECK(result.counted(Counter::coll) == 1);
}

void reads_hexadecimal_op_count() {
    // NVIDIA/nccl issue 531
    const Result result = scan(
        "n136-081-017:201800:201800 [2] NCCL INFO AllGather: opCount f7 sendbuff 0x7f33f878be00 "
        "recvbuff 0x7f33f878ca00 count 512 datatype 0 op 0 root 0 comm 0x7f33f4030110 [nranks=16] "
        "stream 0x9cd23f10\n");
    CHECK(result.calls.op_count[0] == 0xf7);
    CHECK(result.calls.task[0] == -1);
    CHECK(result.comms.global_rank[0] == -1);
    CHECK(result.calls.slot[0] == -1);  // 0xc00 below recvbuff: not inside it
}

void reads_other_dialects() {
    // RCCL, rocm-systems enqueue.cc @ e149d7b5 (built)
    const Result acc = info(
        "AllReduce: opCount 10 sendbuff 0x10 recvbuff 0x20 acc (nil) count 4294967295 datatype 9 "
        "op "
        "4 root 0 comm 0x5 [nranks=2] stream (nil) task 1 globalrank 1");
    CHECK(signature(acc, 0).flags == logscan::COUNT_MODULO_32);
    CHECK(signature(acc, 0).redop == 4);
    CHECK(acc.calls.slot[0] == -1);
    // RCCL of ROCm 5.2, in a group (built)
    const Result scaled = info(
        "AllReduce: opCount 1 sendbuff 0x10 recvbuff 0x10 count 4 datatype 7 op 2147483647 root 0 "
        "comm 0x5 [nranks=2] stream 0x1 devRedOp 0 isPtr 0 scaler 3f800000");
    CHECK(signature(scaled, 0).redop == 5);
    CHECK(scaled.counted(Counter::unknown) == 0);
    // RCCL of ROCm 4.0 (built)
    const Result pointers = info(
        "AllToAllv: opCount 2 sendbuff 0x10 sendcounts 0x1 sdispls 0x2 recvbuff 0x20 recvcounts "
        "0x3 "
        "rdispls 0x4 datatype 7 typesize 4 op 0 root 0 comm 0x5 [nranks=2] stream 0x1");
    CHECK(signature(pointers, 0).flags == logscan::POINTERS_ONLY);
    CHECK(signature(pointers, 0).count == 0);
    // Meta NCCLX (built)
    const Result meta = info(
        "Send: opCount 5 sendbuff (nil) recvbuff 0x20 count 7 datatype 1 peer 3 comm 1234567890123 "
        "[nranks=16, localRanks=8] stream=0x7f00");
    CHECK(meta.comms.ptr[0] == 1234567890123u);
    CHECK(signature(meta, 0).root == 3);
    CHECK(signature(meta, 0).nranks == 16);
    CHECK(meta.calls.slot[0] == -2);
    const Result msccl = info(
        "mscclFuncAllReduce: opCount 0 sendbuff 0x8 recvbuff 0x8 count 4 datatype 6 op 0 root 0 "
        "comm "
        "0x1 [nranks=8] stream 0x2");
    CHECK(op(msccl, 0) == "mscclFuncAllReduce");
    CHECK(msccl.calls.slot[0] == 0);
}

void finds_slots() {
    const auto slot = [](const char* name, const char* send, const char* recv) {
        const Result result =
            info(std::string(name) + ": opCount 0 sendbuff " + send + " recvbuff " + recv +
                 " count 16 datatype 7 op 0 root 0 comm 0x1 [nranks=4] "
                 "stream 0x2");
        return result.calls.slot[0];
    };
    CHECK(slot("AllGather", "0x1080", "0x1000") == 2);   // 128 = 2 * 16 * 4
    CHECK(slot("AllGather", "0x1100", "0x1000") == -1);  // rank 4 of 4
    CHECK(slot("AllGather", "0x1041", "0x1000") == -1);
    CHECK(slot("AllGather", "0x0fc0", "0x1000") == -1);
    CHECK(slot("ReduceScatter", "0x1000", "0x10c0") == 3);
    CHECK(slot("Gather", "0x1040", "0x1000") == 1);
    CHECK(slot("Gather", "0x1040", "(nil)") == -2);
    CHECK(slot("Scatter", "0x1000", "0x1000") == 0);
    CHECK(slot("AlltoAll", "0x1000", "0x1000") == 0);
    CHECK(slot("Broadcast", "0x1000", "0x2000") == -1);
    CHECK(slot("Send", "(nil)", "0x2000") == -2);
}

void tells_generations_apart() {
    const auto line = [](const char* nranks, const char* tail) {
        return "n:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x8 recvbuff 0x8 count 4 "
               "datatype 6 "
               "op 0 root 0 comm 0x1 [nranks=" +
               std::string(nranks) + "] stream 0x2" + tail + "\n";
    };
    const Result result =
        scan(line("8", "") + line("8", " task 0 globalrank 3") + line("8", "") +
             line("4", " task 0 globalrank 3") + line("4", " task 0 globalrank 1"));
    CHECK(result.comms.ptr.size() == 3);
    CHECK(result.comms.global_rank[0] == 3);  // learned from the second line
    CHECK(result.calls.comm[2] == 0);
    CHECK(result.comms.generation[2] == 2);
}

void finds_records_behind_any_prefix() {
    for (const char* prefix :
         {"", "0: ", " 12: ", "[0] ", "[1,28]<stdout>:", "(RayTrainWorker pid=615, ip=10.72.7.6) ",
          "104.171.201.171: ", "> ", "[2026-03-12 13:57:49] ", "[default0]:", "\x1b[36m", "svc  | ",
          "100%|####| 5/5 [00:01<00:00]\r", "2025-01-01T00:00:00.000Z ", "\xff\xfe "}) {
        const Result result = scan(prefix + guide);
        CHECK(result.calls.line.size() == 1);
        CHECK(result.processes.at(0).host == "banff-cyxtera-s78-4");
        CHECK(result.processes.at(0).pid == 52937);
    }
    const Result nul = scan(std::string(4096, '\0') + guide);
    CHECK(nul.processes.at(0).host == "banff-cyxtera-s78-4");
    CHECK(nul.counted(Counter::nul) == 1);
    const Result colon = scan("fe80::1:12:13 [0] NCCL INFO Connected all rings\n");
    CHECK(colon.processes.at(0).host == "fe80::1");
    const Result bare =
        scan("[7] NCCL INFO Connected all rings\nr3 NCCL INFO Connected all rings\n");
    CHECK(bare.processes.size() == 2);
    CHECK(bare.processes[0].host.empty() && bare.processes[0].pid == 0);
    CHECK(bare.processes[1].prefix == "r3");
    CHECK(scan(guide.substr(0, guide.size() - 1) + "\r\n").comms.global_rank[0] == 0);
}

void splits_records_of_one_line() {
    const std::string one = guide.substr(0, guide.size() - 1);
    for (const char* glue : {"", " ", "\x1b[0m"}) {
        const Result whole = scan(guide + one + glue + guide);
        CHECK(whole.calls.line.size() == 3);
        CHECK(whole.processes.size() == 1);
        CHECK(whole.counted(Counter::interleaved) == 1);
    }
    const std::size_t inside = guide.find("5456 datatype");
    const Result torn = scan(guide + guide.substr(0, inside) + guide + guide.substr(inside));
    CHECK(torn.calls.line.size() == 2);
    CHECK(torn.counted(Counter::torn) == 1);
    CHECK(torn.processes.size() == 1);
    // issue 147
    const Result empty = scan("a:1:1 [2] NCCL INFO a:1:3 [7] NCCL INFO Connected all rings\n");
    CHECK(empty.messages.text.size() == 1);
    CHECK(empty.counted(Counter::torn) == 1);
    CHECK(empty.messages.thread[0] == 1);
}

void reads_the_call_trace() {
    // NCCL 2.15 (built): no [dev], pointers without 0x
    const Result result = scan(
        "n:1:1 NCCL CALL ncclGroupStart()\n"
        "n:1:1 NCCL CALL ncclAllReduce(7f8bccf79600,7f8bccf79600,16,7,0,0,0xaef8a00,(nil))\n"
        "n:1:1 NCCL CALL ncclGroupEnd()\n"
        "n:1:1 NCCL CALL ncclCommDestroy(0xaef8a00)\n"
        "n:1:1 NCCL CALL ncclAllReduce(7f8bccf79600,7f8bc\n"
        "n:1:1 NCCL CALL ncclGetUniqueId(0x1)\n");
    CHECK(result.calls.source[0] == 1);
    CHECK(result.calls.line.size() == 1);
    CHECK(op(result, 0) == "AllReduce");
    CHECK(signature(result, 0).nranks == -1);
    CHECK(result.groups.delta.size() == 2 && result.groups.delta[1] == -1);
    CHECK(result.messages.text.at(0) == "ncclCommDestroy(0xaef8a00)");
    CHECK(result.counted(Counter::torn) == 1);
}

void reads_kernel_traces() {
    const Result guide_kl = info(
        "## [170260.347287] [07:00] 000001 KL HWID 42300700 "
        "ncclDevFunc_AllReduce_RING_LL_Sum_double "
        "nw 4 bi 0 nc 0 busId df000 nRanks 8");
    const logscan::Kernels& kl = guide_kl.kernels;
    CHECK(kl.kind[0] == 0 && kl.rank[0] == 7 && kl.block[0] == 0 && kl.channel[0] == -1);
    CHECK(kl.time_ns[0] == 170260347287000);
    CHECK(kl.op_count[0] == 1 && kl.op_count2[0] == UINT64_MAX);
    CHECK(kl.bus_id[0] == 0xdf000 && kl.nranks[0] == 8 && kl.nc[0] == 0 && kl.root[0] == -1);
    CHECK(guide_kl.kernel_names.strings().at(0) == "ncclDevFunc_AllReduce_RING_LL_Sum_double");
    const Result ke = info("## [170260.348516] [06:00] 00000a KE busId bf000 nRanks 8 ");
    CHECK(ke.kernels.kind[0] == 4 && ke.kernels.name[0] == NONE && ke.kernels.op_count[0] == 10);
    const Result frontier = info(
        "## [442509.637772] [00:00:00] 000000 KL HWID 42302610 "
        "ncclDevFunc_ReduceScatter_RING_SIMPLE_"
        "Sum_bf16 nw 4 bi 0 nc 8 root 0 busId d6000 nRanks 4096");
    CHECK(frontier.kernels.channel[0] == 0 && frontier.kernels.root[0] == 0);
    const Result cray = info(
        "## [122210.650274] [00:00-01:c0] 000000-000000 KL HWID   302c00 ncclDevFunc_SendRecv_RING_"
        "SIMPLE_Sum_i8 Send 1 -> 1/0 ConnIdx/LL 1/0 -> Recv 1 nc 4 cb 1 busId c1000 nRanks 2 comm "
        "0x2b901420");
    CHECK(cray.kernels.channel[0] == 1 && cray.kernels.thread[0] == 0xc0);
    CHECK(cray.kernels.op_count2[0] == 0 && cray.kernels.comm_ptr[0] == 0x2b901420);
    CHECK(cray.kernel_names.strings().at(0) == "ncclDevFunc_SendRecv_RING_SIMPLE_Sum_i8");
    // built: RCCL 2.5-2.8; 2.9 of ROCm 4.3; later CL; RCCL PR 1661
    const Result first = info("## [  1234.5] [00:01] 00001f KL hwid 42300700 funcIndex 12");
    CHECK(first.kernels.time_ns[0] == 1234500000000);
    CHECK(first.kernel_names.strings().at(0) == "funcIndex 12");
    const Result second = info(
        "## [1.000001] [00:01] 00001f KL HWID 42300700 AllReduceRingLLSum_f32 nt 256 bi 0 nc 2");
    CHECK(second.kernel_names.strings().at(0) == "AllReduceRingLLSum_f32");
    const Result batch = info(
        "## [1.000001] [00:01-01:c0] 00001f CL 3 ncclDevFunc_AllGather_RING_LL_Sum_i8 nw 4 bi 0 nc "
        "2 "
        "root 0 busId c000 nRanks 8");
    CHECK(batch.kernels.kind[0] == 1);
    CHECK(batch.kernel_names.strings().at(0) == "ncclDevFunc_AllGather_RING_LL_Sum_i8");
    const Result last = info(
        "## [1.000001] [00:01-01:c0] 00001f KL ncclDevFunc_X [00:01-01:c0] HWID 2:42300700 nw 4 bi "
        "0 "
        "nc 2 root 0 busId c000 nRanks 8 td->type:1");
    CHECK(last.kernels.bus_id[0] == 0xc000);
    CHECK(info("## [1.0] [00:01] 000001 Abort").kernels.kind[0] == 5);
    const Result data =
        info("## [1.0] [00:01] L:0123 DT 00000001 0000000000000000 0000000000000001");
    CHECK(data.counted(Counter::data_trace) == 1 && data.kernels.line.size() == 0);
}

void rejects_torn_kernel_traces() {
    const std::string whole =
        "## [170260.347287] [07:00] 000001 KL HWID 42300700 "
        "ncclDevFunc_AllReduce_RING_LL_Sum_double "
        "nw 4 bi 0 nc 0 busId df000 nRanks 8";
    const std::size_t named = whole.find(" busId") - 1;  // releases before 2021 end with nc
    for (std::size_t cut = 5; cut < whole.size(); ++cut) {
        const Result result = info(whole.substr(0, cut));
        const bool may_be_old = cut > named && cut <= whole.find("busId") + 4;
        CHECK(result.kernels.line.size() == (may_be_old ? 1 : 0));
        CHECK(result.kernels.line.size() + result.counted(Counter::torn) == 1);
    }
}

void reads_tuning() {
    const Result result = scan(
        "n:1:1 [0] NCCL INFO AllReduce: 536870912 Bytes -> Algo RING proto SIMPLE "
        "channel{Lo..Hi}={0..15}\n"
        "n:1:1 [0] NCCL INFO 4 Bytes -> Algo 1 proto 0 time 54.700001\n"
        "n:1:1 [0] NCCL INFO AllReduce: 4 Bytes -> Algo 6 proto 2 time 1.5\n"
        "n:1:1 [0] NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels "
        "2 "
        "nthreads 512 nWorks 1\n"
        "n:1:1 [0] NCCL INFO AllGather [Copy Engine]: 8 Bytes -> cudaMemcpyBatch\n"
        "n:1:1 [0] NCCL INFO AllGather [Hierarchical CE]: 8 Bytes -> RMA proxy + CE\n"
        "n:1:1 [0] NCCL INFO Broadcast: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0} comm "
        "0x9\n"
        "n:1:1 [0] NCCL INFO AllReduce: 5368 Bytes -> Algo RI\n");
    const logscan::Tunings& rows = result.tunings;
    const std::vector<std::string>& names = result.tuning_names.strings();
    CHECK(rows.line.size() == 7);
    CHECK(rows.bytes[0] == 536870912 && rows.channels[0] == 16);
    CHECK(names.at(rows.algorithm[0]) == "RING" && names.at(rows.protocol[0]) == "SIMPLE");
    CHECK(rows.op[1] == NONE && rows.time_us[1] == 54.700001 && rows.kind[1] == 0);
    CHECK(names.at(rows.algorithm[2]) == "PAT");
    CHECK(names.at(rows.kernel[3]) == "AllReduce_AGxLL_R" && rows.channels[3] == 2);
    CHECK(names.at(rows.kernel[4]) == "cudaMemcpyBatch" && rows.kind[4] == 3);
    CHECK(rows.kind[5] == 4);
    CHECK(rows.comm_ptr[6] == 9);
    CHECK(result.counted(Counter::torn) == 1);
}

void sorts_messages() {
    const auto kind = [](const char* message) -> int {
        const Result result = info(message);
        return result.messages.kind.size() == 1 ? result.messages.kind[0] : 0;
    };
    CHECK(kind("comm 0x1 rank 0 nranks 4 cudaDev 0 busId 60 - Init COMPLETE") == 1);
    CHECK(
        kind("ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2 color "
             "1 key 0- Init START") == 1);
    CHECK(kind("comm 0x1 rank 0 nranks 4 cudaDev 0 busId 60 - Destroy COMPLETE") == 1);
    CHECK(kind("comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0") == 2);
    CHECK(kind("Channel 01 : 7[d0000] -> 2[4a000] [send] via NET/IB/3/GDRDMA") == 3);
    CHECK(kind("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.2<0>") == 4);
    CHECK(kind("NCCL_NVLS_ENABLE set by environment to 0.") == 5);
    CHECK(kind("NCCL version 2.28.9+cuda13.0") == 6);
    CHECK(kind("transport/net_ib.cc:667 -> 2 [Proxy Service]") == 8);
    CHECK(kind("24 coll channels, 24 collnet channels, 0 nvls channels") == 9);
    CHECK(kind("Rank 3 has color with NCCL_SPLIT_NOCOLOR, not creating a new communicator") == 10);
    CHECK(kind("Ring 00 : 3 -> 0 -> 1") == 0);
    CHECK(info("Ring 00 : 3 -> 0 -> 1").counted(Counter::structure_skipped) == 1);
    CHECK(info("A sentence of no known kind").unknown_samples.size() == 1);
}

void reads_warnings_and_bare_versions() {
    const Result result = scan(
        "n:1:2 [0] transport/net_ib.cc:667 (ncclIbInit) NCCL WARN Call to open failed\n"
        "n:1:2 [0] [FATAL ERROR]: no device\n"
        "0: NCCL version 2.18.5+cuda12.2\n"
        "Hostname     : somebody\n"
        "RCCL version : 2.22.3-HEAD:271856d\n"
        "Hostname     : node1\n");
    const std::vector<std::string>& text = result.messages.text;
    CHECK(text.size() == 5);
    CHECK(text.at(0) == "transport/net_ib.cc:667 (ncclIbInit) NCCL WARN Call to open failed");
    CHECK(text.at(1) == "[FATAL ERROR]: no device");
    CHECK(text.at(2) == "NCCL version 2.18.5+cuda12.2");
    CHECK(text.at(4) == "Hostname     : node1");
    CHECK(result.processes.size() == 1);
    CHECK(result.messages.process[2] == NONE);
    CHECK(result.counted(Counter::foreign) == 1);
}

void is_the_same_for_any_pieces() {
    const std::string text = "0: " + guide + std::string(7, 'x') + "\n\n" + guide + "\x1b[0m" +
                             guide + "RCCL version : 2\nHIP version  : 6\n" + guide.substr(0, 90);
    const std::string expected = logscan::digest(scan(text));
    for (std::size_t piece = 1; piece < 40; ++piece) {
        Scanner scanner;
        for (std::size_t at = 0; at < text.size(); at += piece) {
            scanner.feed(std::string_view(text).substr(at, piece));
        }
        CHECK(logscan::digest(scanner.finish()) == expected);
    }
}

std::string call(const std::string& prefix, const std::string& ranks) {
    return prefix +
           ":1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 4 "
           "datatype 7 op 0 root 0 comm 0x9" +
           ranks + "\n";
}

// A line that came before is known by its text. With blanks behind it the text is another one.
void reads_known_lines_as_others() {
    const std::string lines[] = {
        call("n", " [nranks=4] stream 0x2"),
        call("n", " [nranks=8] stream 0x2"),
        call("n", " [nranks=4] stream 0x2 task 0 globalrank 1"),
        call("n", " [nranks=4] stream 0x2 task 0 globalrank 2"),
        call("n", " [nranks=4]"),
        call("other", " [nranks=4] stream 0x2"),
        "n:1:1 [0] NCCL CALL ncclAllReduce(1,1,4,7,0,0,0x9,0x2)\n",
    };
    for (const std::string& first : lines) {
        for (const std::string& second : lines) {
            for (const std::string& third : lines) {
                std::string known;
                std::string fresh;
                std::size_t number = 0;
                for (const std::string* line : {&first, &second, &third, &second, &first, &third}) {
                    known += *line;
                    fresh += line->substr(0, line->size() - 1) + std::string(++number, ' ') + "\n";
                }
                const auto rows = [](const Result& found) {
                    std::string text;
                    logscan::Calls::columns([&](const char*, auto column) {
                        const auto& values = found.calls.*column;
                        for (std::size_t i = 0; i < values.size(); ++i) {
                            text += std::to_string(values[i]) + ' ';
                        }
                    });
                    return text;
                };
                CHECK(rows(scan(known)) == rows(scan(fresh)));
                CHECK(scan(known).comms.ptr.size() == scan(fresh).comms.ptr.size());
            }
        }
    }
}

void renames_hosts_that_a_row_was_glued_to() {
    // NCCL 2.12 and nccl-tests in one pipe: the first line of process 7 stands behind half a row.
    const std::string row = "          64            16     float     sum";
    const std::string first = row + call("node-2", " [nranks=2] stream 0x1");
    const std::string plain = call("node-2", " [nranks=2] stream 0x2");
    const Result result = scan(first + plain);
    CHECK(result.processes.size() == 1);
    CHECK(result.processes[0].host == "node-2");
    CHECK(scan(plain + first).processes.size() == 1);
    CHECK(scan(first + call("node-3", " [nranks=2] stream 0x2")).processes.size() == 2);
    CHECK(scan("see " + first + plain).processes.size() == 2);
}

void bounds_a_line() {
    const std::string before(Scanner::line_limit, 'x');
    Scanner scanner;
    scanner.feed(before);
    scanner.feed(before + guide);
    scanner.feed(guide);
    const Result result = scanner.finish();
    CHECK(result.counted(Counter::overlong) == 1);
    CHECK(result.calls.line.size() == 1);
    CHECK(result.calls.line[0] == 2);
}

}  // namespace

int main() {
    rejects_what_is_no_call();
    keeps_a_cut_call_from_nranks_on();
    reads_the_guide();
    reads_hexadecimal_op_count();
    reads_other_dialects();
    finds_slots();
    tells_generations_apart();
    finds_records_behind_any_prefix();
    splits_records_of_one_line();
    reads_the_call_trace();
    reads_kernel_traces();
    rejects_torn_kernel_traces();
    reads_tuning();
    sorts_messages();
    reads_warnings_and_bare_versions();
    is_the_same_for_any_pieces();
    reads_known_lines_as_others();
    renames_hosts_that_a_row_was_glued_to();
    bounds_a_line();
    return check::result();
}
