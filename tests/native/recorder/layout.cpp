// Holds our declarations against the library's own header: compiled, never run, with -I of its
// src/include/plugin and a folder that has what that header includes.
// tests/test_recorder_layout.py.
#include <cstddef>
#include <cstdint>

#include "nccl_profiler.h"
#include "plugin_api.h"

namespace ours = collscope::recorder;

#define SAME(version, mine, member, theirs)                            \
    static_assert(offsetof(ours::DescriptorV##version, mine.member) == \
                  offsetof(ncclProfilerEventDescr_v##version##_t, theirs))
#define SAME_WHOLE(version)                                                                 \
    static_assert(offsetof(ours::DescriptorV##version, parent) ==                           \
                  offsetof(ncclProfilerEventDescr_v##version##_t, parentObj));              \
    static_assert(offsetof(ours::DescriptorV##version, rank) ==                             \
                  offsetof(ncclProfilerEventDescr_v##version##_t, rank));                   \
    static_assert(sizeof(ours::DescriptorV##version) <=                                     \
                  sizeof(ncclProfilerEventDescr_v##version##_t));                           \
    static_assert(sizeof(ours::ProfilerV##version) == sizeof(ncclProfiler_v##version##_t)); \
    static_assert(offsetof(ours::ProfilerV##version, record_state) ==                       \
                  offsetof(ncclProfiler_v##version##_t, recordEventState));                 \
    SAME(version, coll, seq, coll.seqNumber);                                               \
    SAME(version, coll, func, coll.func);                                                   \
    SAME(version, coll, send, coll.sendBuff);                                               \
    SAME(version, coll, recv, coll.recvBuff);                                               \
    SAME(version, coll, count, coll.count);                                                 \
    SAME(version, coll, root, coll.root);                                                   \
    SAME(version, coll, datatype, coll.datatype);                                           \
    SAME(version, coll, warps, coll.nWarps);                                                \
    SAME(version, coll, algorithm, coll.algo);                                              \
    SAME(version, coll, protocol, coll.proto);                                              \
    SAME(version, p2p, func, p2p.func);                                                     \
    SAME(version, p2p, buffer, p2p.buff);                                                   \
    SAME(version, p2p, count, p2p.count);                                                   \
    SAME(version, p2p, datatype, p2p.datatype);                                             \
    SAME(version, p2p, peer, p2p.peer);                                                     \
    SAME(version, proxy_op, pid, proxyOp.pid);                                              \
    SAME(version, proxy_op, channel, proxyOp.channelId);                                    \
    SAME(version, proxy_op, peer, proxyOp.peer);                                            \
    SAME(version, proxy_op, steps, proxyOp.nSteps);                                         \
    SAME(version, proxy_op, chunk_bytes, proxyOp.chunkSize);                                \
    SAME(version, proxy_op, is_send, proxyOp.isSend);                                       \
    SAME(version, kernel, channel, kernelCh.channelId)
#define SAME_API(version)                                     \
    SAME(version, coll_api, func, collApi.func);              \
    SAME(version, coll_api, count, collApi.count);            \
    SAME(version, coll_api, datatype, collApi.datatype);      \
    SAME(version, coll_api, root, collApi.root);              \
    SAME(version, coll_api, stream, collApi.stream);          \
    SAME(version, coll_api, captured, collApi.graphCaptured); \
    SAME(version, p2p_api, func, p2pApi.func);                \
    SAME(version, p2p_api, count, p2pApi.count);              \
    SAME(version, p2p_api, datatype, p2pApi.datatype);        \
    SAME(version, p2p_api, stream, p2pApi.stream);            \
    SAME(version, p2p_api, captured, p2pApi.graphCaptured);   \
    SAME(version, coll, group, coll.parentGroup);             \
    SAME(version, p2p, group, p2p.parentGroup);               \
    SAME(version, p2p, channels, p2p.nChannels);              \
    SAME(version, coll, channels, coll.nChannels);            \
    SAME(version, kernel, timer, kernelCh.pTimer)
#define SAME_CE(version)                                        \
    SAME(version, ce_coll, seq, ceColl.seqNumber);              \
    SAME(version, ce_coll, func, ceColl.func);                  \
    SAME(version, ce_coll, count, ceColl.count);                \
    SAME(version, ce_coll, root, ceColl.root);                  \
    SAME(version, ce_coll, datatype, ceColl.datatype);          \
    SAME(version, ce_coll, sync_strategy, ceColl.syncStrategy); \
    SAME(version, ce_coll, ce_seq, ceColl.ceSeqNum);            \
    SAME(version, ce_coll, stream, ceColl.stream)

#if NEWEST >= 3
SAME_WHOLE(3);
SAME(3, coll, comm_name, coll.name);
SAME(3, coll, comm_hash, coll.commHash);
SAME(3, p2p, comm_hash, p2p.commHash);
static_assert(int(ours::group_event) == ncclProfileGroup &&
              int(ours::coll_event) == ncclProfileColl);
static_assert(int(ours::p2p_event) == ncclProfileP2p);
static_assert(int(ours::proxy_op_event) == ncclProfileProxyOp);
static_assert(int(ours::kernel_event) == ncclProfileKernelCh);
#endif
#if NEWEST >= 4
SAME_WHOLE(4);
SAME(4, coll, channels, coll.nChannels);
SAME(4, kernel, timer, kernelCh.pTimer);
static_assert(offsetof(ncclProfilerEventStateArgs_v4_t, kernelCh.pTimer) == 0);
static_assert(int(ours::kernel_stop) == ncclProfilerKernelChStop);
#endif
#if NEWEST >= 5
SAME_WHOLE(5);
SAME_API(5);
static_assert(int(ours::group_api_event) == ncclProfileGroupApi);
static_assert(int(ours::coll_api_event) == ncclProfileCollApi);
static_assert(int(ours::p2p_api_event) == ncclProfileP2pApi);
#endif
#if NEWEST >= 6
SAME_WHOLE(6);
SAME_API(6);
SAME_CE(6);
static_assert(int(ours::ce_coll_event) == ncclProfileCeColl);
#endif
#if NEWEST >= 7
SAME_WHOLE(7);
SAME_API(7);
SAME_CE(7);
SAME(7, coll, variant, coll.kernelVariant);
SAME(7, coll, symmetric, coll.isSymColl);
SAME(7, coll, tag, coll.userTag);
SAME(7, coll_api, tag, collApi.userTag);
SAME(7, p2p_api, tag, p2pApi.userTag);
SAME(7, p2p, tag, p2p.userTag);
SAME(7, ce_coll, tag, ceColl.userTag);
SAME(7, phase, channel, kernelPhase.channelId);
SAME(7, phase, phase, kernelPhase.phaseId);
SAME(7, phase, timer, kernelPhase.pTimer);
#endif
