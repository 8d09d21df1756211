"""Which line of a text is the title of what follows it."""

from __future__ import annotations

import re

# srun -n16 … / $ command / NAME=value … / log lines / code
_NO_PROSE = re.compile(
    r"\b(?:srun|mpirun|mpiexec)\b|_perf(?:_mpi)?\b|^\W*\$|^\w+=|NCCL (?:INFO|WARN)|[;{}]$"
)
_LONGEST = 120
_FENCE = "```"  # of Markdown


class Titles:
    """The last paragraph of one line of prose, or Markdown heading below the first level."""

    def __init__(self) -> None:
        """Have no title."""
        self.title: str | None = None
        self._paragraph: list[str] = []
        self._fenced = False  # inside of a code block, where lines are a program's

    def read(self, line: str) -> None:
        """Take one line. A line that begins with a single # is a program's comment."""
        if line.startswith(_FENCE):
            self._fenced = not self._fenced
        elif self._fenced:
            return
        heading = line.startswith("##")
        if line.strip() and not heading:
            self._paragraph.append(line[: 2 * _LONGEST])
            return
        alone = [line] if heading else self._paragraph
        self._paragraph = []
        if len(alone) != 1:
            return
        text = alone[0].strip()
        comment = text.startswith("#") and not heading
        text = text.lstrip("#* ").rstrip("*: ")
        # A heading ends the section above it, also if it names a program.
        if text and not comment and (heading or not _NO_PROSE.search(text)):
            self.title = text[:_LONGEST]
