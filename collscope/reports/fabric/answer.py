"""What carries the data of a run, and the settings and plugins in use."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from collscope.reports.calls.answer import CommunicatorRow
from collscope.store.processes import Place, Processes

# A pair is logged by its sender and by its receiver: the sums per direction, not over both.
_LINKS = """
SELECT transport, net, gdr, comm_id, src_rank, dst_rank, direction, SUM(channels), MIN(line), path,
       excerpt
FROM links WHERE run = ?
GROUP BY transport, net, gdr, comm_id, src_rank, dst_rank, direction
ORDER BY transport, net, gdr, path, MIN(line)
"""

_HOSTS = "SELECT comm_id, rank, host FROM members WHERE run = ? AND host IS NOT NULL"

_SETTINGS = """
SELECT name, value, origin, path, MIN(line), excerpt
FROM settings WHERE run = ? GROUP BY name, value, origin ORDER BY name, value
"""

_SETTING_PROCESSES = (
    "SELECT DISTINCT name, value, origin, path, host, pid FROM settings WHERE run = ?"
)

_FACTS = """
SELECT kind, value, SUM(count), path, MIN(line), excerpt
FROM facts WHERE run = ? GROUP BY kind, value ORDER BY kind, SUM(count) DESC, value
"""


# NVLS of a job is off by its environment, or by a line of the log.
_NO_SWITCHES = """
SELECT 1 FROM settings WHERE run = :run AND name = 'NCCL_NVLS_ENABLE' AND value = '0'
UNION ALL
SELECT 1 FROM facts WHERE run = :run AND kind = 'nvls' AND value LIKE '%not available%'
"""


def switches_may_reduce(connection: sqlite3.Connection, run: str) -> bool:
    """False where NVLS is off by the job's log or environment."""
    return connection.execute(_NO_SWITCHES, {"run": run}).fetchone() is None


class TransportRow(msgspec.Struct, frozen=True):
    """Connections of one kind."""

    transport: str
    net: str | None
    gdr: bool | None  # GPUDirect RDMA; None: not a NET link
    pairs: int  # directed pairs of ranks, per communicator
    mixed: int  # pairs of a row without GDR that have it on other channels
    channels: int  # over those pairs
    intra_node: int  # pairs on one host
    inter_node: int  # pairs on two hosts
    unknown: int  # pairs whose hosts the sources do not name
    source: str  # of the first line that shows it
    line: int
    excerpt: str | None  # that line's message


class SettingRow(msgspec.Struct, frozen=True):
    """One value of one variable that the library printed as used."""

    name: str
    value: str
    origin: str  # environment, config, invalid
    processes: int  # that logged this value
    of_processes: int  # that logged any setting
    source: str  # of the first such line
    line: int
    excerpt: str | None  # that line's message


class FactRow(msgspec.Struct, frozen=True):
    """A statement of the library (network, plugin, warning), counted over the sources."""

    kind: str
    value: str
    count: int
    source: str
    line: int
    excerpt: str | None  # that line's message


class _Line(NamedTuple):
    transport: str
    net: str | None
    gdr: int | None
    comm_id: int | None
    src_rank: int
    dst_rank: int
    direction: str | None
    channels: int
    line: int
    source: str
    excerpt: str | None


class _Places:
    """Where ranks run, and how many hosts a communicator has."""

    def __init__(
        self, connection: sqlite3.Connection, run: str, communicators: Iterable[CommunicatorRow]
    ) -> None:
        self.hosts: dict[tuple[int | None, int], str] = {
            (comm_id, rank): host for comm_id, rank, host in connection.execute(_HOSTS, (run,))
        }
        self.nnodes = {row.comm_id: row.nnodes for row in communicators}
        known = [nodes for nodes in self.nnodes.values() if nodes is not None]
        self.most_nodes = max(known, default=None)

    def inter_node(self, line: _Line) -> bool | None:
        """Whether the pair spans two hosts; None when the sources do not name the hosts."""
        src = self.hosts.get((line.comm_id, line.src_rank))
        dst = self.hosts.get((line.comm_id, line.dst_rank))
        if src and dst:
            return src != dst
        nodes = self.most_nodes if line.comm_id is None else self.nnodes.get(line.comm_id)
        if nodes == 1:
            return False
        # P2P and SHM need shared memory of one host; MNNVL is NVLink between hosts.
        if line.transport.startswith(("P2P/", "SHM/")) and "MNNVL" not in line.transport:
            return False
        # Several hosts and NET, but one end is not in the sources: the library takes NET within
        # a host only when P2P and SHM are off, so the host boundary is the likely reason.
        if line.transport.startswith(("NET/", "COLLNET/")) and (nodes or 0) > 1:
            return True
        return None


def read_transports(
    connection: sqlite3.Connection, run: str, communicators: Iterable[CommunicatorRow]
) -> tuple[TransportRow, ...]:
    """Connections of the run by (transport, net, gdr), those between hosts first."""
    places = _Places(connection, run, communicators)
    groups: dict[tuple[str, str | None, int | None], list[_Line]] = defaultdict(list)
    for columns in connection.execute(_LINKS, (run,)):
        line = _Line(*columns)
        groups[line.transport, line.net, line.gdr].append(line)
    with_gdr = {_pair(line) for (_, _, gdr), lines in groups.items() if gdr for line in lines}
    rows = [_transport(lines, places, with_gdr) for lines in groups.values()]
    return tuple(sorted(rows, key=lambda row: (-row.inter_node, -row.pairs, row.transport)))


_Pair = tuple[int | None, int, int]  # communicator, sender, receiver


def _pair(line: _Line) -> _Pair:
    return line.comm_id, line.src_rank, line.dst_rank


def _transport(lines: list[_Line], places: _Places, with_gdr: set[_Pair]) -> TransportRow:
    channels: dict[_Pair, int] = {}
    between: dict[_Pair, bool | None] = {}
    for line in lines:
        pair = _pair(line)
        channels[pair] = max(channels.get(pair, 0), line.channels)
        between[pair] = places.inter_node(line)
    first = lines[0]
    return TransportRow(
        transport=first.transport,
        net=first.net,
        gdr=None if first.gdr is None else bool(first.gdr),
        pairs=len(channels),
        mixed=len(channels.keys() & with_gdr) if first.gdr == 0 else 0,
        channels=sum(channels.values()),
        intra_node=sum(inter is False for inter in between.values()),
        inter_node=sum(inter is True for inter in between.values()),
        unknown=sum(inter is None for inter in between.values()),
        source=first.source,
        line=first.line,
        excerpt=first.excerpt,
    )


def read_settings(connection: sqlite3.Connection, run: str) -> tuple[SettingRow, ...]:
    """Environment and configuration values that the library printed as used, by name."""
    places: dict[tuple[str, str, str], set[Place]] = defaultdict(set)
    for name, value, origin, *place in connection.execute(_SETTING_PROCESSES, (run,)):
        places[name, value, origin].add(Place(*place))
    processes = Processes(connection, run)
    of_processes = processes.count({place for own in places.values() for place in own})
    return tuple(
        SettingRow(
            name, value, origin, processes.count(places[name, value, origin]), of_processes,
            path, line, text,
        )
        for name, value, origin, path, line, text in connection.execute(_SETTINGS, (run,))
    )  # fmt: skip


def read_facts(connection: sqlite3.Connection, run: str) -> tuple[FactRow, ...]:
    """Networks, plugins, warnings and other statements of the library, by kind and frequency."""
    return tuple(FactRow(*columns) for columns in connection.execute(_FACTS, (run,)))
