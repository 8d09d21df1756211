"""Evidence from logs of NCCL and RCCL: what each host called, and when its communicators began.

A log does not show what a GPU ended. The calls are played, each rank's one after the other: a call
ends when all members of its group have come to it, and made it alike.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.hang.records import (
    EQUAL_COUNTS,
    Call,
    Claim,
    Evidence,
    RankEvidence,
    only_sends,
)
from collscope.model import CommInit, Op
from collscope.model.datatype import datatype_of
from collscope.model.op import parse_op
from collscope.parsers.nccl_log import MessageKind, parse_init

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from collscope.model.scanned_log import LogScan

# Counters of the scanner: lines that are not whole, or stand there more or less often than printed.
_DAMAGE = ("torn", "interleaved", "overlong", "nul", "invalid_number", "repeated")
# vm:6332:6332 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f68 recvbuff 0x7f68 count 4096 …
# vm:986:986 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
_OPS = sorted({name for op in Op for name in (op.value, op.value.replace("To", "to"))})
_NAMED = re.compile(rf"INFO (?:{'|'.join(_OPS)}): (?!\d+ Bytes )".encode())
_BUFFERS = re.compile(rb"\bsendbuff (?:0x[0-9a-f]+|\(nil\)) recvbuff ")
_ENDS = re.compile(rb" comm 0x[0-9a-f]+ \[nranks=\d+\] stream ")
_NO_INIT = (
    "The logs have calls, but no lines of communicators: ranks are not known. Set "
    "NCCL_DEBUG_SUBSYS=INIT,COLL,P2P."
)
_NO_CALLS = "The logs have no calls. Set NCCL_DEBUG_SUBSYS=INIT,COLL,P2P."
_Process = tuple[int, int]  # file, process of the scan


class _Comm(msgspec.Struct, frozen=True):
    """A communicator on one process."""

    key: str  # equal for all its members
    rank: int
    nranks: int
    complete: bool
    gpu: int | None


def call_lines(chunks: Iterable[bytes]) -> int:
    """Lines that look like those of calls, whole or damaged: the scanner has read as many, or not.

    A line without its process, or without half of its words, is another program's to the scanner.
    """
    lines, rest = 0, b""
    for chunk in chunks:
        *ended, rest = (rest + chunk).split(b"\n")
        lines += sum(map(_calls_of_line, ended))
    return lines + _calls_of_line(rest)


def _calls_of_line(line: bytes) -> int:
    """Calls whose beginning, middle or end stands in a line; two, where it lost its end."""
    return max(len(pattern.findall(line)) for pattern in (_NAMED, _BUFFERS, _ENDS))


def log_evidence(
    logs: Sequence[tuple[str, LogScan]], damaged_paths: Collection[str] = ()
) -> Evidence | None:
    """What the logs say; None where the ranks of their processes are not known.

    damaged_paths  logs that are known to be damaged
    """
    comms: dict[_Process, dict[int, _Comm]] = {}
    reused: set[_Process] = set()
    for number, (_, scan) in enumerate(logs):
        _read_comms(number, scan, comms, reused)
    every = [comm for own in comms.values() for comm in own.values()]
    sources = tuple(path for path, _ in logs)
    if not every:
        has_calls = any(len(scan.coll.comm) for _, scan in logs)
        return Evidence(kind="logs", sources=sources, hint=_NO_INIT) if has_calls else None
    size = max(comm.nranks for comm in every)
    world = next(comm.key for comm in every if comm.nranks == size)
    rank_of = {
        process: comm.rank
        for process, own in comms.items()
        for comm in own.values()
        if comm.key == world
    }
    claims = _never_began(comms, world, size)
    torn = {
        number
        for number, (path, scan) in enumerate(logs)
        if path in damaged_paths or _damaged(scan) or _of_nobody(number, scan, comms)
    }
    reused |= {process for process in rank_of if process[0] in torn}
    twice = {rank for rank, times in Counter(rank_of.values()).items() if times > 1}
    damaged = twice | {rank_of[process] for process in reused if process in rank_of}
    members: dict[str, dict[int, int]] = defaultdict(dict)  # group: rank of it, world rank
    for process, rank in rank_of.items():
        for comm in comms[process].values():
            members[comm.key][comm.rank] = rank
    made: dict[int, list[Call]] = {}
    for process, rank in rank_of.items():
        if rank not in damaged:
            scan = logs[process[0]][1]
            made[rank] = _calls(scan, process[1], rank, comms[process], members)
    groups: dict[str, tuple[int, ...]] = {
        key: tuple(sorted(of.values())) for key, of in members.items()
    }
    for calls in made.values():
        for call in calls:
            if call.op == "SendRecv":
                sender, _, receiver = call.group.rpartition(": ")[2].partition(" to ")
                groups.setdefault(call.group, (int(sender), int(receiver)))
    ended = played(made, groups)
    return Evidence(
        kind="logs",
        ranks=tuple(
            RankEvidence(
                rank, "nccl_log", tuple(ended[rank]),
                host=logs[process[0]][1].processes.host[process[1]] or None,
                pid=logs[process[0]][1].processes.pid[process[1]] or None,
                gpu=next((c.gpu for c in comms[process].values()), None),
            )
            for process, rank in sorted(rank_of.items(), key=lambda item: item[1])
            if rank in ended
        ),
        groups=tuple(groups.items()),
        damaged=tuple(sorted(damaged)),
        sources=sources,
        claims=claims,
        hint=None if any(len(scan.coll.comm) for _, scan in logs) else _NO_CALLS,
    )  # fmt: skip


def _damaged(scan: LogScan) -> bool:
    """Whether lines are torn, lost or not what the library writes: the log proves nothing."""
    return (
        any(scan.counters.get(name, 0) for name in _DAMAGE)
        or bool(scan.damage)
        or any("opCount" in text or "nranks=" in text for _, text in scan.unknown_samples)
        or any(parse_op(name) is Op.UNKNOWN for name in scan.ops)
        or bool(scan.unended.strip())
        or _lacks_numbers(scan)
    )


def _of_nobody(number: int, scan: LogScan, comms: Mapping[_Process, object]) -> bool:
    """Whether calls stand in lines of a process that began no communicator, and others did.

    Such a line has lost a digit of its process.
    """
    callers = set(scan.comms.process[scan.coll.comm].tolist())
    began = {process for file, process in comms if file == number}
    return bool(began) and bool(callers - began)


def _lacks_numbers(scan: LogScan) -> bool:
    """Whether the calls of a communicator, where they are numbered, do not have every number."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for comm, number in zip(scan.coll.comm.tolist(), scan.coll.op_count.tolist(), strict=True):
        numbers[comm].append(number)
    return any(
        len(set(own)) > 1 and any(b not in (a, a + 1) for a, b in pairwise(own))
        for own in numbers.values()
    )


def _read_comms(
    number: int, scan: LogScan, comms: dict[_Process, dict[int, _Comm]], reused: set[_Process]
) -> None:
    """Communicators by process and pointer; `reused` gets processes with two at one pointer."""
    keys: dict[tuple[int, int], str] = {}
    columns = (c.tolist() for c in (scan.messages.process, scan.messages.line, scan.messages.kind))
    for process, line, kind, text in zip(*columns, scan.messages.text, strict=True):
        if kind != MessageKind.INIT or process >= len(scan.processes.host):
            continue
        init = parse_init(process, line, text)
        if not isinstance(init, CommInit):
            continue
        key = _key(init, keys)
        own = comms.setdefault((number, process), {})
        known = own.get(init.comm_ptr)
        if key is None or (known is not None and known.key != key and not known.complete):
            key = known.key if known is not None else f"{init.comm_ptr:x} of process {process}"
        elif known is not None and known.key != key:
            if not init.complete:
                reused.add((number, process))
            key = known.key
        keys[process, init.comm_ptr] = key
        complete = init.complete or (known is not None and known.complete)
        own[init.comm_ptr] = _Comm(key, init.rank, init.nranks, complete, init.cuda_dev)


def _key(init: CommInit, keys: Mapping[tuple[int, int], str]) -> str | None:
    """Members of a split share parent, number and colour; those of others the commId."""
    if init.parent_ptr is not None:
        parent = keys.get((init.process, init.parent_ptr), "?")
        return f"{parent}/{init.split_count}.{init.color}"
    return None if init.comm_hash is None else f"{init.comm_hash:016x}"


def _never_began(
    comms: Mapping[_Process, Mapping[int, _Comm]], world: str, size: int
) -> tuple[Claim, ...]:
    """Ranks that began no world communicator while all others wait in its making."""
    began = [comm for own in comms.values() for comm in own.values() if comm.key == world]
    missing = sorted(set(range(size)) - {comm.rank for comm in began})
    if any(comm.complete for comm in began) or not missing or 2 * len(missing) > size:
        return ()
    reason = "began no communicator, and the other ranks wait to create it"
    return tuple(Claim(rank, "not_initialised", f"Rank {rank} {reason}.") for rank in missing)


def _calls(
    scan: LogScan,
    process: int,
    rank: int,
    comms: Mapping[int, _Comm],
    members: Mapping[str, Mapping[int, int]],
) -> list[Call]:
    """Calls of a process in the order of its log, on communicators whose beginning it holds."""
    of_process = (scan.comms.process == process).tolist()
    pointers = scan.comms.ptr.tolist()
    sigs = scan.signatures
    fields = [c.tolist() for c in (sigs.op, sigs.count, sigs.datatype, sigs.root)]
    signatures = list(zip(*fields, strict=True))
    places: Counter[str] = Counter()
    found = []
    columns = (c.tolist() for c in (scan.coll.comm, scan.coll.sig, scan.coll.source))
    for comm, sig, source in zip(*columns, strict=True):
        if not of_process[comm] or source != 0 or (own := comms.get(pointers[comm])) is None:
            continue
        op_index, count, datatype, root = signatures[sig]
        op, group = scan.ops[op_index], own.key
        if op in {"Send", "Recv"}:
            peer = members[group].get(root)
            if peer is None or peer == rank:
                continue
            pair = (rank, peer) if op == "Send" else (peer, rank)
            group, op, root = f"{group}: {pair[0]} to {pair[1]}", "SendRecv", None
        elif op in {"Broadcast", "Reduce", "Gather", "Scatter"}:
            root = members[group].get(root)
        else:
            root = None
        places[group] += 1
        found.append(Call(group, places[group], op, count, str(datatype_of(datatype).value), root))
    return found


def played(
    made: Mapping[int, Sequence[Call]], groups: Mapping[str, tuple[int, ...]]
) -> dict[int, list[Call]]:
    """The calls, with those completed that ended if each rank's calls end one after the other.

    Where all members made all calls of their groups alike, all have ended.
    """
    by_group: dict[str, dict[int, list[Call]]] = defaultdict(dict)
    for rank, calls in made.items():
        for call in calls:
            by_group[call.group].setdefault(rank, []).append(call)
    first_open = {
        group: _first_open([own.get(rank, []) for rank in groups[group] if rank in made])
        for group, own in by_group.items()
    }
    if all(call.seq < first_open[call.group] for calls in made.values() for call in calls):
        ended = {rank: len(calls) for rank, calls in made.items()}
    else:
        members = {group: set(groups[group]) & made.keys() for group in by_group}
        ended = _ended(made, members, first_open)
    return {
        rank: [replace(call, completed=n < ended[rank]) for n, call in enumerate(calls)]
        for rank, calls in made.items()
    }


def _ended(
    made: Mapping[int, Sequence[Call]],
    members: Mapping[str, Collection[int]],
    first_open: Mapping[str, int],
) -> dict[int, int]:
    """How many of its calls each rank ended before the first that it waits in.

    A host runs ahead of its GPU: a call that all members made waits behind one that has not ended.

    members     of each group, as far as their calls are known
    first_open  number of the first call of each group that its members did not make alike
    """
    begun = dict.fromkeys(made, 0)
    ended = dict.fromkeys(made, 0)
    at: dict[tuple[str, int], set[int]] = defaultdict(set)  # ranks that began a call

    def has_ended(rank: int, call: Call) -> bool:
        met = len(at[call.group, call.seq]) == len(members[call.group])
        return only_sends(rank, call) or (met and call.seq < first_open[call.group])

    ready = list(made)
    while ready:
        rank = ready.pop()
        calls = made[rank]
        while ended[rank] < begun[rank] and has_ended(rank, calls[ended[rank]]):
            ended[rank] += 1
        # Transfers that follow each other may be one group, in which none waits for another.
        following = calls[max(begun[rank] - 1, 0) : begun[rank] + 1]
        together = len(following) == 2 and {call.op for call in following} == {"SendRecv"}
        if begun[rank] < len(calls) and (begun[rank] == ended[rank] or together):
            call = calls[begun[rank]]
            begun[rank] += 1
            here = at[call.group, call.seq]
            here.add(rank)
            ready += here if len(here) == len(members[call.group]) else [rank]
    return ended


def _first_open(of_members: Iterable[Sequence[Call]]) -> int:
    """Number of the first call that not all members made alike."""
    seq = 0
    for seq, calls in enumerate(zip_longest(*of_members), start=1):
        if None in calls or len({(call.op, call.root) for call in calls}) > 1:
            return seq
        if calls[0].op in EQUAL_COUNTS and len({(c.count, c.datatype) for c in calls}) > 1:
            return seq
    return seq + 1
