"""Iterations of Megatron-LM and Primus."""

from __future__ import annotations

from inputs import ROOT

from collscope.model import MetricSet
from collscope.parsers.hints import Hints, MetricHints
from collscope.parsers.iteration_lines import parse
from collscope.parsers.registry import read_bytes

TEXT = (ROOT / "samples/tables/synthetic.megatron.log").read_text()
TIME, RATE, TOKENS = "elapsed_time_per_iteration", "throughput_per_gpu", "tokens_per_gpu"
EXPECTED = [
    (TIME, 9000.0, "ms", False, 3), (RATE, 80.0, "TFLOP/s/GPU", True, 3),
    (TIME, 1200.5, "ms", False, 4), (RATE, 600.0, "TFLOP/s/GPU", True, 4),
    (TIME, 1199.5, "ms", False, 5), (RATE, 600.5, "TFLOP/s/GPU", True, 5),
    (TOKENS, 13653.3, "tokens/s/GPU", True, 5),
]  # fmt: skip


def test_each_iteration_has_its_figures_once() -> None:
    found = parse(TEXT, MetricHints())
    assert found is not None
    assert [
        (m.name, m.value, m.unit, m.higher_is_better, m.line) for m in found.metrics
    ] == EXPECTED
    assert [(d.code, d.count) for d in found.diagnostics] == [("counted_once", 1)]


def test_they_are_figures_of_a_text() -> None:
    found = read_bytes("metric", TEXT.encode(), Hints())
    assert isinstance(found, MetricSet)
    assert (found.dialect, len(found.metrics)) == ("iteration_lines", 7)


def test_a_line_without_its_end_is_left_out() -> None:
    found = parse(TEXT[: TEXT.rindex("lm loss")], MetricHints())
    assert found is not None
    assert [d.code for d in found.diagnostics] == ["cut_row"]
    assert len(found.metrics) == len(EXPECTED)


def test_other_lines_have_none() -> None:
    assert (
        parse("iteration 3/5 | loss: 1.0 |\nelapsed time per iteration (ms): 5\n", MetricHints())
        is None
    )
