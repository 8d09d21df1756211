"""The readers of CSVs, tables and figures: one registry, and what they make of a file together."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from command import collscope, rows

from collscope.ingest import auto
from collscope.model import MeasurementSet
from collscope.model.scanned_log import LogScan
from collscope.parsers import registry
from collscope.parsers.hints import Hints
from collscope.parsers.reader import Fit, InMemory, Reader, whole_if

_MODULES = [(kind, module) for kind, modules in registry.DIALECTS.items() for module in modules]


@pytest.mark.parametrize(("kind", "module"), _MODULES)
def test_every_dialect_has_its_reader(kind: str, module: str) -> None:
    reader = import_module(f"collscope.parsers.{module}").READER
    assert reader.kind == kind
    assert reader in registry.readers(kind)


@pytest.mark.parametrize("head", [b"", b"\0" * 100, b"\xff\xfe\xfd", b"{", b'"', b"op,", b"\n" * 9])
def test_any_beginning_is_sniffed(head: bytes) -> None:
    for kind in registry.DIALECTS:
        assert registry.fit(kind, head) in set(Fit)


def _reader(name: str, fit: Fit, found: MeasurementSet | None) -> Reader:
    return Reader(name, "table", lambda _head: fit, lambda _source, _hints: found)


def test_a_whole_file_has_one_reader_and_a_text_may_have_several(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (samples / "tables" / "frontier-allreduce.txt").read_text()
    measured = registry.read_bytes("table", text.encode(), Hints())
    assert isinstance(measured, MeasurementSet)
    nothing = MeasurementSet("nothing", ())
    for readers, dialect in (
        ([_reader("a", Fit.PART, measured), _reader("b", Fit.WHOLE, nothing)], "nothing"),
        ([_reader("a", Fit.PART, measured), _reader("b", Fit.WHOLE, None)], measured.dialect),
        ([_reader("a", Fit.NONE, measured), _reader("b", Fit.PART, nothing)], None),
        ([_reader("a", Fit.PART, measured)] * 2, f"{measured.dialect}+{measured.dialect}"),
    ):
        monkeypatch.setattr(registry, "readers", lambda _kind, given=tuple(readers): given)
        found = registry.read("table", InMemory([text.encode()]), b"", Hints())
        assert (found.dialect if found is not None else None) == dialect


def test_the_first_that_fits_as_a_whole_reads_the_file() -> None:
    assert whole_if(lambda head: head == "\ufffd")(b"\xff") is Fit.WHOLE
    assert registry.fit("csv", b"# collscope-replay: 1\n") is Fit.WHOLE
    assert registry.fit("csv", b"host:1:1 [0] NCCL INFO") is Fit.NONE


def test_ingest_auto_puts_what_every_kind_of_reader_finds() -> None:
    assert [*auto._PUT, auto.LOG] == [k for k in registry.DIALECTS if k != auto.LOG] + [auto.LOG]


@pytest.mark.parametrize(
    ("name", "kind", "fit"),
    [
        ("profiles/synthetic.nsys.sqlite", "profile", Fit.WHOLE),
        ("profiles/frontier-gptj.txt", "profile", Fit.BEGINNING),
        ("profiles/frontier-gptj.txt", "trace", Fit.NONE),
        ("profiles/synthetic.nsys.sqlite", "trace", Fit.NONE),
        ("profiles/synthetic.nsys.sqlite", "csv", Fit.NONE),
    ],
)
def test_profiles_are_told_by_their_beginning(
    samples: Path, name: str, kind: str, fit: Fit
) -> None:
    head = (samples / name).read_bytes()[: registry.HEAD_BYTES]
    assert registry.fit(kind, head) is fit


def test_a_log_is_read_by_the_registry() -> None:
    # RCCL 2.18, INFO of COLL
    line = (
        b"node:1:1 [5] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 1 "
        b"datatype 6 op 0 root 0 comm 0xaf5 [nranks=8] stream 0xac1 task 0 globalrank 5\n"
    )
    found = registry.read_bytes("log", line, Hints())
    assert isinstance(found, LogScan)
    assert found.is_log
    assert found.counters["coll"] == 1
    nothing = registry.read_bytes("log", b"no line of the library\n", Hints())
    assert isinstance(nothing, LogScan)
    assert not nothing.is_log


_DEEPSPEED = (
    "Comm. Op            Message Size        Count               Total Latency(ms)   "
    "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)\n"
    "broadcast\n"
    "                    2.0 KB              146                 11.12               0.08"
    "                0.43                0.41\n"
)


def test_ingest_table_reads_what_ingest_trace_reads_of_deepspeed(tmp_path: Path) -> None:
    path = tmp_path / "deepspeed.txt"
    path.write_text(_DEEPSPEED)
    query = "SELECT op, size_bytes, time_us_median, label FROM measurements"
    found = []
    for command in ("trace", "table", "auto"):
        db = tmp_path / f"{command}.db"
        done = collscope("ingest", command, path, "--db", db)
        assert (done.code, done.err) == (0, "")
        found.append(rows(db, query))
    # 2.0 KB of 1024 bytes each; the mean is printed as 0.08 ms
    assert found[0] == found[1] == found[2] == [("Broadcast", 2048, 80.0, "deepspeed")]


def test_auto_reads_the_figures_beside_a_table_as_well(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    table = samples / "tables" / "synthetic.nccl-tests.json"
    assert collscope("ingest", "auto", table, "--db", db).code == 0
    found = rows(db, "SELECT kind, dialect FROM sources ORDER BY source_id")
    assert found == [("table", "nccl_tests_json"), ("metric", "records")]


def test_auto_tells_a_table_that_lacks_its_operation(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    path.write_text("Data (us)\nSize\tdefault\n1 KB\t10.5\n2 KB\t11.5\n4 KB\t13.5\n8 KB\t15\n")
    done = collscope("ingest", "auto", path, "--db", tmp_path / "t.db")
    assert done.code == 3
    assert "--op NAME" in done.err
