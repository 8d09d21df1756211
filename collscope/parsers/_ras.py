"""Answers of NCCL's RAS service, as text and as JSON, in one record.

Forms: src/ras/client_support.cc of NCCL 2.24 to 2.30 and of RCCL 2.28.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_DECODER = json.JSONDecoder()
_JSON = re.compile(r'\{\s*"(?:nccl_version|timestamp)"\s*:')
# NCCL 2.28 writes no comma between "nvml_dev" and "status" of a rank that does not answer.
_NO_COMMA = re.compile(r'("nvml_dev"\s*:\s*-?\d{1,10})(\s*\n\s*"status"\s*:)')
_TEXT = re.compile(r"^(?:NCCL|RCCL) version [\d.]+.*\n(?:.*\n){0,4}?\s*Job summary\s*\n=+", re.M)
_END = re.compile(r"^Warnings\s*\n=+", re.M)
# 0         1         4       7-8        32        32   RUNNING  INCOMPLETE
_ROW = re.compile(r"^ *(\d{1,6}) +(\d+) +\d+ +[\d-]+ +([\d-]+) +\d+ +([A-Z/]+) +(\S+)", re.M)
# #0-0 (cf264af53edbe986) INCOMPLETE
_COMM = re.compile(r"^#(\d{1,6})-\d{1,6} \(([0-9a-f]{1,16})\) (\w+)")
_OP = re.compile(r"Communicator ranks have different (\w{1,40}) operation counts")
_SOME = re.compile(r"^  (\d{1,8}) ranks? ha(?:ve|s) (?:launched up to operation (\d{1,18})|not)")
_ONE = re.compile(
    r"^  Rank (\d{1,8})(?: has (?:launched up to operation (\d{1,18})|not launched \w+ \w+))?"
    r" -- (?:GPU ([\d,]{1,40}) managed by process (\d{1,10}) on node (\S{1,255}))?"
)
_MISSING = re.compile(r"^  Missing communicator data from \d+ ranks?")
_ALONE = re.compile(r"^  The missing ranks?: ([\d, ]{1,4000})")
_MOST_RANKS = 1 << 20  # of a communicator


class RasRank(msgspec.Struct, frozen=True):
    """A rank of a communicator."""

    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    counts: tuple[tuple[str, int], ...] = ()  # calls launched; empty: not listed
    missing: bool = False  # it did not answer
    dead: bool = False  # and the service takes it for dead
    ailing: bool = False  # aborted, or with an asynchronous error


class RasCommunicator(msgspec.Struct, frozen=True):
    """A communicator of an answer."""

    name: str
    size: int | None
    ranks: tuple[RasRank, ...]


class RasAnswer(msgspec.Struct, frozen=True):
    """One answer."""

    at: str  # time as written; empty: not written
    communicators: tuple[RasCommunicator, ...]
    complete: bool = True  # it did not end early


def is_text(text: str) -> bool:
    """True for an answer as text."""
    return _TEXT.search(text) is not None


def is_json(text: str) -> bool:
    """True for an answer as JSON, behind lines of the protocol too."""
    return _JSON.search(text) is not None and '"communicators_count"' in text


def answers(text: str) -> Iterator[RasAnswer]:
    """All answers of a file, in order; what cannot be read ends an incomplete one."""
    if is_json(text):
        yield from _from_json(text)
        return
    starts = [found.start() for found in _TEXT.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield _from_text(text[start:end])


def _from_json(text: str) -> Iterator[RasAnswer]:
    text = _NO_COMMA.sub(r"\1,\2", text)
    at = text.find("{")
    while at >= 0:
        try:
            record, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield RasAnswer("", (), complete=False)
            return
        if isinstance(record, dict) and "communicators" in record:
            yield RasAnswer(
                str(record.get("timestamp", ""))[:40],
                _possible(_communicator(one) for one in _list(record["communicators"])),
            )
        at = text.find("{", at)


def _communicator(one: Mapping[str, object]) -> RasCommunicator:
    ranks = [_rank(rank, missing=False) for rank in _list(one.get("ranks"))]
    ranks += [_rank(rank, missing=True) for rank in _list(one.get("missing_ranks"))]
    known = tuple(rank for rank in ranks if rank is not None)
    return RasCommunicator(str(one.get("hash"))[:40], _parse_int(one.get("size")), known)


def _possible(found: Iterable[RasCommunicator]) -> tuple[RasCommunicator, ...]:
    """Without those that the service made of memory that it had not filled (NCCL 2.28)."""
    return tuple(c for c in found if all(r.rank < (c.size or 0) for r in c.ranks))


def _rank(one: Mapping[str, object], *, missing: bool) -> RasRank | None:
    rank = _parse_int(one.get("rank"))
    if rank is None:
        return None
    status, counts = _mapping(one.get("status")), _mapping(one.get("collective_counts"))
    host = one.get("host")
    return RasRank(
        rank, str(host)[:255] if isinstance(host, str) else None,
        _parse_int(one.get("pid")), _parse_int(one.get("cuda_dev")),
        tuple((str(op)[:40], n) for op, v in counts.items() if (n := _parse_int(v)) is not None),
        missing, status.get("considered_dead") is True,
        status.get("async_error") not in (0, None) or status.get("abort_flag") is True,
    )  # fmt: skip


def _from_text(text: str) -> RasAnswer:
    sizes = {row[1]: _size(row[3]) for row in _ROW.finditer(text)}
    found: list[RasCommunicator] = []
    lines: list[str] = []
    head: re.Match[str] | None = None
    parts: dict[tuple[str, str], list[str]] = {}
    for line in text.split("\n"):
        if begun := _COMM.match(line):
            head = begun
            lines = parts.setdefault((head[1], head[2]), [])
        elif head is not None:
            lines.append(line)
    for (group, name), own in parts.items():
        found.append(RasCommunicator(name, sizes.get(group), _ranks(own, sizes.get(group))))
    return RasAnswer("", _possible(found), _END.search(text) is not None)


def _ranks(lines: list[str], size: int | None) -> tuple[RasRank, ...]:
    listing = _Listing()
    for line in lines:
        listing.line(line)
    for name, number in listing.others.items():
        for rank in range(min(size or 0, _MOST_RANKS)):
            if rank not in listing.missing:
                listing.counts[rank].setdefault(name, number)
    return (
        *(
            replace(listing.known.get(rank, RasRank(rank)), counts=tuple(own.items()))
            for rank, own in sorted(listing.counts.items())
        ),
        *(listing.missing[rank] for rank in sorted(listing.missing)),
    )


class _Listing:
    """The lines of one communicator; some belong together."""

    def __init__(self) -> None:
        self.missing: dict[int, RasRank] = {}
        self.known: dict[int, RasRank] = {}
        self.counts: dict[int, dict[str, int]] = defaultdict(dict)
        self.others: dict[str, int] = {}  # count of the ranks that are not listed one by one
        self.op: str | None = None
        self.listed: int | None = None  # count of the ranks that the next lines list

    def line(self, line: str) -> None:
        if _MISSING.match(line):
            self.op = None
        elif alone := _ALONE.match(line):
            for text in alone[1].replace(",", " ").split():
                self.missing[int(text[:9])] = RasRank(int(text[:9]), missing=True)
        elif different := _OP.search(line):
            self.op, self.listed = different[1], None
        elif self.op is not None and (some := _SOME.match(line)):
            if self.listed is not None:
                self.others[self.op] = self.listed
            self.listed = int(some[2] or 0)
        elif one := _ONE.match(line):
            self._one(line, one)

    def _one(self, line: str, one: re.Match[str]) -> None:
        rank = int(one[1])
        gpu = int(one[3].split(",")[0]) if one[3] else None
        process = RasRank(rank, one[5], int(one[4]) if one[4] else None, gpu)
        if self.op is None:
            self.missing[rank] = replace(process, missing=True)
            return
        self.known[rank] = process
        own = int(one[2]) if one[2] else self.listed if " has " not in line else 0
        if own is not None:
            self.counts[rank][self.op] = own


def _size(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 9 else None


def _parse_int(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _list(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
