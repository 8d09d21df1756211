"""The native scanner of PyTorch traces takes what msgspec takes, and gives the same records."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import parse
from trace_fuzz import damaged, retyped, sample_document

from collscope._tracescan import scan
from collscope.ingest.files import open_input
from collscope.parsers.traces import _array, kineto_slices
from collscope.parsers.traces.kineto_events import Arguments, Event
from collscope.store.trace_columns import encode_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Scan = Callable[[bytes, int, bool, int], dict[str, Any] | None]

SAMPLE = sample_document()
HIP = {"cat": "Kernel", "name": "ncclDevKernel_Generic(x)", "ph": "X", "dur": 3}
OTHERS = [
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "tid": 19, "ts": 7, "dur": 1,
     "args": {"stream": 21, "device": 0, "correlation": 5, "wait_on_cuda_event_id": 6}},
    {"ph": "X", "cat": "Runtime", "name": "hipGraphLaunch", "tid": "a", "ts": 8, "dur": 1,
     "args": {"correlation": 6}},
    {"ph": "s", "cat": "ac2g", "id": "8", "tid": 1, "ts": 9},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 9, "dur": 3},
    {**HIP, "ts": 10, "args": {"stream": "20", "device": "0", "correlation": 6}},
    {**HIP, "ts": 11.5, "tid": 3, "name": "\u2039k\u203a \"\\"},
]  # fmt: skip


@contextmanager
def scanner(replaced: _Scan) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_slices, "scan", replaced)
        yield


def told(text: bytes) -> list[object]:
    """All that a trace tells."""
    return [
        (encode_trace(file), file.diagnostics, file.library_version) for file in parse([text], "t")
    ]


def assert_same(text: bytes) -> None:
    with scanner(lambda *_: None):
        expected = told(text)
    assert told(text) == expected


def variant(seed: int) -> bytes:
    """Events of a sample and others, whole or damaged."""
    pick = random.Random(seed)
    events = SAMPLE["traceEvents"]
    begin = pick.randrange(len(events) - 20)
    chosen = [*events[begin : begin + pick.randrange(20)], *pick.sample(OTHERS, pick.randrange(3))]
    pick.shuffle(chosen)
    if pick.random() < 0.3:
        # Absolute times, with a fraction: floats do not hold them.
        chosen = [
            {**event, "ts": f"@{1682725898236000 + event['ts'] % 1000:.3f}@"}
            for event in chosen
            if "ts" in event
        ]
    whole: Any = {**SAMPLE, "traceEvents": chosen}
    if pick.random() < 0.4:
        whole = retyped(whole, pick)
    indent, ascii_only = pick.choice([None, 1]), pick.random() < 0.5
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    found = text.replace('"@', "").replace('@"', "").encode("utf-8", "surrogatepass")
    return damaged(found, pick) if pick.random() < 0.3 else found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_scanned_and_decoded_traces_are_equal(seed: int) -> None:
    assert_same(variant(seed))


def test_variants_are_scanned_and_refused_both() -> None:
    seen: dict[tuple[bool, bool], int] = {}

    def counted(text: bytes, end: int, exact: bool, origin_us: int) -> dict[str, Any] | None:
        found = scan(text, end, exact, origin_us)
        seen[exact, found is not None] = seen.get((exact, found is not None), 0) + 1
        return found

    with scanner(counted):
        for seed in range(200):
            parse([variant(seed)], "t")
    assert len(seen) == 4
    assert min(seen.values()) > 5


@pytest.mark.parametrize("record", [Event, Arguments])
@pytest.mark.parametrize("value", [{}, [{}], 1.5, 1, "1", None])
def test_fields_are_of_the_same_types(record: type[msgspec.Struct], value: object) -> None:
    for name in record.__struct_encode_fields__:
        if name == "args":
            continue
        event = {"ph": "X", "args": {name: value}} if record is Arguments else {"ph": "X"}
        text = json.dumps(event if record is Arguments else event | {name: value}).encode()
        try:
            msgspec.json.decode(text, type=Event, strict=False)
        except msgspec.ValidationError:
            assert scan(text, len(text), False, 0) is None, text
        else:
            converted = isinstance(value, str | float) or value == [{}]
            assert converted or scan(text, len(text), False, 0) is not None, text


@pytest.mark.parametrize("size", [400, 3000])
def test_a_slice_may_be_refused(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_array, "_SLICE", size)
    events = [*SAMPLE["traceEvents"][150:200], *OTHERS, *SAMPLE["traceEvents"][200:230]]
    assert_same(json.dumps({**SAMPLE, "traceEvents": events}).encode())


def test_recorded_traces_are_scanned(samples: Path, recordings: Path) -> None:
    def whole(text: bytes, end: int, exact: bool, origin_us: int) -> dict[str, Any]:
        found = scan(text, end, exact, origin_us)
        assert found is not None
        return found

    with scanner(whole):
        for path in sorted((samples / "traces").rglob("*.json.gz")):
            parse([gzip.decompress(path.read_bytes())], "t")
        for path in sorted(recordings.rglob("trace.rank0.json*")):
            with open_input(str(path)) as file:
                parse([file.read_all()], "t")
