"""Damaged recorder files and tables through every parser: `python tests/fuzz_recorders.py 100000`.

Prints the seed and the input's name of the first exception; the input is made again from both.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from readers import sniff

from collscope import stamps
from collscope.match import consistency
from collscope.match.recordings import recorded_groups
from collscope.parsers import deepspeed, key_averages, perftools, registry

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
_DIALECTS = [
    import_module(f"collscope.parsers.{d}")
    for d in registry.DIALECTS["trace"]
    if d.startswith("recorders.")
]
_TOKENS = [
    b"-1", b"0", b"1e999", b"99999999999999999999999", b"null", b"{", b"}", b"[", b"]", b'"', b"\n",
    b"\x00", b"\xff\xff\xff\x7f", b"NaN", b"\x80\x02", b"(nil)", b" : [", b"\t", b"|", b"%", b"us",
]  # fmt: skip
_WINDOW = 3000


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A stretch of a file with one to six changes."""
    start = rng.randrange(max(len(data) - _WINDOW, 1)) if rng.random() < 0.5 else 0
    out = bytearray(data[start : start + _WINDOW])
    for _ in range(rng.randint(1, 6)):
        place, end = sorted((rng.randrange(len(out) + 1), rng.randrange(len(out) + 1)))
        end = min(end, place + rng.choice((1, 8, 200)))
        kind = rng.randrange(5)
        if kind == 0:
            del out[place:end]
        elif kind == 1:
            out[place:place] = rng.choice(_TOKENS)
        elif kind == 2:
            out[place:end] = bytes(rng.randrange(256) for _ in range(end - place))
        elif kind == 3:
            out[place:place] = out[place:end]
        else:
            out[place : place + 8] = rng.choice(_TOKENS)
    return bytes(out)


def parse_all(data: bytes, name: str) -> None:
    """Through every parser, chosen or not, the check of its times, and the comparison."""
    sniff(data)
    # As the readers do: what is no time reaches no arithmetic.
    found = [stamps.believed_recording(module.parse(data, name)) for module in _DIALECTS]
    consistency.check(found)
    for recorded in found:
        recorded_groups([recorded])
    text = data.decode("utf-8", errors="replace")
    for module in (key_averages, deepspeed, perftools):
        module.sniff_text(text)
        module.parse(text)
    key_averages.tables(text)


def run(
    files: Mapping[str, bytes], read: Callable[[bytes, str], object], variants: int, seed: int
) -> None:
    """Read that many damaged inputs, and name the first that raises."""
    names = sorted(files)
    slowest = (0.0, "", 0)
    for number in range(seed, seed + variants):
        name = names[number % len(names)]
        data = damaged(files[name], random.Random(number))
        begin = time.process_time()
        try:
            read(data, name)
        except Exception:
            print(f"seed {number}, {name}")
            raise
        slowest = max(slowest, (time.process_time() - begin, name, number))
    print(f"{variants} variants of {len(names)} samples, no exception; slowest {slowest}")


def numbers() -> tuple[int, int]:
    """Variants and first seed, as the command line has them."""
    return int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 0


def _files() -> dict[str, bytes]:
    from recorder_builder import recording

    paths = [*(SAMPLES / "recorders").iterdir(), *(SAMPLES / "profiles").glob("*.txt")]
    files = {path.name: path.read_bytes() for path in paths}
    return files | {"a.1.h": recording(acc=False), "a.2.h": recording(acc=True)}


if __name__ == "__main__":
    run(_files(), parse_all, *numbers())
