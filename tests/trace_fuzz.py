"""Damaged variants of traces, for property tests and `python tests/trace_fuzz.py [VARIANTS]`.

`python tests/trace_fuzz.py seeds FILE` writes events for the fuzzing of the native scanner.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

_VALUES: list[Any] = [
    *(None, True, -1, 0, 2**63, -(2**70), 10**40, 1.5, -0.0, 1e308),
    *("", "x", "12", "[1, 2", "[0, 1, ...]", "\0", "\u2028", "-1", "9" * 50),
    *([], [[]], [1], ["a"], {}, {"a": 1}, [{"ph": "X"}, {"ph": "X"}]),
]
_PIECES = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"},{", b"}]", b"\xff", b"\0", b"1e999",
           b"NaN", b'"ph":"X"', b"\n", b"[" * 3000]  # fmt: skip


def retyped(value: Any, pick: random.Random) -> Any:  # noqa: ANN401
    """The same document with some values replaced by ones of other types."""
    if pick.random() < 0.04:
        return pick.choice(_VALUES)
    if isinstance(value, dict):
        return {k: retyped(v, pick) for k, v in value.items() if pick.random() > 0.02}
    if isinstance(value, list):
        return [retyped(item, pick) for item in value]
    return value


def damaged(text: bytes, pick: random.Random) -> bytes:
    """The same text cut, with bytes changed, left out, doubled or put in."""
    for _ in range(pick.randint(1, 6)):
        at = pick.randint(0, len(text))
        how = pick.randrange(5)
        if how == 0:
            text = text[:at]
        elif how == 1:
            text = text[:at] + bytes([pick.randrange(256)]) + text[at + 1 :]
        elif how == 2:
            text = text[:at] + text[at + pick.randint(0, 200) :]
        elif how == 3:
            text = text[:at] + pick.choice(_PIECES) + text[at:]
        else:
            text = text[:at] + text[max(0, at - pick.randint(0, 300)) :]
    return text


def sample_document() -> dict[str, Any]:
    """A recorded trace."""
    path = Path(__file__).parent.parent / "samples" / "traces" / "default" / "rank0.json.gz"
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def _seeds() -> list[bytes]:
    """Small documents: the beginning of a sample, and one rocprofv3 document."""
    from test_traces_rocprof import document

    whole = sample_document()
    whole["traceEvents"] = whole["traceEvents"][150:190]
    return [json.dumps(whole).encode(), json.dumps(whole, indent=1).encode(), document()]


def write_events(path: Path) -> None:
    """Events of a sample, one in a line, each followed by a comma."""
    events = sample_document()["traceEvents"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + ",\n" for event in events))


def main(variants: int) -> None:
    """Parse that many variants; an exception ends it with the variant's number."""
    from readers import parse

    seeds = _seeds()
    for number in range(variants):
        pick = random.Random(number)
        text = pick.choice(seeds)
        if number % 2:
            text = json.dumps(retyped(json.loads(text), pick)).encode()
        if number % 3 or not number % 2:
            text = damaged(text, pick)
        try:
            parse([text], "variant")
        except Exception as error:
            raise SystemExit(f"variant {number}: {error!r}") from error
    print(f"{variants} variants, no exception")


if __name__ == "__main__":
    if sys.argv[1:2] == ["seeds"]:
        write_events(Path(sys.argv[2]))
        sys.exit()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
