"""What became of one input."""

from __future__ import annotations

from dataclasses import dataclass, field

from collscope.errors import CollscopeError
from collscope.model import Diagnostic, Severity


@dataclass(frozen=True, slots=True)
class Ingested:
    """One input after ingest. `counts` says what it held, in words for the summary line.

    The last may be the run itself, matched, with what makes it more than one job.
    """

    path: str
    status: str  # added, replaced (read again), known (same bytes in the run), unusable, matched
    dialect: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    reason: str = ""  # why it is unusable
    code: str = ""  # the same, for programs: see `collscope.ingest.adding`

    @property
    def lost_data(self) -> bool:
        """True if the input was damaged or incomplete."""
        return any(d.severity in (Severity.DATA_LOSS, Severity.ERROR) for d in self.diagnostics)


class IngestInterruptedError(CollscopeError):
    """Ctrl-C ended an ingest; `results` are those of the inputs before, which are kept."""

    exit_code = 130

    def __init__(self, text: str, results: list[Ingested]) -> None:
        """Say `text` at the command's end."""
        super().__init__(text)
        self.results = results
