"""Kernel names: every pattern of each library's releases, and names that only look alike."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT

from collscope.kernel_names import (
    KernelName,
    classify,
    is_decoy,
    looks_related,
    may_communicate,
)

# name: family, operation, algorithm, protocol, redop, datatype; "-" where the name does not tell
NAMES = {
    # NCCL 2.4 to 2.6
    "ncclAllReduceRingLLKernel_sum_f32": "nccl AllReduce RING LL Sum Float32",
    "ncclBroadcastTreeLL128Kernel_copy_i8(ncclColl)": "nccl Broadcast TREE LL128 - -",
    # NCCL 2.7 to 2.18, RCCL to 2.17
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": (
        "nccl AllReduce RING LL Sum Float32"
    ),
    "ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16(ncclD...": (
        "nccl AllReduce TREE LL Sum Bfloat16"
    ),
    "ncclKernel_ReduceScatter_RING_LL_Max_uint8_t(ncclWorkElem)": (
        "nccl ReduceScatter RING LL Max Uint8"
    ),
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": (
        "nccl SendRecv - - - -"
    ),
    "ncclKernel_AllReduce_COLLNET_DIRECT_LL_PreMulSum_half [clone .kd]": (
        "rccl AllReduce COLLNET_DIRECT LL PreMulSum Float16"
    ),
    "ncclKernel_AllReduce_RING_LL_Sum_rccl_bfloat16(ncclDevComm*)": (
        "rccl AllReduce RING LL Sum Bfloat16"
    ),
    # NCCL 2.19 and later
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": (
        "nccl AllReduce RING LL Sum Float32"
    ),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)": (
        "nccl AllReduce RING LL Sum Bfloat16"
    ),
    "ncclDevKernel_AllReduce_MinMax_i64_NVLS_TREE_SIMPLE(ncclDevKernelArgsStorage<4096ul>)": (
        "nccl AllReduce NVLS_TREE SIMPLE MinMax Int64"
    ),
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "nccl AllGather RING LL - -"
    ),
    "ncclDevKernel_ReduceScatter_SumPostDiv_u32_PAT_SIMPLE": (
        "nccl ReduceScatter PAT SIMPLE SumPostDiv Uint32"
    ),
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "nccl SendRecv - - - -",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL1...": "nccl AllReduce RING - Sum Float32",
    "_Z39ncclDevKernel_AllReduce_Sum_f64_RING_LLP11ncclDevCommmP8ncclWork": (
        "nccl AllReduce RING LL Sum Float64"
    ),
    # NCCL 2.27, 2.28
    "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)": "nccl AllGather LL - - -",
    "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymkDevWorkArgs4K)": (
        "nccl AllReduce RSXLD_AGXST - Sum Bfloat16"
    ),
    # RCCL 2.18 and later: one kernel for all
    "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)": "rccl - - - - -",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>) [clone .kd]": "rccl - - - - -",
    "ncclDevKernelDebug_Generic_2(ncclDevKernelArgsStorage<4096ul>)": "rccl - - - - -",
    "_Z23ncclDevKernel_Generic_124ncclDevKernelArgsStorageILm4096EE.kd": "rccl - - - - -",
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)": "nccl - - - - -",
    # RCCL kernel trace
    "ncclDevFunc_AllReduce_RING_LL_Sum_double": "rccl AllReduce RING LL Sum Float64",
    "ncclDevFunc_AllReduce_RING_SIMPLE_Sum_f8e4m3_0_0_4": (
        "rccl AllReduce RING SIMPLE Sum Float8e4m3"
    ),
    "ncclDevFunc_OneRankReduce_PreMulSum_f32": "rccl - - - PreMulSum Float32",
    "AllReduceRingLLSum_f32": "rccl AllReduce RING LL Sum Float32",
    "SendRecvRingSimpleSum_i8": "rccl SendRecv RING SIMPLE - -",
    "AllToAllPivotRingSimpleSum_i8": "rccl AllToAll RING SIMPLE - -",
    "OneRankReducePreMulSum_f32": "rccl - - - PreMulSum Float32",
    # a communicator of one rank
    "void (anonymous namespace)::oneRankReduce<FuncPreMulSum<float> >(void*, void*)": (
        "nccl - - - - -"
    ),
    # MSCCL, MSCCL++
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": (
        "msccl - - SIMPLE Sum Float16"
    ),
    "mscclKernel_MinMax_rccl_bfloat8_LL128_false": "msccl - - LL128 MinMax Float8e5m2",
    "void mscclpp::allreduceAllPairs<__half>(__half*, int)": "mscclpp AllReduce - - - -",
    "void allgatherFullmesh2<false>(void*)": "mscclpp AllGather - - - -",
    "void allreduce7<float>(float*)": "mscclpp AllReduce - - - -",
    # other libraries' collectives
    "void aiter::cross_device_reduce_2stage<__half, 8>(aiter::RankData*)": (
        "custom AllReduce - - - -"
    ),
    "_ZN4vllm25cross_device_reduce_1stageIfLi8EEEvPNS_8RankDataE": "custom AllReduce - - - -",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot<(X)1>(X)": (
        "custom AllReduce - - - - fused"
    ),
    "void quickreduce::allreduce_prototype_twoshot<X>(int)": "custom AllReduce - - - -",
    # RCCL 2.28 and later: direct data access, GIN, what copy engines leave to kernels
    "void dda::common::ddaAllReduceFlatIpc<float, 8, false>(float* const*, float*)": (
        "rccl AllReduce DDA_FLAT - - -"
    ),
    "_ZN4meta5comms19ddaAllReduceTreeIpcIfLi8ELb0EEEvPKPT_S2_mPKS2_iNS0_13IpcGpuBarrierES5_": (
        "rccl AllReduce DDA_TREE - - -"
    ),
    "void dda::common::ddaAllReduceFlatLL<__half, 8>(X) [clone .kd]": (
        "rccl AllReduce DDA_FLAT LL - -"
    ),
    "void dda::common::ddaAllReduceTwoShotLL128<hip_bfloat16, 0>(X)": (
        "rccl AllReduce DDA_TWOSHOT LL128 - -"
    ),
    "void dda::common::ddaAllReduceFlatFabric<float, 4, false>(X)": "rccl AllReduce DDA_FLAT - - -",
    "void dda::common::ddaReduceScatterIpc<float, 8, false>(X)": "rccl ReduceScatter DDA - - -",
    "void dda::common::ddaReduceScatterRhdIpc<float, 8>(X)": "rccl ReduceScatter DDA_RHD - - -",
    "void dda::common::ddaAllGatherIpc<float, 8, false>(X)": "rccl AllGather DDA - - -",
    "void dda::common::ddaAllGatherFabricLL128<signed char, 4>(X)": "rccl AllGather DDA LL128 - -",
    "void dda::common::ddaAllToAllFabricLL<signed char, 0>(X)": "rccl AllToAll DDA LL - -",
    "void gin::sdma::ginAllReduceTwoShotKernel<float>(ncclDevComm, X)": "rccl AllReduce - - - -",
    "void gin::sdma::lsaAllReduceTwoShotKernel<float, 8>(ncclDevComm, X)": (
        "rccl AllReduce - - - -"
    ),
    "void gin::sdma::allReduceLsaOneShotKernel<float>(X)": "rccl AllReduce - - - -",
    "void (anonymous namespace)::directA2aSumKernel<float>(float const*, float*, unsigned long)": (
        "rccl AllReduce - - - -"
    ),
    "void ncclCeLocalReduceKernelVec<float, 0, 4>(float const*, float*, int, unsigned long)": (
        "rccl - - - - -"
    ),
    "ncclCePersistentGatherCopyKernel(unsigned char const*, X)": "rccl - - - - -",
    # NCCL 2.29: symmetric kernels over the network
    "ncclSymkDevKernel_AllGather_GinHier_MCRing(ncclSymkDevWorkArgs4K)": (
        "nccl AllGather GINHIER_MCRING - - -"
    ),
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f8e5m2(ncclSymkDevWorkArgs4K)": (
        "nccl AllReduce AGXLL_R - Sum Float8e5m2"
    ),
    # rocSHMEM, MORI
    "rocshmem::rocshmem_barrier_all_kernel()": "custom - - - - -",
    "rocshmem_alltoallmem_kernel(X)": "custom - - - - -",
    "EpDispatchIntraNodeKernel_bf16": "custom AllToAll - - - -",
    "EpCombineIntraNodeKernel_bf16_nop2p": "custom AllToAll - - - -",
    "void mori::moe::EpCombineInterNodeKernel<hip_bfloat16>(X)": "custom AllToAll - - - -",
    "mori_shmem_barrier_all_block": "custom - - - - -",
    "SdmaReduceScatterKernel_f16": "custom ReduceScatter - - - -",
    "OneShotAllGatherSdmaKernel_u32": "custom AllGather - - - -",
    "OneShotAll2allSdmaAsyncPutKernel_u32": "custom AllToAll - - - -",
    "AllGatherAsyncPutKernel_f32": "custom AllGather - - - -",
    "InterNodeRingAllGatherKernel_u32": "custom AllGather - - - -",
    # functions of the host that Cray perftools lists
    "python.all_gather_into_tensor": "pytorch AllGather - - - -",
    "python.all_to_all_single": "pytorch AllToAll - - - -",
    "void deep_ep::intranode::dispatch<8>(int4*)": "custom AllToAll - - - -",
}


@pytest.mark.parametrize("name", NAMES)
def test_pattern(name: str) -> None:
    family, *hints = NAMES[name].removesuffix(" fused").split()
    told = KernelName(family, *(None if h == "-" else h for h in hints))
    assert classify(name) == msgspec.structs.replace(told, fused=NAMES[name].endswith(" fused"))
    assert not looks_related(name)


def names_of_the_sources() -> list[tuple[str, str]]:
    """Names of kernels in the sources of other libraries, and what each carries out."""
    text = (ROOT / "tests" / "kernel_names.tsv").read_text("utf-8")
    lines = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return [(name, truth) for _repository, _path, truth, name in lines]


@pytest.mark.parametrize(("name", "truth"), names_of_the_sources())
def test_a_name_of_another_librarys_source(name: str, truth: str) -> None:
    found = classify(name)
    if truth == "local":
        assert found is None
        assert not may_communicate(name)
    else:
        assert found is not None
        assert (found.op_hint or "-") + "+" * found.fused == truth


@pytest.mark.parametrize(
    "name",
    [
        "__amd_rocclr_copyBuffer",
        "__amd_rocclr_fillBufferAligned.kd",
        "__amd_rocclr_copyBuffer(void*, void*) [clone .kd]",
    ],
)
def test_runtime_kernels_are_decoys_and_raise_no_alarm(name: str) -> None:
    assert classify(name) is None
    assert is_decoy(name)
    assert not looks_related(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch/cuda/nccl.py(12): ncclDevKernel_AllReduce",
        "vllm/distributed/device_communicators/pynccl.py(120): all_reduce",
        "<built-in method nccl_all_reduce of type object>",
        "nccl:all_reduce",
        "ncclAllReduce",
        "ncclGroupEnd",
    ],
)
def test_host_side_names_are_not_kernels_but_are_listed(name: str) -> None:
    assert classify(name) is None
    assert looks_related(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "()", "gemm<float>(float*)", "copy_kernel", "Reduce", "...", "EpilogueKernel_bf16",
        "void Epoch(float*)", "void lambdaAllReduce()", "originAllReduce", "memory_kernel",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert classify(name) is None
    assert not looks_related(name)


def test_every_ccl_symbol_of_a_profile_is_a_collective_or_a_decoy(corpus: Path) -> None:
    path = corpus / "rocprof" / "tracelens-908_results.json.gz"
    with gzip.open(path) as file:
        symbols = json.load(file)["rocprofiler-sdk-tool"][0]["kernel_symbols"]
    spellings = ("formatted_kernel_name", "kernel_name", "truncated_kernel_name")
    related = {
        symbol[spelling]
        for symbol in symbols
        for spelling in spellings
        if "ccl" in symbol.get(spelling, "").lower()
    }
    assert len(related) > 200
    for name in related:
        assert is_decoy(name) is ("rocclr" in name)
        assert (classify(name) is None) is is_decoy(name)


@given(st.text() | st.sampled_from(sorted(NAMES)).flatmap(lambda n: st.just(n[: len(n) // 2])))
def test_any_text_is_answered(name: str) -> None:
    found = classify(name)
    assert found is None or found.family in {"nccl", "rccl", "msccl", "mscclpp", "custom"}
    assert not (found and looks_related(name))


@pytest.mark.parametrize(
    "name", ["nccl", "ncclDevKerne", "ncclDevKernel", "ncclSymkD", "mscclKern"]
)
def test_a_name_cut_to_a_number_of_characters_is_a_collectives(name: str) -> None:
    found = classify(name)
    assert found is not None
    assert found.op_hint is None


@pytest.mark.parametrize("name", ["ncc", "ncclDevKernels", "msccl_helper"])
def test_a_name_that_begins_otherwise_is_none(name: str) -> None:
    assert classify(name) is None
