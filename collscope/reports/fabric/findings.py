"""Rules about what carries the data: networks, GPUDirect RDMA, shared memory."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.fabric.answer import TransportRow
from collscope.reports.report.answer import Evidence, Finding, Report
from collscope.units import count, count_of

_FAST_NETWORK = (
    "Install the network's plugin (aws-ofi-nccl on Slingshot and EFA) or its verbs library. "
    "Put it on LD_LIBRARY_PATH of every rank, and look for 'Using network' in the log."
)


def _evidence(row: TransportRow) -> Evidence:
    return Evidence(row.source, row.line, row.excerpt)


def _is_socket(row: TransportRow) -> bool:
    return row.net == "Socket" or row.transport.startswith("NET/Socket")


def internode_socket(report: Report) -> Iterable[Finding]:
    """Pairs of ranks on two hosts that talk over TCP sockets.

    Where the log does not name the hosts (no INIT lines) it is a warning: inside a host the library
    takes the network only when P2P and shared memory are off.
    """
    rows = [row for row in report.transports if _is_socket(row) and row.inter_node + row.unknown]
    if not rows:
        return
    pairs = sum(row.inter_node for row in rows)
    every = sum(row.inter_node for row in report.transports)
    unknown = sum(row.unknown for row in rows)
    some = count_of(pairs, every, "pair")
    detail = [f"Over NET/Socket: {some} of ranks on two hosts."] * (pairs > 0)
    detail += [
        (f"Over NET/Socket: {count(unknown, 'pair')} of ranks whose hosts the log does not name.")
    ] * (unknown > 0)
    yield Finding(
        severity="problem" if pairs else "warning",
        code="internode_socket",
        title="traffic between hosts goes over TCP sockets (NET/Socket)",
        detail=" ".join(detail),
        advice=_FAST_NETWORK,
        evidence=tuple(_evidence(row) for row in rows),
    )


def socket_network(report: Report) -> Iterable[Finding]:
    """The library chose the Socket network for a job with communicators over several hosts.

    Silent where `internode_socket` speaks: the channel lines are the better evidence.
    """
    facts = [fact for fact in report.facts if fact.kind == "network" and fact.value == "Socket"]
    spanning = [row for row in report.communicators if (row.nnodes or 1) > 1]
    if not facts or not spanning or any(True for _ in internode_socket(report)):
        return
    yield Finding(
        severity="warning",
        code="socket_network",
        title="the network in use is Socket, and communicators span hosts",
        detail=f"{count_of(len(spanning), len(report.communicators), 'communicator')}"
        f" span{'s' * (len(spanning) == 1)} hosts.",
        advice=_FAST_NETWORK,
        evidence=tuple(Evidence(fact.source, fact.line, fact.excerpt) for fact in facts),
    )


def gdr_not_in_use(report: Report) -> Iterable[Finding]:
    """NET connections of a network that could use GPUDirect RDMA, without it."""
    able = [row for row in report.transports if row.gdr is not None and not _is_socket(row)]
    without = [row for row in able if not row.gdr]
    if not without:
        return
    pairs, mixed = sum(row.pairs for row in without), sum(row.mixed for row in without)
    every = sum(row.pairs for row in able) - mixed  # a mixed pair is of a row with GDR too
    detail = f"{count_of(pairs, every, 'pair')} of ranks over NET without GDR"
    detail += f" on some of their channels, {pairs - mixed} of them on all." if mixed else "."
    yield Finding(
        severity="warning",
        code="gdr_not_in_use",
        title="GPUDirect RDMA is not in use on NET links: data is staged in host memory",
        detail=detail,
        advice="Check the peer-memory support of driver and NIC, and try a higher "
        "NCCL_NET_GDR_LEVEL (PHB or SYS). Remove it again if the job hangs.",
        evidence=tuple(_evidence(row) for row in without),
    )


def shared_memory_instead_of_p2p(report: Report) -> Iterable[Finding]:
    """Pairs of ranks on one host that go through host memory instead of the GPU links."""
    rows = [row for row in report.transports if row.transport.startswith("SHM")]
    if not rows:
        return
    pairs = sum(row.pairs for row in rows)
    every = sum(row.intra_node for row in report.transports)
    yield Finding(
        severity="warning",
        code="shared_memory_instead_of_p2p",
        title="ranks of one host exchange data through host memory (SHM) instead of P2P",
        detail=f"Over SHM: {count_of(pairs, every, 'pair')} of ranks on one host.",
        advice="Check that P2P is not disabled, that the containers of a host see each other's "
        "devices, and that ACS is off in PCIe bridges. Without GPU links, SHM is normal.",
        evidence=tuple(_evidence(row) for row in rows),
    )


RULES = (internode_socket, socket_network, gdr_not_in_use, shared_memory_instead_of_p2p)
