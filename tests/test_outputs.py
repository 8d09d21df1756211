"""No output takes the place of a store or of an input, and killed commands leave nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import collscope, dump
from inputs import ROOT

from collscope.outputs import write_file

_TRACES = ROOT / "samples/traces"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    db = tmp_path / "a.db"
    assert collscope("ingest", "log", ROOT / "samples/nccl/ddp", "--db", db).code == 0
    return db


_WRITERS = (
    ("report", "-o"),
    ("report", "--plot"),
    ("report", "--format", "html", "-o"),
    ("sql", "select 1", "-o"),
    ("runs", "-o"),
    ("predict", "-o"),
    ("export", "perfetto", "-o"),
    ("whatif", "fusion", "resnet50", "-o"),
    ("replay", "--sweep", "allreduce:1K", "-n", "1", "--backend", "host", "--csv"),
    ("record", "--html"),
)


@pytest.mark.parametrize("command", _WRITERS, ids=" ".join)
@pytest.mark.parametrize("kind", ["itself", "linked", "hard", "relative", "other", "log"])
def test_no_output_replaces_a_store(
    store: Path, command: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what a name must end in to be a plot or a trace
    end = {"--plot": ".png", "perfetto": ".json"}
    name = store.with_name("a" + next((end[word] for word in command if word in end), ".x"))
    if kind == "linked":
        name.symlink_to(store)
    elif kind == "hard":
        name.hardlink_to(store)
    elif kind == "relative":
        monkeypatch.chdir(store.parent)
        name.symlink_to(store.name)
        name = Path(name.name)
    elif kind == "other":  # of no interest to the command, and yet a store
        shutil.copy(store, name)
    elif kind == "log":
        name = store.with_name("a.db-wal")
    else:
        name = store
    before, there = dump(store), name.exists()
    words: list[str | Path] = [*command, name, "--db", store]
    if command[0] == "record":
        words += ["--", "true"]
    done = collscope(*words)
    assert done.code in (2, 3), done.out + done.err  # 2: no name of a plot or trace
    assert done.code == 3 or name.suffix not in (".png", ".json", ".x")
    assert dump(store) == before != []
    assert name.exists() == there
    assert not list(store.parent.glob(".collscope-*"))


def test_no_output_replaces_an_input(tmp_path: Path) -> None:
    system = tmp_path / "mine.toml"
    shutil.copy(ROOT / "collscope/roofline/systems/h100.toml", system)
    alias = tmp_path / "alias"
    alias.hardlink_to(system)
    text = system.read_text()
    done = collscope("roofline", "--system", system, "-o", alias)
    assert (done.code, system.read_text()) == (3, text)
    assert done.err == (
        f"collscope: {alias}: an input of this command, which the output would overwrite."
        " Name another file.\n"
    )
    plan = tmp_path / "a.plan"
    plan.write_text(
        "collscope-plan 1\nmode unique\nnranks 1\ncomm 0 0\n"
        "class 0 op=AllReduce datatype=Float32 redop=Sum count=1024 in_place=1 comms=0\n"
    )
    text = plan.read_text()
    db = tmp_path / "new.db"
    done = collscope("replay", "--plan", plan, "--backend", "host", "--csv", plan, "--db", db)
    assert (done.code, plan.read_text()) == (3, text)
    # the same file may be an input of one command and the output of the next
    assert collscope("roofline", "--list", "-o", alias).code == 0


@pytest.mark.parametrize("command", _WRITERS, ids=" ".join)
@pytest.mark.parametrize("kind", ["absolute", "relative", "linked", "hard"])
def test_no_output_replaces_a_source_of_the_store(
    tmp_path: Path, command: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = {"--plot": ".png", "perfetto": ".json"}
    log = tmp_path / ("rank0" + next((end[word] for word in command if word in end), ".log"))
    shutil.copy(ROOT / "samples/nccl/ddp/rank0.log", log)
    before = log.read_bytes()
    monkeypatch.chdir(tmp_path)
    given = Path(log.name) if kind == "relative" else log
    assert collscope("ingest", "log", given, "--db", tmp_path / "a.db").code == 0
    name = given
    if kind in ("linked", "hard"):
        name = tmp_path / f"alias{log.suffix}"
        (name.symlink_to if kind == "linked" else name.hardlink_to)(log)
    words: list[str | Path] = [*command, name.absolute() if kind == "relative" else name]
    words += ["--db", tmp_path / "a.db"]
    if command[0] == "record":
        words += ["--", "true"]
    done = collscope(*words)
    assert log.read_bytes() == before, done.out + done.err
    assert done.code in (2, 3), done.out + done.err  # 2: no name of a page


def test_what_killed_commands_left_is_removed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from collscope.outputs import replaced\n"
        "with replaced(Path(sys.argv[1])) as file:\n"
        "    file.write(b'x')\n    file.flush()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    target = tmp_path / "report.md"
    subprocess.run([sys.executable, "-c", script, target], check=False)
    (left,) = tmp_path.glob(".collscope-*")
    number, place, _ = left.name.removeprefix(".collscope-").split("-")
    kept = [
        tmp_path / f".collscope-{os.getpid()}-{place}-00000000",  # of a process that runs
        tmp_path / f".collscope-{number}-0123456789abcdefx1-00000000",  # of another host
        tmp_path / f".collscope-{number}-00000000",  # of who knows
        tmp_path / ".collscope-replay-notes",
    ]
    for file in kept:
        file.touch()
    folder = tmp_path / f".collscope-{number}-{place}-11111111"
    folder.mkdir()
    write_file(target, "done\n")
    assert sorted(tmp_path.iterdir()) == sorted([target, folder, *kept])


def test_no_output_replaces_a_program_of_the_command(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text("#!/bin/sh\ntouch ran\n")
    job.chmod(0o755)
    before = job.read_bytes()
    done = collscope("record", "--html", job, "--db", tmp_path / "r.db", "--", job)
    assert (done.code, job.read_bytes()) == (3, before)
    plan = ("replay", "--sweep", "allreduce:1K", "-n", "1", "--backend", "host")
    done = collscope(*plan, "--replayer", job, "--csv", job, "--db", tmp_path / "r.db")
    assert (done.code, job.read_bytes()) == (3, before)


def test_two_outputs_are_two_files(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    done = collscope("report", "--db", store, "--format", "md", "-o", path, "--plot", path)
    assert done.code == 3
    assert "the output of -o" in done.err


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("command", [("log",), ("auto",), ("trace",)])
def test_an_empty_input_does_not_become_the_store(
    command: tuple[str, ...], link: bool, tmp_path: Path
) -> None:
    log, db = tmp_path / "e.log", tmp_path / "e.db"
    log.touch()
    if link:
        db.symlink_to(log)
    done = collscope("ingest", *command, log, "--db", db if link else log)
    assert done.code == 3
    assert "an empty input of this command. Name another file with --db." in done.err
    assert log.stat().st_size == 0
