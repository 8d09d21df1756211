"""Reports on a copy are those on the original, but for names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT
from same_reports import differences

from collscope.sanitize.names import Names
from collscope.sanitize.text import Text
from collscope.sanitize.words import is_kept

KEY = "a secret of this test"
SAMPLES = ROOT / "samples"
JOBS = ("nccl/mixed", "nccl/ddp", "rccl", "traces/default", "traces/ringll", "replay")
FOLDERS = ("recorders", "profiles", "tables", "layers")
FILES = [path for folder in FOLDERS for path in sorted((SAMPLES / folder).iterdir())]
SINGLE = [*(str(path.relative_to(SAMPLES)) for path in FILES), "nccl/mixed-coll-only.log"]
# A reader knows a damaged heading by a word that it lacks there.
OTHER_RECORDERS = ("replay.*", "synthetic.clog*", "synthetic.*log", "*torchcomms*", "accl*")
DAMAGED_WORD = "tables/frontier-allreduce.txt"


def report(folder: Path, files: list[str], moved: pytest.MonkeyPatch) -> object:
    """What a run of files below the folder reports."""
    moved.chdir(folder)
    outcome = collscope("ingest", "auto", *files, "--db", "../run.db")
    if outcome.code:
        return outcome.err
    return json.loads(collscope("report", "--db", "../run.db", "--format", "json").out)


@pytest.mark.parametrize("job", JOBS)
def test_report_of_a_job_differs_in_names_alone(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    before, after = tmp_path / "before" / "job", tmp_path / "after" / "job"
    shutil.copytree(samples / job, before)
    after.parent.mkdir()
    outcome = collscope("sanitize", before, after, "--key", KEY)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    # In the order of the originals, which is that of sources in a store.
    files = sorted(str(p.relative_to(before)) for p in before.rglob("*") if p.is_file())
    text = Text(Names(KEY.encode(), is_kept))
    copies = [text.path(file) for file in files]
    found = differences(report(before, files, monkeypatch), report(after, copies, monkeypatch))
    assert "\n".join(found) == ""


@pytest.mark.parametrize("sample", SINGLE)
def test_report_of_a_file_differs_in_names_alone(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: str
) -> None:
    name = Path(sample).name
    before, after = tmp_path / "before" / "job", tmp_path / "after" / "job"
    before.mkdir(parents=True)
    after.mkdir(parents=True)
    shutil.copy(samples / sample, before / name)
    outcome = collscope("sanitize", before / name, after / name, "--key", KEY)
    if (samples / sample).read_bytes().startswith(b"SQLite"):
        assert outcome.code == 3
        assert "an SQLite file that is not a store" in outcome.err
        assert not list(after.iterdir())
        return
    assert outcome.code == 0, outcome.err
    found = differences(report(before, [name], monkeypatch), report(after, [name], monkeypatch))
    if sample == DAMAGED_WORD:
        found = [one for one in found if "damaged_header" not in one]
    assert "\n".join(found) == ""


def test_report_of_a_store_differs_in_names_alone(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
    runs = {
        "a": "nccl/mixed", "b": "traces/default", "c": "recorders", "d": "profiles",
        "e": "tables", "f": "replay",
    }  # fmt: skip
    for run, kind in runs.items():
        # No folder is called as a word of a report is. Of jobs that are one run by accident the
        # report shows the first classes alone, among equals in the order of names.
        shutil.copytree(samples / kind, f"x{run}", ignore=shutil.ignore_patterns(*OTHER_RECORDERS))
        collscope("ingest", "auto", f"x{run}", "--run", run, "--db", "before/run.db")
    outcome = collscope("sanitize", "before/run.db", "after/run.db", "--key", KEY)
    assert outcome.code == 0, outcome.err
    for run in runs:
        reports = []
        for side in ("before", "after"):
            monkeypatch.chdir(tmp_path / side)
            outcome = collscope("report", "--db", "run.db", "--run", run, "--format", "json")
            assert outcome.code == 0, outcome.err
            reports.append(json.loads(outcome.out))
        assert "\n".join(differences(*reports)) == ""
