"""What a GPU kernel's name shows about its collective: family and hints.

Hints only: NCCL starts one specialised kernel for many functions, and RCCL a single generic one,
so algorithm and protocol of the name need not be those that ran. None: the name does not show it.
Names that follow a grammar are read here: generate.py, collectives.h, common.h of NVIDIA/nccl and
ROCm/rccl (2.4 to 2.30), msccl_kernel_impl.h of ROCm/rccl, src/algorithms/dda of RCCL in
ROCm/rocm-systems. All others are in kernel_names.tsv, each with its source.

A collective that only copy engines carry out has no kernel, so no name shows it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Datatype, Op, parse_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


OTHER_LIBRARIES = frozenset({"custom"})
"""Families whose kernels neither NCCL's or RCCL's log nor torch.distributed records."""


class KernelName(msgspec.Struct, frozen=True):
    """A collective kernel's family and the other facts in its name."""

    family: str  # nccl, rccl, msccl, mscclpp, custom, pytorch
    op_hint: str | None = None  # value of `model.Op`
    algorithm_hint: str | None = None  # upper case: RING, TREE, NVLS, COLLNET_DIRECT, DDA_FLAT, …
    protocol_hint: str | None = None  # LL, LL128, SIMPLE
    redop_hint: str | None = None  # device spelling: Sum, Prod, MinMax, PreMulSum, …
    datatype_hint: str | None = None  # label of `model.Datatype`
    fused: bool = False  # it computes as well: how much of its time is the collective is not known


_DATATYPES = {name: d.value for d in Datatype for name in d.kernel_names}
_TYPE = "|".join(sorted(_DATATYPES, key=len, reverse=True))
_REDOPS = {
    name.lower(): name
    for name in ("PreMulSum", "SumPostDiv", "MinMax", "Sum", "Prod", "Min", "Max", "Avg")
}
_REDOP = "|".join(_REDOPS)
_OP = "|".join(op.kernel for op in Op if op.kernel)

# ncclDevKernel_AllReduce_Sum_f32_RING_LL            NCCL 2.19 and later
# ncclKernel_AllReduce_RING_LL_Sum___nv_bfloat16     NCCL 2.7 to 2.18, RCCL to 2.17
# ncclDevFunc_AllReduce_RING_LL_Sum_double           RCCL 2.18 and later, kernel trace only
# mscclKernel_Sum_half_Simple_false                  RCCL with MSCCL
_PREFIXED = re.compile(r"(nccl(?:DevKernel|Kernel|DevFunc)|mscclKernel)[A-Za-z0-9]*_(\w*)")
_TOKEN = re.compile(
    r"_(?:(?P<algorithm>COLLNET_DIRECT|COLLNET_CHAIN|COLLNET|NVLS_TREE|NVLS|RING|TREE|PAT)"
    r"|(?P<protocol>LL128|LL|SIMPLE)"
    rf"|(?P<redop>{_REDOP})|(?P<datatype>{_TYPE}))(?=_|$)",
    re.IGNORECASE,
)
# ncclAllReduceRingLLKernel_sum_f32                  NCCL 2.4 to 2.6
_EARLY = re.compile(
    r"nccl(?P<op>[A-Z][A-Za-z]+?)(?P<algorithm>Ring|Tree|CollNet)?(?P<protocol>LL128|LL)?"
    rf"Kernel_(?P<redop>[a-z]+)_(?P<datatype>{_TYPE})"
)
# ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16   NCCL 2.28; 2.27 has ncclSymDevKernel
_SYMMETRIC = re.compile(
    r"ncclSymk?(?:Dev)?Kernel_(?P<op>[A-Za-z]+)(?:_(?P<algorithm>\w+?))??"
    rf"(?:_(?P<redop>{_REDOP})_(?P<datatype>{_TYPE}))?",
    re.IGNORECASE,
)
# AllReduceRingLLSum_f32, OneRankReducePreMulSum_f32 RCCL before ROCm 6.1, kernel trace only
_CAMEL = re.compile(
    rf"(?P<op>{_OP})"
    r"(?P<algorithm>Ring|Tree|CollNet(?:Direct|Chain)?)(?P<protocol>LL128|LL|Simple)"
    rf"(?P<redop>{_REDOP})_(?P<datatype>{_TYPE})"
    rf"|OneRankReduce(?P<redop1>{_REDOP})_(?P<datatype1>{_TYPE})",
    re.IGNORECASE,
)
# dda::common::ddaAllReduceFlatIpc<float, 8, false>  RCCL 2.28 and later (ROCm 7.13): direct
# dda::common::ddaAllGatherFabricLL128<signed char, 4> data access. At first in meta::comms, the
# namespace of Meta's own library that it came from.
_DDA = re.compile(
    r"(?:\w+::)*dda(?P<op>AllReduce|AllGather|ReduceScatter|AllToAll)"
    r"(?P<algorithm>Flat|Tree|TwoShot|Rhd)?(?:Ipc|Fabric)?(?P<protocol>LL128|LL)?\w*"
)
# record_param_comms, c10d::allreduce_: operators that PyTorch's tables list in the place of kernels
_TORCH = re.compile(r"record_param_comms|_?c10d(?:_functional)?::\w+")
# python.all_gather_into_tensor: a function of torch.distributed as Cray perftools names it
_PERFTOOLS = re.compile(r"python\._?(?:all_reduce|all_gather|reduce_scatter|all_to_all)(?:_\w+)?")
_LOWER_OPS = tuple((re.compile(op.other_kernels), op) for op in Op if op.other_kernels)
_CAMEL_ALGORITHMS = {"COLLNETDIRECT": "COLLNET_DIRECT", "COLLNETCHAIN": "COLLNET_CHAIN"}

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
# myComm_kernel, custom_all_reduce; not common, command, commit, comment
_COMM = re.compile(
    r"(?<![A-Za-z])comm(?![a-z])|Comm(?![a-z])"
    r"|(?i:ccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
)
_TAIL = re.compile(r"[(<]| \[|\.kd\b")
_MANGLED = re.compile(r"_Z(N?)K?(?=\d)")
_COMPONENT = re.compile(r"(\d{1,4})")
# ncclDevKerne: viewers and converters cut names to a number of characters.
_BEGINNINGS = (
    "ncclDevKernel", "ncclKernel", "ncclDevFunc", "ncclSymkDevKernel", "ncclSymDevKernel",
    "ncclSymKernel", "mscclKernel",
)  # fmt: skip
_LEAST_OF_NAME = len("nccl")
_AMD_ONLY = re.compile(r"\.kd\b|rccl_|hip_b")
_DECOY = "__amd_rocclr_"
MARKERS = frozenset(("Marker", "InternalMarker"))
"""What ROCclr names the packets that events wait for: they execute nothing. Source:
getOclCommandKindString of ROCm/clr, which roctracer takes the names of operations from."""


def classify(name: str) -> KernelName | None:
    """Family and hints of a device kernel's name, or None when it is not a collective's.

    name  as a profiler prints it: with or without arguments, mangled, with ``.kd`` or
          `` [clone .kd]``, or cut with ``...``

    >>> classify("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    ... # doctest: +NORMALIZE_WHITESPACE
    KernelName(family='nccl', op_hint='AllGather', algorithm_hint='RING', protocol_hint='LL',
               redop_hint=None, datatype_hint=None, fused=False)
    >>> classify("__amd_rocclr_copyBuffer.kd") is None
    True
    """
    given = next((op for pattern, op in _NAMED.get() if pattern.search(name)), None)
    if given is not None:
        return KernelName("custom", op_hint=given)
    if _PERFTOOLS.fullmatch(name):
        return _read_lower("pytorch", name)
    base = _base(name)
    return None if base is None else _read(base, name)


def _read(base: str, name: str) -> KernelName | None:
    """Hints of a qualified function name: by the libraries' grammars, else by the table."""
    for pattern, read in _READERS:
        match = pattern.fullmatch(base)
        if match is not None:
            return read(match, name)
    row = _row(base, name)
    if row is not None:
        return None if row.local else row.read(base)
    if len(base) >= _LEAST_OF_NAME and any(title.startswith(base) for title in _BEGINNINGS):
        return KernelName("msccl" if base.startswith("msccl") else "nccl")
    return None


NamePatterns = tuple[tuple[re.Pattern[str], str], ...]
_NAMED: ContextVar[NamePatterns] = ContextVar("named", default=())


def parse_name_patterns(collectives: Sequence[str]) -> NamePatterns:
    """Patterns and operations of texts of the form "REGEX=Operation".

    raises  ValueError for one of another form
    """
    found = []
    for one in collectives:
        pattern, _, operation = one.rpartition("=")
        op = parse_op(operation.strip())
        if not pattern or op is Op.UNKNOWN:
            raise ValueError(f"'{one}' is not REGEX=Operation")
        try:
            found.append((re.compile(pattern), op.value))
        except re.error as error:
            raise ValueError(f"'{pattern}' is no regular expression ({error})") from None
    return tuple(found)


@contextmanager
def counting_as_collectives(collectives: NamePatterns) -> Iterator[None]:
    """Within it kernels with these names are collectives, whatever else is known of them.

    The expression is searched for in the whole name.

    >>> with counting_as_collectives(parse_name_patterns(["my_exchange=AllToAll"])):
    ...     classify("my_exchange_kernel<4>").op_hint
    'AllToAll'
    """
    token = _NAMED.set(collectives)
    try:
        yield
    finally:
        _NAMED.reset(token)


def current_name_patterns() -> NamePatterns:
    """Names that `counting_as_collectives` has put in force."""
    return _NAMED.get()


def is_decoy(name: str) -> bool:
    """True for AMD's runtime kernels (``__amd_rocclr_copyBuffer``): no collective, despite 'ccl'.

    >>> is_decoy("__amd_rocclr_fillBufferAligned.kd")
    True
    """
    return name.startswith(_DECOY)


def looks_related(name: str) -> bool:
    """True for a name that contains 'ccl' and that `classify` does not know: worth listing.

    AMD's runtime kernels are left out; count them with `is_decoy`. So are kernels that are known to
    stay on their own GPU.
    """
    return "ccl" in name.lower() and not is_decoy(name) and not _known(name)


def may_communicate(name: str) -> bool:
    """True for a name with a word of communication that `classify` does not know.

    >>> may_communicate("myComm_kernel(Args)"), may_communicate("common_gemm")
    (True, False)
    """
    return _COMM.search(name) is not None and not _known(name) and not is_decoy(name)


def name_pattern(name: str) -> str:
    """A regular expression for `--collective` that finds a kernel by its function's name.

    >>> name_pattern("void ns::my_exchange<4>(float*)"), name_pattern("my.kernel<4>")
    ('ns::my_exchange', 'my\\\\.kernel<4>')
    """
    return re.escape(_base(name) or name)


def _known(name: str) -> bool:
    """True for a kernel of a collective, and for one that the table knows as local work."""
    if classify(name) is not None:
        return True
    base = _base(name)
    return base is not None and _row(base, name) is not None


class _Row(msgspec.Struct, frozen=True):
    """A line of kernel_names.tsv; its head describes the columns."""

    pattern: re.Pattern[str]
    operation: str
    part: str
    family: str
    with_arguments: bool  # the pattern also reads the template's arguments

    @property
    def local(self) -> bool:
        return self.part == "local"

    def read(self, base: str) -> KernelName:
        if self.operation == "words":
            return _read_lower(self.family, base)
        op = None if self.operation == "-" else Op(self.operation).value
        return KernelName(self.family, op_hint=op, fused=self.part == "fused")


@lru_cache(maxsize=1)
def _table() -> tuple[_Row, ...]:
    """Lines of kernel_names.tsv."""
    text = resources.files("collscope").joinpath("kernel_names.tsv").read_text("utf-8")
    lines = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        _Row(re.compile(rf"(?:\w+::)*(?:{pattern})"), op, part, family, "<" in pattern)
        for pattern, op, part, family, _source in lines
    )


def _row(base: str, name: str) -> _Row | None:
    """First line of the table whose pattern is the name's."""
    full = base + _template(name)
    return next(
        (row for row in _table() if row.pattern.fullmatch(full if row.with_arguments else base)),
        None,
    )


def _template(name: str) -> str:
    """Arguments of a function's template, with their brackets; empty without a template."""
    text = name.replace("(anonymous namespace)::", "")
    start = text.find("<")
    if start < 0 or "(" in text[:start]:
        return ""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "<") - (text[place] == ">")
        if not depth:
            return text[start : place + 1]
    return ""


def _base(name: str) -> str | None:
    """Qualified function name without return type, arguments and suffixes; None: not a function."""
    text = name.strip().removeprefix("void ").replace("(anonymous namespace)::", "")
    mangled = _MANGLED.match(text)
    if mangled is not None:
        return _demangled(text[mangled.end() :], nested=bool(mangled[1]))
    text = _TAIL.split(text, maxsplit=1)[0].replace("…", "...")
    if text.endswith("..."):
        text = text.rstrip(".")
        # A cut name's last word may be a piece of a longer one: LL of LL128.
        text = text[: text.rfind("_") + 1] or text
    return text if _IDENTIFIER.fullmatch(text) else None


def _demangled(text: str, *, nested: bool) -> str | None:
    """Name behind an Itanium-mangled prefix: one component, or all of a nested name."""
    parts: list[str] = []
    while (length := _COMPONENT.match(text)) and (nested or not parts):
        start = length.end()
        parts.append(text[start : start + int(length[1])])
        text = text[start + int(length[1]) :]
    base = "::".join(parts)
    return base if _IDENTIFIER.fullmatch(base) else None


def _op(word: str) -> str | None:
    # "AllToAllPivot" is one operation to the library; "Generic" and "OneRankReduce" are none.
    op = parse_op(word)
    return None if op is Op.UNKNOWN else op.value


def _hints(family: str, op: str | None, groups: dict[str, str | None]) -> KernelName:
    words = {kind: (word or "").strip("_") for kind, word in groups.items()}
    algorithm = words.get("algorithm", "").upper()
    # Their "Sum" and "int8_t" are placeholders: the kernel moves bytes.
    placeholder = op is not None and not Op(op).reduces
    return KernelName(
        family,
        op_hint=op,
        algorithm_hint=_CAMEL_ALGORITHMS.get(algorithm, algorithm) or None,
        protocol_hint=words.get("protocol", "").upper() or None,
        redop_hint=None if placeholder else _REDOPS.get(words.get("redop", "").lower()),
        datatype_hint=None if placeholder else _DATATYPES.get(groups.get("datatype") or ""),
    )


def _read_prefixed(match: re.Match[str], name: str) -> KernelName:
    prefix, rest = match[1], match[2]
    if prefix == "mscclKernel":
        return _hints("msccl", None, _tokens("_" + rest))
    word = rest.partition("_")[0]
    if word == "Generic":
        # NCCL has a Generic kernel as well, for functions without their own; its mask is a number.
        family = "nccl" if "(ncclDevComm*, unsigned long" in name else "rccl"
        return KernelName(family)
    family = "rccl" if prefix == "ncclDevFunc" or _AMD_ONLY.search(name) else "nccl"
    if word == "SendRecv":
        # Its "RING_SIMPLE_Sum_int8_t" only names the table's first entry.
        return KernelName(family, op_hint=Op.SEND_RECV.value)
    return _hints(family, _op(word), _tokens(rest))


def _tokens(text: str) -> dict[str, str | None]:
    """First algorithm, protocol, redop and datatype among the words; their order differs."""
    found: dict[str, str | None] = {}
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        found.setdefault(kind, match[kind])
    return found


def _read_camel(match: re.Match[str], _name: str) -> KernelName:
    groups = match.groupdict()
    groups["redop"] = groups["redop"] or groups["redop1"]
    groups["datatype"] = groups["datatype"] or groups["datatype1"]
    return _hints("rccl", _op(groups["op"] or ""), groups)


def _read_dda(match: re.Match[str], _name: str) -> KernelName:
    form = match["algorithm"]
    algorithm = f"DDA_{form}" if form else "DDA"
    return _hints("rccl", _op(match["op"]), match.groupdict() | {"algorithm": algorithm})


def _read_nccl(match: re.Match[str], _name: str) -> KernelName:
    groups = match.groupdict()
    return _hints("nccl", _op(groups["op"] or ""), groups)


def _read_lower(family: str, text: str) -> KernelName:
    lower = text.lower()
    op = next((op.value for pattern, op in _LOWER_OPS if pattern.search(lower)), None)
    return KernelName(family, op_hint=op)


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], KernelName]], ...] = (
    (_PREFIXED, _read_prefixed),
    (_EARLY, _read_nccl),
    (_SYMMETRIC, _read_nccl),
    (_CAMEL, _read_camel),
    (_DDA, _read_dda),
    (_TORCH, lambda match, _: _read_lower("pytorch", match[0])),
)
