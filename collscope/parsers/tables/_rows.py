"""One line of an nccl-tests table into its cells, by the header's columns or by position.

Data cells are recognised by their content, since programs leave cells blank (alltoall of 2021 has a
redop column with nothing in it) and slides lose tabs; the timed blocks are counted from the right.
"""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from collscope.model import Datatype, parse_datatype
from collscope.parsers._names import redop_of_name
from collscope.parsers.tables._measure import NUMBER, Result, integer

# [1,0]<stdout>: | 0: | 44: | [0] | (RayTrainWorker pid=615, ip=10.72.7.6) | 104.171.201.171: | >
_TAGS = re.compile(
    r"^(?:\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d{1,6}:(?=\s)|\[\d{1,6}\](?=\s)|\([^()]{0,80}pid=[^()]{0,80}\)"
    r"|\d{1,3}(?:\.\d{1,3}){3}:(?=\s)|>(?=\s)|\|(?=\s)))+"
)
# 2026-03-12 13:57:49, also in brackets (NCCL_DEBUG_TIMESTAMP_FORMAT)
_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?\]?")
_LONGEST = 1 << 16  # characters of a line that are looked at; no row has a hundredth of it
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# host:123:456 [0] NCCL INFO Launch mode Parallel; behind a row's first cells without a blank
_INFO = re.compile(
    r"(?:[A-Za-z][\w.-]{0,255}:\d+:\d+ )?(?:\[\d+\] )?NCCL (?:INFO|WARN|TRACE)\b.*"
    r"|[NR]CCL version .*"
)
_RESULT = re.compile(NUMBER.pattern + r"\*?|N/A|-?nan|-?inf|-\d+(?:\.\d+)?", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_ROOT = re.compile(r"-?\d{1,9}", re.ASCII)

#       size         count      type   redop    root     time   algbw   busbw #wrong     time …
#        bytes             N    type      op     time  algbw  busbw      res     time …
# The latter of the tests of NCCL 1 and of nccl-tests until April 2019: times are milliseconds
# (elapsedSec * 1.0E3 of test/single/*.cu, deltaSec * 1.0E3 of src/common.cu before cbe7f65).
_SAME = {
    "bytes": "size", "n": "count", "op": "redop", "cputime": "time", "errors": "error",
    "wrong": "#wrong",
}  # fmt: skip
PLAIN_BLOCK = ("time", "algbw", "busbw", "#wrong")
# …  time  algbw  busbw  #wrong  algo  proto  nchannels      rccl-tests -A 1, before 2026 -M 1
# …      0      RING    SIMPLE          28
# …    N/ANVLS_TREE        LL          16      no blank before a name of eight letters and more
# …      0       N/A       N/A         N/A      operations without such an answer
# Source: TimeTest in src/common.cu of rccl-tests (ROCm/rocm-systems).
_CHOICE = ("algo", "proto", "nchannels")
_PROTOCOLS = ("ll", "ll128", "simple")
_GLUED = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]\d+)?\*?|N/A)([A-Za-z][\w*]*)")


class Layout(msgspec.Struct, frozen=True):
    """Timed blocks of a table: their columns, how many, and where the second one begins."""

    block: tuple[str, ...] = PLAIN_BLOCK
    blocks: int = 2
    second_at: int | None = None  # character of the second "time" in the header
    damaged: bool = False  # a header that cannot be trusted: read by position
    host_clock: bool = False
    milliseconds: bool = False


def clean(line: str) -> str:
    """The line without launcher tags, time stamps, colours and library messages."""
    line = line[:_LONGEST]
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    line = _TAGS.sub("", line)
    if "CCL " in line:
        line = _INFO.sub("", line)
    if "-" in line:
        line = _STAMP.sub("", line)
    return line.rstrip().removesuffix("|")


def layout_of(line: str) -> Layout | None:
    """Layout of a header line; None for another line. Damaged headers give the plain layout.

    >>> layout_of("# size count type redop time algbw busbw error time algbw busbw error").block
    ('time', 'algbw', 'busbw', 'error')
    """
    if "type" not in line.lower():
        return None
    words = [w.lower() for w in line.strip().lstrip("#").split() if not w.startswith("(")]
    milliseconds = {"bytes", "n"} <= set(words)
    words = [_SAME.get(word, word) for word in words]
    if not {"size", "count", "type"} <= set(words):
        return None
    starts = [i for i, word in enumerate(words) if word == "time"]
    if len(starts) in (1, 2):
        width = starts[1] - starts[0] if len(starts) == 2 else None
        block = tuple(words[starts[0] :][:width])
        block = tuple(word for word in block if word not in ("timestamp", *_CHOICE))
        last_block = tuple(words[starts[-1] :][: len(block)])
        # "hipevt" (rccl-tests 2026): the same by the device's clock; bandwidths are of "time"
        plain = tuple(word for word in block if word != "hipevt")
        if plain[:3] == PLAIN_BLOCK[:3] and block == last_block and len(plain) > 3:
            second = line.lower().rfind("time", 0, _end_of_time(line))
            at = second if len(starts) == 2 and "\t" not in line else None
            clock = "cputime" in line.lower()
            return Layout(block, len(starts), at, host_clock=clock, milliseconds=milliseconds)
    return Layout(damaged=True, milliseconds=milliseconds)


def _end_of_time(line: str) -> int:
    """Where a timestamp column begins, which "time" must not be looked for in."""
    at = line.lower().find("timestamp")
    return at if at >= 0 else len(line)


def begins_row(cells: list[str]) -> bool:
    """True when the first cells are those of a row: size, count, type."""
    return (
        len(cells) > 2
        and integer(cells[0]) is not None
        and integer(cells[1]) is not None
        and _WORD.fullmatch(cells[2]) is not None
        and (parse_datatype(cells[2]) is not Datatype.UNKNOWN or len(cells) > 6)
    )


def continues_row(cells: list[str]) -> bool:
    """True when all cells may be the rest of a row that was broken."""
    return bool(cells) and all(_RESULT.fullmatch(c) or _ROOT.fullmatch(c) for c in cells)


def split_choice(cells: list[str]) -> tuple[list[str], str | None]:
    """A row's cells without algorithm, protocol and channels at its end, and these in words.

    >>> split_choice(["52.10", "40.25", "40.25", "0COLLNET_DIRECT", "SIMPLE", "28"])
    (['52.10', '40.25', '40.25', '0'], 'COLLNET_DIRECT SIMPLE, 28 channels')
    """
    if len(cells) < len(_CHOICE):
        return cells, None
    rest, (algorithm, protocol, channels) = cells[:-3], cells[-3:]
    if algorithm == protocol == channels == "N/A":
        return rest, None
    if protocol.lower() not in _PROTOCOLS or not _ROOT.fullmatch(channels):
        return cells, None
    if glued := _GLUED.fullmatch(algorithm):
        rest, algorithm = [*rest, glued[1]], glued[2]
    return rest, f"{algorithm} {protocol}, {channels} channels"


def results_of(cells: list[str], layout: Layout, line: int, at: int | None) -> list[Result] | None:
    """Out-of-place and in-place results of a row; None when the row is cut or torn.

    at  character of the row's last block in its line, where known
    """
    rest, redop, root = cells[3:], None, None
    if rest and _WORD.fullmatch(rest[0]) and not _RESULT.fullmatch(rest[0]):
        redop, rest = redop_of_name(rest[0]), rest[1:]
    width = len(layout.block)
    if len(rest) % width == 1 and _ROOT.fullmatch(rest[0]):
        root, rest = int(rest[0]), rest[1:]
    if not rest or len(rest) % width or not all(_RESULT.fullmatch(cell) for cell in rest):
        return None
    blocks = len(rest) // width
    if blocks > layout.blocks or (blocks < layout.blocks and not _only_in_place(layout, at)):
        return None
    size, count = integer(cells[0]), integer(cells[1])
    if size is None:
        return None
    forms = (False, True) if blocks == 2 else (layout.blocks == 2,)
    shared = Result(
        line, size, "", count, parse_datatype(cells[2]), redop, root if root != -1 else None
    )
    return [
        _result(shared, _fields(layout, rest[i * width :]), in_place)
        for i, in_place in enumerate(forms)
    ]


def _fields(layout: Layout, cells: list[str]) -> dict[str, str]:
    """Cells of a block by column, the time in microseconds with as many digits as it has."""
    found = dict(zip(layout.block, cells, strict=False))
    if layout.milliseconds and NUMBER.fullmatch(found["time"]):
        found["time"] = f"{Decimal(found['time']).scaleb(3):f}"
    return found


def _only_in_place(layout: Layout, at: int | None) -> bool:
    """True when the one block of a row stands below the header's second one."""
    return layout.second_at is not None and at is not None and at >= layout.second_at - 4


def _result(shared: Result, block: dict[str, str], in_place: bool) -> Result:
    n_wrong, beyond = None, False
    if "#wrong" in block:
        wrong = block["#wrong"]
        n_wrong = int(float(wrong)) if NUMBER.fullmatch(wrong) and float(wrong) < 2**63 else None
    elif "error" in block:  # largest deviation; an asterisk where it is beyond the threshold
        beyond = block["error"].endswith("*")
        exact = NUMBER.fullmatch(block["error"]) and float(block["error"]) == 0
        n_wrong = 0 if exact else None
    return replace(
        shared, time=block["time"], in_place=in_place, algbw=block["algbw"],
        busbw=block["busbw"], n_wrong=n_wrong,
        beyond_threshold=beyond, shortest=block.get("i_min"), longest=block.get("i_max"),
    )  # fmt: skip
