"""The list of words that stay holds those that readers look for."""

from __future__ import annotations

import itertools
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from inputs import ROOT

from collscope.sanitize.names import Names
from collscope.sanitize.words import is_kept


def test_words_of_every_reader_are_in_the_list() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "library_words.py"))
    words = set((ROOT / "collscope" / "sanitize" / "words.txt").read_text("utf-8").split())
    found = {
        word
        for path in sorted((ROOT / "collscope" / "parsers").rglob("*.py"))
        for word in script["of_python"](path)
        if len(word) > 1
    }
    assert found - script["_NOT"] - words == set()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script in a copy of the project, whose list of words it may write."""
    copy = tmp_path / "scripts" / "library_words.py"
    copy.parent.mkdir()
    copy.write_bytes((ROOT / "scripts" / "library_words.py").read_bytes())
    (tmp_path / "native").symlink_to(ROOT / "native")
    package = tmp_path / "collscope"
    package.mkdir()
    for entry in (ROOT / "collscope").iterdir():
        if entry.name != "sanitize":
            (package / entry.name).symlink_to(entry)
    (package / "sanitize").mkdir()
    (package / "sanitize" / "words.txt").write_text("ncclCommInitRank\n")
    for library, source in (("nccl", "enqueue.cc"), ("rccl", "rocmwrap.cc")):
        sources = tmp_path / library / "src"
        sources.mkdir(parents=True)
        (sources / "init.cc").write_text(f'INFO("{library}Written %d");\n')
        (sources / source).write_text("")
    return copy


@pytest.mark.parametrize(
    ("checkouts", "error"),
    [
        ((), "library_words: two checkouts are needed. Name NCCL_CHECKOUT and RCCL_CHECKOUT."),
        (
            ("nccl",),
            "library_words: two checkouts are needed. Name NCCL_CHECKOUT and RCCL_CHECKOUT.",
        ),
        (("absent", "rccl"), "absent: no checkout of NCCL. Name a folder that holds NCCL's src/."),
        (("nccl", "native"), "native: no checkout of RCCL. Name a folder that holds RCCL's src/."),
        (("nccl", "nccl"), "nccl: no checkout of RCCL. Name a folder that holds RCCL's src/."),
        (("rccl", "nccl"), "rccl: no checkout of NCCL. Name a folder that holds NCCL's src/."),
    ],
)
def test_the_list_stays_where_a_checkout_is_missing(
    checkouts: tuple[str, ...], error: str, script: Path
) -> None:
    done = _written(script, *checkouts)
    assert (done.returncode, done.stderr.strip()) == (2, error)
    assert _words(script) == ["ncclCommInitRank"]


def test_the_list_has_words_of_both_libraries(script: Path) -> None:
    assert _written(script, "nccl", "rccl").returncode == 0
    assert {"ncclWritten", "rcclWritten"} < set(_words(script))


def _written(script: Path, *checkouts: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *checkouts],
        cwd=script.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def _words(script: Path) -> list[str]:
    return (script.parent.parent / "collscope" / "sanitize" / "words.txt").read_text().split()


def test_different_names_stay_different() -> None:
    names = Names(b"k", is_kept)
    hosts = [f"n{k}" for k in range(100)] + [f"node-{k}" for k in range(1000)]
    made = [names.name(host) for host in hosts]
    assert len(set(made)) == len(hosts)
    assert not [a for a, b in zip(hosts, made, strict=True) if a == b]
    pointers = [f"{0x7F3C91D2E4A0 + 4096 * k:x}" for k in range(1000)]
    moved = [int(names.pointer(p), 16) for p in pointers]
    assert {b - a for a, b in itertools.pairwise(moved)} == {4096}
    numbers = [names.number(str(10**12 + k)) for k in range(1000)]
    assert len(set(numbers)) == 1000
    assert {len(n) for n in numbers} == {13}
