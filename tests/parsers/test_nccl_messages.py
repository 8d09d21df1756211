"""Rarer NCCL and RCCL log lines: what must be refused, each dialect, any cut."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_message_samples import (
    ENDS,
    FACTS,
    INITS,
    LINK_FIELDS,
    LINKS,
    MISC,
    PAIRS,
    SETTINGS,
    TOPOLOGY,
    VERSIONS,
    log_messages,
)

from collscope.model import (
    CommEnd,
    CommInit,
    CommTopology,
    Diagnostic,
    Fact,
    LibraryVersion,
    Link,
    LogRecord,
    Setting,
    Severity,
)
from collscope.parsers.nccl_log import (
    NO_PROCESS,
    MessageKind,
    parse_init,
    parse_link,
    parse_messages,
    parse_misc,
    parse_net,
    parse_setting,
    parse_topology,
    parse_version,
)


def run(kind: int, *texts: str, process: int = 0) -> tuple[list[LogRecord], list[Diagnostic]]:
    """`parse_messages` on texts of one kind on lines 1, 2, …"""
    n = len(texts)
    return parse_messages(log_messages([process] * n, range(1, n + 1), [kind] * n, texts))


NO_LINKS = [
    "",
    "Channel 14/24 :  0 1 2 3",  # a ring, not a connection
    "Channel 39/128      0",  # the same from RCCL
    "Ring 00 : 0 -> 1 -> 2",
    "Channel 00/0 : 7[3] -> 0[0]",
    "Channel 00/0 : 7[3] -> 0[0] via ",
    "Channel 00/0 : 7[3] -> 0[0] via P2P/CUME",
    "Channel 00/0 : 7[3] -> 0[0] via NET/IB/0/GDRDM",
    "Channel 00/0 : 7[3] -> 0[0] via NET/IB/",
    "Channel 00/0 : -1[3] -> 0[0] via P2P/IPC",
    "Channel 00/0 : 99999999999[3] -> 0[0] via P2P/IPC",
    "Channel 00/0 : 7[3] -> 0[0] via P2P/IPC comm",
    "Coll 00 : 3 via COLLNET/SHARP/0",
]


@pytest.mark.parametrize("text", NO_LINKS)
def test_link_refused(text: str) -> None:
    assert parse_link(0, 1, text) is None


@pytest.mark.parametrize(("text", "fields"), LINKS.items())
def test_link(text: str, fields: tuple[object, ...]) -> None:
    expected = dict.fromkeys(LINK_FIELDS) | dict(zip(LINK_FIELDS, fields, strict=False))
    link = parse_link(5, 9, text)
    assert link is not None
    assert (link.process, link.line) == (5, 9)
    assert {name: getattr(link, name) for name in LINK_FIELDS} == expected


def test_link_with_cut_pointer_has_none() -> None:
    link = parse_link(0, 1, "Channel 00/0 : 1[e7000] -> 0[77000] via P2P/IPC comm 0x6ce4")
    assert link == Link(0, 1, 0, 1, 0, "P2P/IPC", 0)


NO_INITS = [
    "",
    "comm 0x55d rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId db000 commId 0xb9f7c04785db89e1",
    "comm 0x55d rank 3 nranks 8 cudaDev 3 - Init STAR",
    "comm (nil) rank 3 nranks 8 cudaDev 3 - Init START",
    "comm 0x55d rank three nranks 8 cudaDev 3 - Init START",
    "comm 0x55d rank 99999999999 nranks 8 cudaDev 3 - Init START",
    "Init timings - ncclCommSplit: rank 0 nranks 2 total 0.04",
]


@pytest.mark.parametrize("text", NO_INITS)
def test_init_refused(text: str) -> None:
    assert parse_init(0, 1, text) is None


@pytest.mark.parametrize(("text", "expected"), INITS.items())
def test_init(text: str, expected: CommInit) -> None:
    assert parse_init(3, 8, text) == expected


@pytest.mark.parametrize(("text", "how"), ENDS.items())
def test_end(text: str, how: str) -> None:
    assert parse_init(3, 8, text) == CommEnd(3, 8, 0x6CEE3330, how)


def test_topology() -> None:
    assert parse_topology(2, 7, TOPOLOGY[:50]) is None
    assert parse_topology(2, 7, TOPOLOGY) == CommTopology(2, 7, 0x3D1E26E0, 4, 16, 2, 8, 4)


@pytest.mark.parametrize(
    "text", ["", "ncclCommInitRank(0x7f2, 4, 0xe1, 1", "ncclCommSplit(0x15f, 0, 1)", "other"]
)
def test_misc_refused(text: str) -> None:
    assert parse_misc(0, 1, text) is None


@pytest.mark.parametrize(("text", "expected"), MISC.items())
def test_misc(text: str, expected: LogRecord) -> None:
    assert parse_misc(0, 1, text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "NCCL_ALGO set by environment to", "NCCL_ALGO", "Invalid value x for NCCL_A", " set to 1"],
)
def test_setting_refused(text: str) -> None:
    assert parse_setting(None, 1, text) is None


@pytest.mark.parametrize(("text", "expected"), SETTINGS.items())
def test_setting(text: str, expected: tuple[str, str, str]) -> None:
    assert parse_setting(None, 1, text) == Setting(None, 1, *expected)


@pytest.mark.parametrize("text", ["", "NCCL version", "NCCL version unknown", "cudaDriverVersion"])
def test_version_refused(text: str) -> None:
    assert parse_version(None, 1, text) is None


@pytest.mark.parametrize(("text", "expected"), VERSIONS.items())
def test_version(text: str, expected: list[tuple[str, str]]) -> None:
    records, diagnostics = run(MessageKind.VERSION, text, process=NO_PROCESS)
    assert records == [LibraryVersion(None, 1, *pair) for pair in expected]
    assert diagnostics == []


def test_hostname_of_the_rccl_header() -> None:
    records, _ = run(MessageKind.VERSION, "Hostname     : mi325x-01", process=NO_PROCESS)
    assert records == [Fact(None, 1, "hostname", "mi325x-01")]


@pytest.mark.parametrize("text", ["", "NET/", "NET/IB: Dev 0 Port 1 qpn 260 mtu 5", "Plug"])
def test_net_refused(text: str) -> None:
    assert parse_net(None, 1, text) is None


@pytest.mark.parametrize(("message", "expected"), FACTS.items())
def test_fact(message: tuple[MessageKind, str], expected: tuple[str, str]) -> None:
    records, diagnostics = run(*message)
    assert records == [Fact(0, 1, *expected)]
    assert diagnostics == []


def test_unknown_forms_are_counted_by_kind() -> None:
    records, diagnostics = parse_messages(
        log_messages(
            [0, 0, NO_PROCESS, 0],
            [4, 6, 8, 9],
            [MessageKind.LINK, MessageKind.LINK, MessageKind.INIT, 77],
            ["Channel x" + "y" * 300, "Channel z", next(iter(INITS)), "new"],
        )
    )
    assert records == []
    assert [(d.severity, d.code, d.line, d.count) for d in diagnostics] == [
        (Severity.INFO, "unparsed_message", 8, 1),
        (Severity.NOTICE, "channel_line_cut", 4, 2),
        (Severity.INFO, "unparsed_message", 9, 1),
    ]
    assert diagnostics[1].excerpt == "Channel x" + "y" * 191


@pytest.mark.parametrize(
    "text",
    ["Trees [0] 1/-1/-1->0->-1", "NET/0-0 :GPU/0-1 (3/20.0/PHB)", "ncclGetUniqueId(0x17)"],
)
def test_lines_that_say_nothing_kept_are_not_reported(text: str) -> None:
    assert run(MessageKind.STRUCTURE, text) == ([], [])


@given(st.sampled_from(PAIRS), st.integers(0, 1024), st.text(max_size=8))
def test_any_cut_and_any_tail_gives_a_record_or_nothing(
    sample: tuple[MessageKind, str], at: int, tail: str
) -> None:
    kind, text = sample
    records, diagnostics = run(kind, text[:at] + tail)
    assert len(records) + len(diagnostics) <= 2
    for record in records:
        numbers = [v for v in msgspec.structs.astuple(record) if isinstance(v, int)]
        assert all(abs(number) < 2**64 for number in numbers)


@given(st.lists(st.sampled_from(PAIRS), max_size=20))
def test_every_sample_gives_a_record_on_its_line(samples: list[tuple[MessageKind, str]]) -> None:
    kinds = [int(kind) for kind, _ in samples]
    n = len(samples)
    records, diagnostics = parse_messages(
        log_messages([1] * n, range(n), kinds, [text for _, text in samples])
    )
    assert diagnostics == []
    assert sorted({record.line for record in records}) == list(range(n))
    assert Counter(type(r) for r in records)[Link] == kinds.count(MessageKind.LINK)
