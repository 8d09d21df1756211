"""Lines that Megatron-LM, Megatron-DeepSpeed and Primus print of their iterations.

source  training_log of NVIDIA/Megatron-LM megatron/training/training.py, and of AMD-AGI/Primus
        (Megatron backend), whose figures have a mean of the last ones behind a slash
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import CUT_TEXT, Notes, ended_lines
from collscope.parsers.reader import Reader, anywhere

if TYPE_CHECKING:
    from collscope.parsers.hints import MetricHints

DIALECT = "iteration_lines"
_LONGEST = 4000  # characters of a line that is looked at
#  [2025-11-24 07:20:46] iteration        2/      10 | consumed samples:          512 | elapsed time
#  per iteration (ms): 19329.3 | mem usages: 0.6865 | throughput per GPU (TFLOP/s/GPU): 816.2 | …
#  iteration       10/      50 | … | elapsed time per iteration (ms): 1234.5/1240.2 | …
_LINE = re.compile(r"\biteration\s+(\d{1,12})\s*/\s*\d{1,12} \|")
_VALUE = r"\s*(\d{1,12}(?:\.\d{1,9})?)(?:/\d{1,12}(?:\.\d{1,9})?)?\s*(?=\||$)"
# A figure's pattern, name and unit, and whether more of it is better.
_FIGURES: tuple[tuple[re.Pattern[str], str, str, bool], ...] = (
    (re.compile(r"\|\s*elapsed time per iteration \(ms\):" + _VALUE),
     "elapsed_time_per_iteration", "ms", False),
    (re.compile(r"\|\s*throughput(?: per GPU)? \(TFLOPS?/s/GPU\):" + _VALUE, re.IGNORECASE),
     "throughput_per_gpu", "TFLOP/s/GPU", True),
    (re.compile(r"\|\s*tokens per GPU \(tokens/s/GPU\):" + _VALUE, re.IGNORECASE),
     "tokens_per_gpu", "tokens/s/GPU", True),
    (re.compile(r"\|\s*samples per second:" + _VALUE), "samples_per_second", "samples/s", True),
)  # fmt: skip
_AGAIN_TEXT = "Iterations that several lines print with the same figures count once."


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """Figures of every iteration; None where there are none."""
    notes = Notes()
    found: list[Metric] = []
    seen: set[tuple[str, ...]] = set()  # iteration and figures
    last = 0
    for last, line, ended in ended_lines(text):
        shown = line[:_LONGEST]
        begin = _LINE.search(shown) if "elapsed time per iteration" in shown else None
        if begin is None:
            continue
        values = [pattern.search(shown) for pattern, *_ in _FIGURES]
        if not ended:
            notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, line)
            continue
        key = (begin[1], *(value[1] for value in values if value))
        if key in seen:  # of another rank, or of a log that another file repeats
            notes.add(Severity.NOTICE, "counted_once", _AGAIN_TEXT, last, line)
            continue
        seen.add(key)
        found += [
            Metric(hints.name or name, float(value[1]), unit, higher, hints.label, last)
            for value, (_, name, unit, higher) in zip(values, _FIGURES, strict=True)
            if value
        ]
    if not found:
        return None
    return MetricSet(DIALECT, tuple(found), last, notes.diagnostics)


READER = Reader(
    DIALECT, "metric", anywhere, lambda source, hints: parse(source.text(), hints.metric)
)
