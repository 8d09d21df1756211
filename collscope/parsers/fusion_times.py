"""What all calls of a network took by fusion threshold: the text of an all-reduce wrapper's test.

The figure is of all batches of a pass, one after the other, and of no single call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.units import count

if TYPE_CHECKING:
    from collscope.parsers.hints import MetricHints

DIALECT = "fusion_times"
# Fusion Threshold is 1 KB - Total Batches: 100
_THRESHOLD = re.compile(r"\s*Fusion Threshold is (\d{1,9} ?[KM]?B) - Total Batches: (\d{1,9})\s*")
# *****gpu per thread: 2 - Time: 2.310482182 sec (avg over repeated 10 times)*****
_TIME = re.compile(
    r"[\s*]*gpu per thread:\s*(\d{1,4}) - Time:\s*(\d{1,9}\.\d{1,12}) sec"
    r" \(avg over repeated \d{1,9} times\)[\s*]*"
)


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """Seconds of a pass, by threshold and batches; the label has the GPUs per thread.

    returns  None when there are none
    """
    found: list[Metric] = []
    name: str | None = None
    last = 0
    for last, raw in enumerate(text_lines(text), start=1):
        line = raw[:400]
        if threshold := _THRESHOLD.fullmatch(line):
            batches = count(int(threshold[2]), "batch", "batches")
            name = f"fusion threshold {threshold[1]}, {batches}: time"
        elif (time := _TIME.fullmatch(line)) and name is not None:
            label = hints.label or f"gpu per thread: {time[1]}"
            found.append(Metric(hints.name or name, float(time[2]), "s", False, label, last))
            name = None
    return MetricSet(DIALECT, tuple(found), last, ()) if found else None


READER = Reader(
    DIALECT, "metric", anywhere, lambda source, hints: parse(source.text(), hints.metric)
)
