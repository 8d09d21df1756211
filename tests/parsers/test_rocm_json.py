"""Documents for chrome://tracing of rocprof v1 and rpd2tracing."""

from __future__ import annotations

import pytest
from inputs import ROOT

from collscope.model import ProfileSet
from collscope.parsers.hints import Hints
from collscope.parsers.registry import read_bytes
from collscope.parsers.rocm_json import parse

ROCPROF = (ROOT / "samples/profiles/synthetic.rocprof_v1.json").read_text()
RPD = (ROOT / "samples/profiles/synthetic.rpd2tracing.json").read_text()
NCCL = "ncclDevKernel_Generic_4"
EXPECTED = {
    "rocprof_v1_json": [
        (NCCL, "kernel", "2", 60_100), ("CopyHostToDevice", "copy", "2", 40_000),
    ],
    "rpd2tracing": [
        ("Cijk_Ailk_Bljk_SB", "kernel", "2", 100_000),
        (f"{NCCL}(ncclDevKernelArgsStorage<4096ul>)", "kernel", "2", 60_000),
        ("CopyHostToDevice", "copy", "2", 40_000),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "dialect"), [(ROCPROF, "rocprof_v1_json"), (RPD, "rpd2tracing")])
def test_kernels_and_copies_of_the_gpus_and_nothing_of_the_host(text: str, dialect: str) -> None:
    found = read_bytes("profile", text.encode(), Hints())
    assert isinstance(found, ProfileSet)
    (table,) = found.tables
    assert table.profile.dialect == dialect
    rows = [(t.name, t.kind, t.device, t.total_ns) for t in table.profile.totals]
    assert rows == EXPECTED[dialect]


def test_whole_microseconds_are_noted() -> None:
    assert [d.code for d in parse(RPD).diagnostics] == ["whole_microseconds"]
    assert parse(ROCPROF).diagnostics == ()


@pytest.mark.parametrize(
    ("text", "place", "kept"), [(ROCPROF, '"EndNs":"773902396660226"', 1), (RPD, "Cijk", 2)]
)
def test_a_cut_document_has_the_events_before(text: str, place: str, kept: int) -> None:
    profile = parse(text[: text.index(place)])
    assert len(profile.spans) == kept
    assert "cut_json" in [d.code for d in profile.diagnostics]


def test_times_that_are_none_are_counted() -> None:
    profile = parse(RPD.replace('"dur":"60"', '"dur":"-60"').replace('"dur":"40"', '"dur":"x"'))
    assert [(d.code, d.count) for d in profile.diagnostics][:1] == [("bad_number", 2)]
