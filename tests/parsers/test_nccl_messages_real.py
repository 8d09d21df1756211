"""Rarer lines of real logs, against counts that do not use the parsers or the native scanner."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from nccl_message_samples import log_messages

from collscope.model import CommInit, Fact, LibraryVersion, Link, LogRecord, Setting
from collscope.parsers.nccl_log import MessageKind, parse_messages

_ANCHOR = re.compile(r"(\S+:\d+:\d+) \[-?\d+\] NCCL INFO (.*)")
_MLPERF = {
    "a100": "mlperf21_Azure_8xA100_hugectr.txt",
    "h100": "mlperf31_Dell_8xH100_bert.txt",
    "mi325x": "mlperf51_MangoBoost_16xMI325X_rccl.txt",
}
# (what a line of the kind contains, kind); ^ stands for the beginning
_TRIGGERS = (
    (" set by environment to ", MessageKind.SETTING),
    ("Comm config ", MessageKind.SETTING),
    (" - Init ", MessageKind.INIT),
    ("- Init START", MessageKind.INIT),
    (" - Destroy ", MessageKind.INIT),
    (" nNodes ", MessageKind.TOPOLOGY),
    ("Init timings", MessageKind.MISC),
    ("Bootstrap", MessageKind.MISC),
    ("CCL version", MessageKind.VERSION),
    ("cudaDriverVersion", MessageKind.VERSION),
    (" coll channels", MessageKind.STRUCTURE),
    ("Connected all", MessageKind.STRUCTURE),
    ("NVLS multicast", MessageKind.STRUCTURE),
    ("Using network", MessageKind.NET),
    ("plugin", MessageKind.NET),
    ("^NET/", MessageKind.NET),
)


def messages(path: Path) -> Iterator[tuple[str, int, int, str]]:
    """(process, line, kind, text) of the lines that belong to a kind; others are left out."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            match = _ANCHOR.search(line.rstrip())
            if match is None:
                continue
            text = match[2]
            if " via " in text and "->" in text:
                yield match[1], number, MessageKind.LINK, text
            elif kind := next((k for trigger, k in _TRIGGERS if trigger in f"^{text}"), None):
                yield match[1], number, kind, text


def parse(path: Path) -> list[LogRecord]:
    """Records of one log; every line of a known kind must be understood."""
    rows = list(messages(path))
    names = {name: i for i, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    records, diagnostics = parse_messages(
        log_messages(
            [names[row[0]] for row in rows],
            [row[1] for row in rows],
            [row[2] for row in rows],
            [row[3] for row in rows],
        )
    )
    assert diagnostics == []
    return records


def assert_all_lines_parsed(path: Path) -> None:
    """Lines with a trigger, counted on the raw text, are as many as the records."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in lines if "NCCL INFO" in line]
    kinds = Counter(type(record) for record in parse(path))
    assert kinds[Link] == sum(" via " in line and "->" in line for line in lines)
    assert kinds[CommInit] == sum("- Init " in line for line in lines)
    settings = sum(" set by environment to " in line or "Comm config" in line for line in lines)
    assert kinds[Setting] == settings


@pytest.mark.parametrize("name", _MLPERF.values())
def test_every_line_of_the_mlperf_logs(corpus: Path, name: str) -> None:
    assert_all_lines_parsed(corpus / "nccl-init" / name)


def test_every_line_of_the_recordings(recordings: Path) -> None:
    logs = sorted(recordings.rglob("nccl.*.log"))
    assert len(logs) == 16
    for log in logs:
        assert_all_lines_parsed(log)


def communicators(records: list[LogRecord]) -> dict[tuple[int | None, int], list[int]]:
    """(commId, nranks) -> ranks with an Init COMPLETE line, sorted."""
    ranks = defaultdict(list)
    for record in records:
        if isinstance(record, CommInit) and record.complete:
            ranks[record.comm_hash, record.nranks].append(record.rank)
    return {key: sorted(value) for key, value in ranks.items()}


def init_ranks(log: str) -> dict[tuple[int | None, int], list[int]]:
    """(commId, nranks) -> sorted ranks of a log's "Init COMPLETE" lines, by splitting at blanks."""
    ranks: dict[tuple[int | None, int], list[int]] = {}
    for line in log.splitlines():
        if not line.endswith("- Init COMPLETE"):
            continue
        words = line.split()
        after = dict(itertools.pairwise(words))
        key = (int(after["commId"], 16), int(after["nranks"]))
        ranks.setdefault(key, []).append(int(after["rank"]))
    return {key: sorted(value) for key, value in ranks.items()}


@pytest.mark.parametrize("name", [_MLPERF["h100"], _MLPERF["mi325x"]])
def test_communicators_as_in_the_raw_text(corpus: Path, name: str) -> None:
    path = corpus / "nccl-init" / name
    assert communicators(parse(path)) == init_ranks(path.read_text(errors="replace"))


def test_communicators_of_two_nodes_with_four_gpus(corpus: Path) -> None:
    found = communicators(parse(corpus / "nccl-init" / _MLPERF["h100"]))
    assert found == {
        (0x2BC2A912F8E4B1EA, 4): [0, 1, 2, 3],
        (0xB9F7C04785DB89E1, 4): [0, 1, 2, 3],
        (0x3751E5E6DD2AFE29, 8): [0, 1, 2, 3, 4, 5, 6, 7],
        (0x9C8695409E569BC5, 8): [0, 1, 2, 3, 4, 5, 6, 7],
    }


def test_communicators_of_the_first_of_two_nodes(corpus: Path) -> None:
    """The file holds one node's ranks: half of each communicator that spans both."""
    found = communicators(parse(corpus / "nccl-init" / _MLPERF["mi325x"]))
    shapes = Counter((nranks, tuple(ranks)) for (_, nranks), ranks in found.items())
    assert shapes == {
        (16, tuple(range(8))): 3,
        (8, (0, 1, 2, 3)): 2,
        (2, (0, 1)): 4,
        (1, (0,)): 16,
    }


def test_transports(corpus: Path, recordings: Path) -> None:
    def transports(path: Path) -> Counter[tuple[str, bool | None]]:
        return Counter((r.transport, r.gdr) for r in parse(path) if isinstance(r, Link))

    folder = corpus / "nccl-init"
    # grep -c 'via P2P/IPC', 'via NET/IBext/.*GDRDMA'
    assert transports(folder / _MLPERF["h100"]) == {
        ("P2P/IPC", None): 872,
        ("NET/IBext", True): 256,
    }
    assert set(transports(folder / _MLPERF["a100"])) == {("P2P/direct pointer", None)}
    assert set(transports(folder / _MLPERF["mi325x"])) == {
        ("P2P/IPC", None),
        ("NET/IB", True),
        ("NET/IB", False),
    }
    (log,) = recordings.glob("mixed/nccl.vm.1256.log")
    assert transports(log) == {("P2P/CUMEM", None): 168}


def test_split_communicators_of_a_recording(recordings: Path) -> None:
    (log,) = recordings.glob("mixed/nccl.vm.1256.log")
    inits = [r for r in parse(log) if isinstance(r, CommInit) and r.complete]
    assert [(r.function, r.nranks, r.parent_ptr, r.split_count, r.color) for r in inits] == [
        ("ncclCommInitRankConfig", 4, None, None, None),
        ("ncclCommSplit", 2, 0x15FC9550, 1, 0),
        ("ncclCommSplit", 2, 0x15FC9550, 2, 0),
    ]


def test_library_and_network(corpus: Path, recordings: Path) -> None:
    (log,) = recordings.glob("mixed/nccl.vm.1256.log")
    ours = parse(log)
    versions = {(r.component, r.version) for r in ours if isinstance(r, LibraryVersion)}
    assert versions == {("nccl", "2.28.9"), ("cuda", "13.0"), ("driver", "13.0")}
    theirs = parse(corpus / "nccl-init" / _MLPERF["mi325x"])
    versions = {(r.component, r.version) for r in theirs if isinstance(r, LibraryVersion)}
    assert versions == {("rccl", "2.22.3-HEAD:271856d")}
    for records, network in ((ours, "Socket"), (theirs, "IB")):
        assert {r.value for r in records if isinstance(r, Fact) and r.kind == "network"} == {
            network
        }
