"""The list of words that stay holds those that readers look for."""

from __future__ import annotations

import itertools
import runpy

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
