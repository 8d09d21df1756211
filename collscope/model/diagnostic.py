"""Problems in the content of a source, counted."""

from __future__ import annotations

from enum import Enum

import msgspec

# Codes of diagnostics that make figures of a run's traces unknown: they are in no number.
TIMES_UNKNOWN = (
    "overlapping_rows",
    "ends_after_wait",
    "disordered_rows",
    "zero_length_kernels",
    "many_kernels_lost",
    "ends_apart",
    "clock_jump",
    "clock_drift",
)
STEPS_UNKNOWN = ("steps_differ", "launches_unknown")


class Severity(Enum):
    """How bad a diagnostic is."""

    INFO = "info"
    NOTICE = "notice"
    DATA_LOSS = "data_loss"
    ERROR = "error"


class Diagnostic(msgspec.Struct, frozen=True):
    """One kind of content problem in one source, counted."""

    severity: Severity
    code: str  # stable snake_case name, for instance "torn_line"
    message: str  # one sentence for people
    line: int | None = None  # first line it was seen at, 1-based
    excerpt: str | None = None  # that line, at most 200 characters
    count: int = 1
