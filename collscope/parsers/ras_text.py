"""Text of NCCL's and RCCL's RAS service (``ncclras``, from NCCL 2.24): its view of a job.

An answer is a snapshot, and lists the ranks that stand out. They are notices; the figures are the
sizes of the communicators.
"""

from __future__ import annotations

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._ras import RasCommunicator, answers, is_text
from collscope.parsers._rows import line_count
from collscope.parsers.hints import MetricHints
from collscope.parsers.reader import Reader, whole_if

DIALECT = "ras_text"
_NAMED = 8  # ranks named in a message
_CUT_TEXT = "The answer ends early: part of its list of ranks may be missing."
_SILENT_TEXT = "The service lists no rank that is behind or missing."


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """Ranks that answered, of each communicator that the answer lists.

    returns  diagnostics: ranks that did not answer, or launched fewer calls than others; None where
             the text holds no answer
    """
    notes = Notes()
    found: list[Metric] = []
    number = 0
    for number, answer in enumerate(answers(text), start=1):
        if not answer.complete:
            notes.add(Severity.DATA_LOSS, "cut_answer", _CUT_TEXT, line_count(text))
        for communicator in answer.communicators:
            missing = sum(rank.missing for rank in communicator.ranks)
            if communicator.size is not None:
                label = hints.label or f"{communicator.name} answer {number}"
                there = communicator.size - missing
                found.append(Metric("ranks that answered", there, "ranks", None, label, 1))
            _note(communicator, notes)
    if not number:
        return None
    if not found and not notes.diagnostics:
        notes.add(Severity.NOTICE, "ras_no_rank_listed", _SILENT_TEXT, 1)
    return MetricSet(DIALECT, tuple(found), line_count(text), notes.diagnostics)


def _note(communicator: RasCommunicator, notes: Notes) -> None:
    missing = [rank.rank for rank in communicator.ranks if rank.missing]
    if missing:
        message = f"Ranks of {communicator.size}-rank communicators did not answer RAS."
        excerpt = f"{communicator.name}: {_few(missing)}"
        notes.add(Severity.NOTICE, "ras_missing_ranks", message, 1, excerpt)
    for op in dict.fromkeys(op for rank in communicator.ranks for op, _ in rank.counts):
        made = {
            rank.rank: n for rank in communicator.ranks for name, n in rank.counts if name == op
        }
        behind = [rank for rank, n in made.items() if n < max(made.values())]
        if behind:
            message = (
                "Some ranks of a communicator have launched fewer calls of an operation than "
                "others. 'collscope hang' finds the rank that holds them up."
            )
            least = min(made.values())
            excerpt = f"{communicator.name}: {op} {max(made.values())}, but {_few(behind)} {least}"
            notes.add(Severity.NOTICE, "ras_ranks_behind", message, 1, excerpt)


def _few(ranks: list[int]) -> str:
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:_NAMED]))}{more}"


READER = Reader(
    DIALECT, "metric", whole_if(is_text), lambda source, hints: parse(source.text(), hints.metric)
)
