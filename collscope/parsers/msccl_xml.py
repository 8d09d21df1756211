"""MSCCL algorithms: the XML that MSCCLang compiles to and MSCCL executors run.

Elements: algo > gpu > tb (thread block) > step. Source of names and rules: the executors' parser,
ROCm/rccl and Azure/msccl-executor-nccl src/misc/msccl/msccl_parser.cc. The file is read in one pass
without a tree; document types are refused, since entities can grow without bound.
"""

from __future__ import annotations

import re
from xml.parsers import expat

import msgspec

from collscope.model import Diagnostic, Op, Severity, parse_op
from collscope.parsers._notes import Notes

MOST_BYTES = 64 << 20
MOST_STEPS = 2_000_000
MOST_RANKS = 4096
_CHUNK = 1 << 16
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_PROTOCOLS = ("LL", "LL128", "Simple")
_PARENT = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_RECEIVES = {"r", "rcs", "rrs", "rrc", "rrcs"}
_LOCAL = {"cpy", "re", "nop"}
_TRANSFERS = _SENDS | _RECEIVES
_KINDS = sorted(_TRANSFERS | _LOCAL)

_HUGE_TEXT = (
    f"The file is larger than {MOST_BYTES >> 20} MiB, or has more than {MOST_STEPS} steps "
    f"or {MOST_RANKS} GPUs: it was not read."
)
_AGAIN = "Compile the algorithm again, or repair the file."
_ONE_OF = "Write one of"
_CUT_TEXT = "The file is cut or not well-formed XML. Compile the algorithm again."
_DOCTYPE_TEXT = "The file declares a document type. Remove it: MSCCLang writes none."
_NOT_TEXT = "The file holds no <algo> element: it is not an MSCCL algorithm."
_OLD_TEXT = (
    "The header lacks attributes that executors since 2023 require. Sizes are assumed unlimited, "
    "and out-of-place the reverse of in-place."
)
_OTHER_TEXT = "Elements that executors ignore were skipped."


class MscclStep(msgspec.Struct, frozen=True):
    """One instruction; offsets and counts are in chunks."""

    kind: str  # s, r, rcs, rrs, rrc, rrcs, re, cpy, nop
    count: int
    depends_on: tuple[int, int] | None  # thread block and step of the same GPU

    @property
    def sends(self) -> bool:
        """True when a message leaves with this step."""
        return self.kind in _SENDS

    @property
    def receives(self) -> bool:
        """True when this step waits for a message."""
        return self.kind in _RECEIVES


class MscclBlock(msgspec.Struct, frozen=True):
    """A thread block: steps in order, at most one peer to send to and one to receive from."""

    block: int
    send_peer: int | None
    receive_peer: int | None
    channel: int
    steps: tuple[MscclStep, ...]


class MscclAlgorithm(msgspec.Struct, frozen=True):
    """An algorithm; `blocks` by rank. A message of `count` chunks carries count·S/chunks bytes."""

    name: str
    op: Op
    nranks: int
    protocol: str  # LL, LL128, Simple
    channels: int
    chunks: int  # nchunksperloop: chunks that the S bytes of a call are cut into
    in_place: bool
    out_of_place: bool
    min_bytes: int
    max_bytes: int | None  # None: no upper end (0 in the file)
    redop: str | None
    blocks: tuple[tuple[MscclBlock, ...], ...]

    @property
    def steps(self) -> int:
        """Steps of all thread blocks of all GPUs."""
        return sum(len(block.steps) for blocks in self.blocks for block in blocks)


class MscclFile(msgspec.Struct, frozen=True):
    """What one file holds; None and a diagnostic of severity error when it cannot be used."""

    algorithm: MscclAlgorithm | None
    diagnostics: tuple[Diagnostic, ...] = ()


class _UnusableError(Exception):
    """Ends the reading: code and sentence of the diagnostic."""


class _Block(msgspec.Struct):
    """A thread block being read."""

    number: int
    send: int
    receive: int
    channel: int
    steps: list[MscclStep] = msgspec.field(default_factory=list)


class _State(msgspec.Struct):
    """Where the reading stands."""

    notes: Notes
    line: int = 1
    header: dict[str, str] | None = None
    open: list[str] = msgspec.field(default_factory=list)
    ranks: dict[int, list[_Block]] = msgspec.field(default_factory=dict)
    blocks: list[_Block] = msgspec.field(default_factory=list)  # of the GPU being read
    steps: int = 0


def parse(content: bytes) -> MscclFile:
    """The algorithm of a file, or what is wrong with it; never raises on content."""
    state = _State(Notes())
    try:
        if len(content) > MOST_BYTES:
            raise _UnusableError("huge", _HUGE_TEXT)
        _feed(content, state)
        algorithm = _algorithm(state)
    except _UnusableError as error:
        code, message = error.args
        state.notes.add(Severity.ERROR, code, message, state.line)
        algorithm = None
    return MscclFile(algorithm, state.notes.diagnostics)


def _feed(content: bytes, state: _State) -> None:
    parser = expat.ParserCreate()

    def begin(name: str, attributes: dict[str, str]) -> None:
        state.line = parser.CurrentLineNumber
        _begin(name, attributes, state)

    def end(_name: str) -> None:
        state.open.pop()

    def refuse(*_what: object) -> None:
        state.line = parser.CurrentLineNumber
        raise _UnusableError("document_type", _DOCTYPE_TEXT)

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    try:
        # In pieces, so that a refusal ends the reading of a large file.
        for start in range(0, len(content), _CHUNK):
            parser.Parse(content[start : start + _CHUNK], False)
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        state.line = parser.CurrentLineNumber
        raise _UnusableError("not_xml", _CUT_TEXT) from error


def _begin(name: str, attributes: dict[str, str], state: _State) -> None:
    parent = state.open[-1] if state.open else None
    state.open.append(name)
    if name not in _PARENT or _PARENT[name] != parent or (name == "algo" and state.header):
        state.notes.add(Severity.NOTICE, "other_element", _OTHER_TEXT, state.line, f"<{name}>")
        state.open[-1] = "?"  # what stands inside is ignored as well
    elif name == "algo":
        # <algo name="…" proto="LL" nchannels="2" nchunksperloop="8" ngpus="4" coll="allreduce" …>
        state.header = attributes
    elif name == "gpu":
        # <gpu id="0" i_chunks="8" o_chunks="0" s_chunks="24">
        _begin_gpu(attributes, state)
    elif name == "tb":
        # <tb id="2" send="1" recv="1" chan="0">
        number, send, receive, channel = (
            _integer(attributes, key) for key in ("id", "send", "recv", "chan")
        )
        state.blocks.append(_Block(number, send, receive, channel))
    else:
        _begin_step(attributes, state)


def _begin_gpu(attributes: dict[str, str], state: _State) -> None:
    rank = _integer(attributes, "id")
    if rank in state.ranks:
        raise _UnusableError("duplicate_gpu", f'<gpu id="{rank}"> appears twice. {_AGAIN}')
    if len(state.ranks) >= MOST_RANKS:
        raise _UnusableError("huge", _HUGE_TEXT)
    state.ranks[rank] = state.blocks = []


def _begin_step(attributes: dict[str, str], state: _State) -> None:
    # <step s="4" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="2" deps="1"
    #  hasdep="0"/>
    state.steps += 1
    if state.steps > MOST_STEPS:
        raise _UnusableError("huge", _HUGE_TEXT)
    kind = attributes.get("type", "")
    if kind not in _TRANSFERS and kind not in _LOCAL:
        text = f'<step type="{kind[:20]}"> is not known. {_ONE_OF} {", ".join(_KINDS)}.'
        raise _UnusableError("unknown_step", text)
    count, block, step = (_integer(attributes, key) for key in ("cnt", "depid", "deps"))
    found = state.blocks[-1]
    if _integer(attributes, "s") != len(found.steps) or count < 0:
        text = f"The <step> elements of a <tb> are not numbered in order. {_AGAIN}"
        raise _UnusableError("bad_step", text)
    found.steps.append(MscclStep(kind, count, None if block < 0 else (block, step)))


def _integer(attributes: dict[str, str], name: str) -> int:
    text = attributes.get(name, "")
    if not _NUMBER.fullmatch(text):
        what = f'Attribute {name}="{text[:20]}" is not a whole number. {_AGAIN}'
        raise _UnusableError("bad_attribute", what)
    return int(text)


def _algorithm(state: _State) -> MscclAlgorithm:
    header = state.header
    if header is None:
        raise _UnusableError("no_algorithm", _NOT_TEXT)
    state.line = 1
    op = parse_op(header.get("coll", ""))
    if op is Op.UNKNOWN:
        text = header.get("coll", "")[:40]
        what = f'<algo coll="{text}"> is not known. Write a collective, such as allreduce.'
        raise _UnusableError("unknown_collective", what)
    protocol = next((p for p in _PROTOCOLS if p == header.get("proto")), None)
    if protocol is None:
        text = header.get("proto", "")[:40]
        what = f'<algo proto="{text}"> is not known. {_ONE_OF} {", ".join(_PROTOCOLS)}.'
        raise _UnusableError("unknown_protocol", what)
    nranks, channels, chunks = (
        _integer(header, key) for key in ("ngpus", "nchannels", "nchunksperloop")
    )
    if chunks < 1:
        text = f'<algo nchunksperloop="{chunks}"> is not 1 or more. {_AGAIN}'
        raise _UnusableError("bad_attribute", text)
    if len(state.ranks) != nranks or not all(0 <= rank < nranks for rank in state.ranks):
        text = f"The <gpu> elements do not have the ids 0 to {nranks - 1} of <algo ngpus>. {_AGAIN}"
        raise _UnusableError("lacks_gpus", text)
    in_place, out_of_place, low, high = _scope(header, state)
    return MscclAlgorithm(
        name=header.get("name", ""), op=op, nranks=nranks, protocol=protocol, channels=channels,
        chunks=chunks, in_place=in_place, out_of_place=out_of_place, min_bytes=low,
        max_bytes=high or None, redop=header.get("redop"),
        blocks=tuple(_blocks(rank, state.ranks[rank], nranks) for rank in range(nranks)),
    )  # fmt: skip


def _scope(header: dict[str, str], state: _State) -> tuple[bool, bool, int, int]:
    """In-place, out-of-place, least and largest bytes."""
    if not {"inplace", "outofplace", "minBytes", "maxBytes"} <= header.keys():
        state.notes.add(Severity.NOTICE, "old_header", _OLD_TEXT, 1)
    in_place = _integer({"inplace": "0"} | header, "inplace") != 0
    reverse = {"outofplace": "0" if in_place else "1", "minBytes": "0", "maxBytes": "0"} | header
    low, high = _integer(reverse, "minBytes"), _integer(reverse, "maxBytes")
    if low < 0 or high < 0:
        raise _UnusableError("bad_attribute", f"<algo> minBytes or maxBytes is negative. {_AGAIN}")
    return in_place, _integer(reverse, "outofplace") != 0, low, high


def _where(rank: int, block: _Block) -> str:
    return f'<gpu id="{rank}">, <tb id="{block.number}">'


def _blocks(rank: int, blocks: list[_Block], nranks: int) -> tuple[MscclBlock, ...]:
    lengths = {block.number: len(block.steps) for block in blocks}
    if len(lengths) != len(blocks):
        text = f'<gpu id="{rank}"> has two <tb> with one id. {_AGAIN}'
        raise _UnusableError("duplicate_block", text)
    for block in blocks:
        for peer in (block.send, block.receive):
            if peer == rank or not -1 <= peer < nranks:
                text = f"{_where(rank, block)}: no such peer: {peer}. {_AGAIN}"
                raise _UnusableError("bad_peer", text)
        for step in block.steps:
            if (step.sends and block.send < 0) or (step.receives and block.receive < 0):
                text = (
                    f"{_where(rank, block)}: a <step> transfers, and the <tb> has no peer for it."
                )
                raise _UnusableError("bad_peer", f"{text} {_AGAIN}")
            if step.depends_on is not None:
                on_block, on_step = step.depends_on
                if not 0 <= on_step < lengths.get(on_block, 0):
                    text = f'a <step> waits for step {on_step} of <tb id="{on_block}">'
                    text = f"{_where(rank, block)}: {text}, which does not exist. {_AGAIN}"
                    raise _UnusableError("bad_dependence", text)
    return tuple(
        MscclBlock(
            block.number,
            None if block.send < 0 else block.send,
            None if block.receive < 0 else block.receive,
            block.channel,
            tuple(block.steps),
        )
        for block in blocks
    )
