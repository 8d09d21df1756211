"""A file beside a copy of it: the same recording counts once, whichever is read first."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from command import collscope, dump, rows

RUNS = "SELECT run, COUNT(*) FROM sources GROUP BY run ORDER BY run"
SAME = "SELECT path, count FROM diagnostics WHERE code = 'same_recording'"
# Beside each, a file of the same kind that is no copy, where there is one.
FILES = [
    ("trace", "traces/ringll/rank0.json.gz", "traces/ringll/rank1.json.gz"),
    ("trace", "profiles/synthetic.nccl.nsys.sqlite", None),
    ("trace", "profiles/synthetic.rocpd.sqlite", None),
    ("trace", "profiles/synthetic.rpd", None),
    ("trace", "recorders/ddp.fr.rank0.json", "recorders/ddp.fr.rank1.json"),
    ("trace", "recorders/ddp.fr.rank1.pickle", None),
    (
        "trace",
        "recorders/node-1.4710.18eab1bfcad93c74.0.collrec",
        "recorders/node-1.4711.18eab1bfcad93c74.0.collrec",
    ),
    ("trace", "recorders/accl_profiler_rank2_node-1_pid4711_0x7f8c496ae9f661.jsonl", None),
    ("trace", "recorders/synthetic.inspector-v4.3.log", None),
    ("trace", "recorders/synthetic.clog.txt", None),
    ("trace", "recorders/synthetic.profiler-plugin.txt", None),
    ("trace", "recorders/replay.4711.node-1.json", None),
    ("trace", "recorders/synthetic.torchcomms_trace_rank_2.json", None),
    ("log", "nccl/ddp/rank0.log", "nccl/ddp/rank1.log"),
]


def ingest(kind: str, db: Path, *paths: Path) -> str:
    done = collscope("ingest", kind, *paths, "--db", db)
    assert done.code == 0, done.err
    return done.out


def report(db: Path) -> dict[str, object]:
    """A report without the files that it names, and without the notice of copies."""
    text = collscope("report", "--db", db, "--format", "json").out
    found = json.loads(text.replace(".gz", "").replace(str(db), "DB"))
    coverage = found["coverage"]
    coverage["sources"] = sorted({json.dumps(row, sort_keys=True) for row in coverage["sources"]})
    kept = [row for row in coverage["diagnostics"] if row["code"] != "same_recording"]
    coverage["diagnostics"] = kept
    for row in found["header"]["sources"]:
        row.pop("sources")
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "name", "other"), FILES)
def test_a_file_beside_its_compressed_copy(
    kind: str, name: str, other: str | None, samples: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    data = (samples / name).read_bytes()
    data = gzip.decompress(data) if name.endswith(".gz") else data
    plain = folder / Path(name).name.removesuffix(".gz")
    packed = folder / f"{plain.name}.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    further = [] if other is None else [samples / other]
    alone = tmp_path / "alone.db"
    ingest(kind, alone, plain, *further)
    expected = report(alone)
    for number, order in enumerate(
        ([(plain, packed)], [(packed,), (plain,)], [(plain,), (packed,)])
    ):
        db = tmp_path / f"{number}.db"
        for paths in order:
            said = ingest(kind, db, *paths, *further)
        assert "1 x same_recording" in said
        assert "several_periods" not in said
        assert rows(db, RUNS) == [("main", 2 + len(further))]
        copy = order[-1][-1]
        assert rows(db, SAME) == [(str(copy), 1)]
        assert report(db) == expected
        assert "already in this run" in ingest(kind, db, copy)
        assert rows(db, SAME) == [(str(copy), 1)]


# Of other kinds a file is known by its bytes.
OTHERS = [
    ("profile", "profiles/guide-top.txt"),
    ("profile", "profiles/frontier-perftools.txt"),
    ("profile", "profiles/key_averages.txt"),
    ("profile", "profiles/rocprofv3_kernel_stats.csv"),
    ("profile", "profiles/synthetic.nccl.nsys.sqlite"),
    ("profile", "profiles/synthetic.rocpd.sqlite"),
    ("profile", "profiles/synthetic.rpd"),
    ("profile", "profiles/synthetic.rpd2tracing.json"),
    ("profile", "profiles/synthetic.nsys-stats.txt"),
    ("csv", "replay/h200x2-rounds.csv"),
    ("table", "tables/synthetic.rccl-tests.jsonl"),
    ("table", "tables/synthetic.transferbench.txt"),
    ("table", "tables/synthetic.nccl-tests.txt"),
    ("metric", "tables/synthetic.megatron.log"),
]
PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}
# The line of a file, and of one that is known: what both count, and the labels of both.
ADDED = re.compile(r"^[^:]+: \w+: ([^;\n]+)(; labels? .+)?$", re.MULTILINE)
AGAIN = re.compile(
    r"^[^:]+: already in this run \(same bytes\), unchanged: \w+: ([^;\n]+)(; labels? .+)?$",
    re.MULTILINE,
)


@pytest.mark.parametrize("packed_first", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "end"),
    [(*file, end) for file, end in zip(OTHERS, itertools.cycle(PACKERS), strict=False)],
)
def test_a_compressed_copy_is_the_same_source(  # noqa: PLR0913, PLR0917 - a fixture each
    kind: str, name: str, end: str, packed_first: bool, samples: Path, tmp_path: Path, db_path: Path
) -> None:
    plain = tmp_path / Path(name).name
    packed = tmp_path / f"{plain.name}.{end}"
    plain.write_bytes((samples / name).read_bytes())
    packed.write_bytes(PACKERS[end](plain.read_bytes()))
    first, copy = (packed, plain) if packed_first else (plain, packed)
    added = ADDED.findall(ingest(kind, db_path, first))
    assert len(added) == 1
    before = dump(db_path)
    again = AGAIN.findall(ingest(kind, db_path, copy))
    assert dump(db_path) == before
    # What is known has the same labels, and counts among those of the first time.
    assert len(again) == 1
    assert again[0][1] == added[0][1]
    assert set(again[0][0].split(", ")) <= set(added[0][0].split(", "))


def test_labels_of_many_known_files_are_in_their_line(samples: Path, db_path: Path) -> None:
    csvs = [samples / "replay" / name for name in ("h200x2-rounds.csv", "h200x4-sweep.csv")]
    first = collscope("ingest", "csv", *csvs, "--quiet", "--db", db_path).out
    labels = [set(re.findall(r"'([^']+)'", line)) for line in first.splitlines() if "label" in line]
    again = collscope("ingest", "csv", *csvs, "--quiet", "--db", db_path).out
    line = next(line for line in again.splitlines() if "already in this run" in line)
    assert line.startswith("2 files: already in this run (same bytes), unchanged; labels ")
    assert set(re.findall(r"'([^']+)'", line)) == set().union(*labels)


def test_a_profile_beside_its_compressed_trace(
    samples: Path, tmp_path: Path, db_path: Path
) -> None:
    """The kernels of an SQLite file, read by two commands."""
    plain = samples / "profiles" / "synthetic.rpd"
    packed = tmp_path / "synthetic.rpd.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    ingest("profile", db_path, plain)
    assert "already in this run" in ingest("trace", db_path, packed)
    assert rows(db_path, RUNS) == [("main", 1)]


def test_a_trace_that_was_written_again(samples: Path, tmp_path: Path, db_path: Path) -> None:
    """As ``jq . -S`` does: other bytes, keys and order of names; the same events."""
    traces = samples / "traces" / "ringll"
    again = tmp_path / "rank0.json"
    document = json.loads(gzip.decompress((traces / "rank0.json.gz").read_bytes()))
    again.write_text(json.dumps(document, indent=2, sort_keys=True))
    said = ingest("trace", db_path, traces, again)
    assert "1 x same_recording" in said
    assert rows(db_path, RUNS) == [("main", 5)]


def _later(document: dict[str, list[dict[str, float]]]) -> None:
    for event in document["traceEvents"]:
        event["ts"] += 1.0


def _longer(document: dict[str, list[dict[str, float]]]) -> None:
    kernels = [e for e in document["traceEvents"] if str(e.get("cat")) == "kernel"]
    kernels[len(kernels) // 2]["dur"] += 0.5


@pytest.mark.parametrize("edit", [_later, _longer])
def test_other_times_are_another_recording(
    edit: Callable[[dict[str, list[dict[str, float]]]], None],
    samples: Path,
    tmp_path: Path,
    db_path: Path,
) -> None:
    """A microsecond later throughout, or one kernel that takes longer."""
    first = samples / "traces" / "ringll" / "rank0.json.gz"
    document = json.loads(gzip.decompress(first.read_bytes()))
    edit(document)
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    ingest("trace", db_path, first, tmp_path / "rank0.json")
    assert rows(db_path, SAME) == []
    assert rows(db_path, RUNS) == [("main", 1), ("main.2", 1)]


def test_a_copy_of_a_second_period(samples: Path, tmp_path: Path, db_path: Path) -> None:
    traces = samples / "traces"
    ingest("trace", db_path, traces / "default", traces / "ringll")
    copy = tmp_path / "rank2.json"
    copy.write_bytes(gzip.decompress((traces / "ringll" / "rank2.json.gz").read_bytes()))
    assert "1 x same_recording" in ingest("trace", db_path, copy)
    assert rows(db_path, RUNS) == [("main", 4), ("main.2", 5)]


def test_copies_in_merged_stores(samples: Path, tmp_path: Path, db_path: Path) -> None:
    first = samples / "traces" / "ringll" / "rank0.json.gz"
    copy = tmp_path / "rank0.json"
    copy.write_bytes(gzip.decompress(first.read_bytes()))
    stores = [tmp_path / "a.db", tmp_path / "b.db"]
    for store, path in zip(stores, (first, copy), strict=True):
        ingest("trace", store, path)
    done = collscope("merge", *stores, "--db", db_path)
    assert done.code == 0, done.err
    assert rows(db_path, RUNS) == [("main", 2)]
    assert rows(db_path, SAME) == [(str(copy), 1)]


def test_settings_count_a_process_once(samples: Path, tmp_path: Path, db_path: Path) -> None:
    """The launcher kept the output of all four ranks beside their logs."""
    logs = samples / "nccl" / "ddp"
    for log in logs.glob("*.log"):
        shutil.copy(log, tmp_path)
    kept = sorted(logs.glob("*.log"))
    (tmp_path / "job.out").write_text("start\n" + "".join(p.read_text() for p in kept))
    ingest("log", db_path, tmp_path)
    found = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    assert {(s["processes"], s["of_processes"]) for s in found["settings"]} == {(4, 4)}
    assert found["header"]["processes"] == 4


def test_processes_of_equal_ids_on_one_host_are_two(tmp_path: Path, db_path: Path) -> None:
    """Containers that share a host's name: process 7 of each is another rank."""
    for rank in range(2):
        head = f"n1:7:7 [{rank}] NCCL INFO "
        line = (
            f"{head}ncclCommInitRank comm 0x10 rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank}"
            f" busId {rank + 1}0 commId 0xab - Init COMPLETE\n"
        )
        setting = f"{head}NCCL_NVLS_ENABLE set by environment to 0.\n"
        (tmp_path / f"rank{rank}.log").write_text(setting + line)
    ingest("log", db_path, *sorted(tmp_path.glob("*.log")))
    found = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    assert [(s["processes"], s["of_processes"]) for s in found["settings"]] == [(2, 2)]
    assert found["header"]["processes"] == 2
