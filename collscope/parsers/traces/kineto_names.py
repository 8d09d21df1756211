"""Names that PyTorch gives to collectives and element types, against ours."""

from __future__ import annotations

import re

from collscope.model import Datatype, Op

# "Collective name" of record_param_comms and names of the "nccl:" annotations, lower case. Source:
# RECORD_PARAM_COMMS and profilingTitle arguments of torch/csrc/distributed/c10d/
# ProcessGroupNCCL.cpp, releases 1.11 to 2.9; functional names of torch/distributed; opToString of
# torchcomms.
_OPS = {
    Op.ALL_REDUCE: "allreduce all_reduce allreduce_coalesced all_reduce_coalesced"
    " allreduce_sparse all_reduce_sparse all_reduce_barrier",
    Op.ALL_GATHER: "allgather all_gather _allgather_base _all_gather_base all_gather_into_tensor"
    " allgather_into_tensor allgather_into_tensor_coalesced all_gather_into_tensor_coalesced"
    " allgather_coalesced all_gather_coalesced all_gather_single",
    Op.REDUCE_SCATTER: "reduce_scatter reducescatter _reduce_scatter_base reduce_scatter_tensor"
    " reduce_scatter_tensor_coalesced reduce_scatter_coalesced reduce_scatter_single",
    Op.BROADCAST: "broadcast _broadcast_oop broadcast_oop broadcast_coalesced",
    Op.REDUCE: "reduce _reduce_oop reduce_oop",
    Op.ALL_TO_ALL: "all_to_all alltoall alltoall_base all_to_all_single all_to_all_base",
    Op.ALL_TO_ALLV: "all_to_allv alltoallv all_to_all_v_single",
    Op.ALL_GATHERV: "all_gather_v",
    Op.GATHER: "gather gather_single",
    Op.SCATTER: "scatter",
    Op.SEND: "send isend",
    Op.RECV: "recv irecv recv_anysource recvanysource",
    Op.BARRIER: "barrier",
}
_BY_NAME = {name: op for op, names in _OPS.items() for name in names.split()}

# Element types as c10/core/ScalarType.h prints them, lower case: our type and how many of its
# elements one of theirs is. int8 and bool travel as bytes (getNcclDataType of NCCLUtils.cpp).
_DATATYPES: dict[str, tuple[Datatype, int]] = {
    "char": (Datatype.INT8, 1),
    "byte": (Datatype.UINT8, 1),
    "bool": (Datatype.UINT8, 1),
    "int": (Datatype.INT32, 1),
    "uint32": (Datatype.UINT32, 1),
    "long": (Datatype.INT64, 1),
    "uint64": (Datatype.UINT64, 1),
    "half": (Datatype.FLOAT16, 1),
    "float": (Datatype.FLOAT32, 1),
    "double": (Datatype.FLOAT64, 1),
    "bfloat16": (Datatype.BFLOAT16, 1),
    "float8_e4m3fn": (Datatype.FLOAT8E4M3, 1),
    "float8_e4m3fnuz": (Datatype.FLOAT8E4M3, 1),
    "float8_e5m2": (Datatype.FLOAT8E5M2, 1),
    "float8_e5m2fnuz": (Datatype.FLOAT8E5M2, 1),
    "complexhalf": (Datatype.FLOAT16, 2),
    "complexfloat": (Datatype.FLOAT32, 2),
    "complexdouble": (Datatype.FLOAT64, 2),
}
# "Input type" prints C++ types instead: caffe2::TypeMeta::name().
_CPP_TYPES = {
    "signed char": "char",
    "unsigned char": "byte",
    "c10::half": "half",
    "c10::bfloat16": "bfloat16",
    "c10::float8_e4m3fn": "float8_e4m3fn",
    "c10::float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complexfloat",
    "c10::complex<double>": "complexdouble",
}
# nccl:send 0->1, nccl:recv 1<-0, nccl2:all_reduce, ncclx:all_gather
_PEER = re.compile(r"(?:nccl[2x]?|rcclx?|xccl):|\s+\d+\s*(?:->|<-)\s*\d+")

# Those with _copy take what they reduce as another argument.
_SYMMETRIC = re.compile(
    r"symm_mem::(?:one_shot_all_reduce|two_shot_all_reduce_|two_shot_all_reduce"
    r"|multimem_all_reduce_|multimem_one_shot_all_reduce)(?:_out)?"
)


def parse_collective(name: str) -> Op:
    """Operation of a PyTorch collective's name, with or without ``nccl:``.

    >>> parse_collective("_allgather_base"), parse_collective("nccl:send 0->1")
    (<Op.ALL_GATHER: 'AllGather'>, <Op.SEND: 'Send'>)
    """
    return _BY_NAME.get(_PEER.sub("", name).strip().lower(), Op.UNKNOWN)


def symmetric_operation(name: str) -> Op | None:
    """Operation of an operator of symmetric memory whose first argument is what it reduces.

    source  pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.cpp

    >>> symmetric_operation("symm_mem::two_shot_all_reduce_")
    <Op.ALL_REDUCE: 'AllReduce'>
    """
    return Op.ALL_REDUCE if _SYMMETRIC.fullmatch(name) else None


def parse_dtype(name: str) -> tuple[Datatype, int]:
    """Our type for PyTorch's, and how many elements of it one of theirs is.

    >>> parse_dtype("ComplexFloat"), parse_dtype("Short")
    ((<Datatype.FLOAT32: 'Float32'>, 2), (<Datatype.UNKNOWN: 'Unknown'>, 1))
    """
    lower = name.lower()
    return _DATATYPES.get(_CPP_TYPES.get(lower, lower), (Datatype.UNKNOWN, 1))


def described(text: object) -> str | None:
    """Description of a group; None for that of groups which the program gave none.

    source  _new_process_group_helper of PyTorch's distributed_c10d.py
    """
    return text if isinstance(text, str) and text not in ("", "undefined") else None
