"""What became of one input."""

from __future__ import annotations

from dataclasses import dataclass, field

from collscope.model import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Ingested:
    """One input after ingest. `counts` says what it held, in words for the summary line."""

    path: str
    status: str  # added, replaced (read again), known (same bytes already in the run), unusable
    dialect: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    reason: str = ""  # why it is unusable

    @property
    def lost_data(self) -> bool:
        """True if the input was damaged or incomplete."""
        return any(d.severity in (Severity.DATA_LOSS, Severity.ERROR) for d in self.diagnostics)
