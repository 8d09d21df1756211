"""The verdict of a hang in its forms: text, Markdown, HTML, JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.hang.records import NO_ANSWER, NO_RECORDING
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import TEXT, Section, table
from collscope.writing import one_line, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.hang.records import Verdict, Waiting, Who

_WHAT = {
    "host_never_called": "did not make the call (its process sleeps, waits elsewhere, or skipped"
    " it)",
    "dead": "ended before the other ranks",
    "silent": "is silent",
    "gpu_not_finished": "still has the call open on its GPU, although a peer completed it",
    "different_call": "made a different call than its peers",
    "different_order": "made the calls of its groups in a different order",
    "extra_call": "made one call too many",
    "peer_missing": "did not make its side of the transfer",
    "not_initialised": "did not finish creating the communicator",
}
_WHAT_OF_SEVERAL = _WHAT | {
    "host_never_called": "did not make the call (their processes sleep, wait elsewhere, or skipped"
    " it)",
    "silent": "are silent",
    "different_call": "made other calls than their peers",
    "different_order": "made the calls of their groups in a different order",
    "gpu_not_finished": "still have the call open on their GPUs, although a peer completed it",
    "peer_missing": "did not make their side of the transfer",
}
ADVICE = {
    "host_never_called": "Check the rank's stack (py-spy dump) and its data loader.",
    "dead": "Check the rank's stderr and the system log of its machine (dmesg).",
    "silent": "Check the rank's exit status, the system log of its machine (dmesg), and whether its"
    " process is stopped.",
    "peer_missing": "Check the pipeline's schedule.",
    "gpu_not_finished": "Check the rank's GPU: Xid lines in the system log (dmesg), a kernel that"
    " does not end.",
    "not_initialised": "Check the rank's start, network and stderr.",
    "different_call": "Check the code that makes the call.",
    "different_order": "Check the code that makes the call.",
    "extra_call": "Check the code that makes the call.",
}  # by the first code of `Verdict.what`
# What is known of a silent rank, as the reasons have it, of one rank and of several.
_SILENT = {
    NO_RECORDING: "have no flight-recorder dump",
    NO_ANSWER: "do not answer the RAS service",
}
# What the code of a rank calls, where its peers call something else.
_OWN_CALL = {"different_call": "the mismatched call", "extra_call": "the extra call"}
_OF_CODE = {"different_call", "different_order", "extra_call"}
_RECORD = (
    "For the next run, set TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1 and "
    "TORCH_NCCL_ENABLE_TIMING=1 on every rank."
)
_OF_GROUP = re.compile(r"(\w+) (\d+) of group (.+)")
_MEMBERS = re.compile(r" \[(\d[\d, …]*)\]")
_TRANSFER = re.compile(r": (\d+) to (\d+)$")
_NAMED = 8  # ranks
_COUNTED = 4  # of more ranks the number is printed, too
_CANDIDATES = 16
_REASONS = 5


def render_hang(verdict: Verdict, fmt: str) -> str:
    """In text of at most ten lines, md, html or json."""
    if fmt == "json":
        return to_json(verdict)
    if fmt == "text":
        return "".join(f"{one_line(f'{head}: {text}')}\n" for head, text in verdict_lines(verdict))
    rows = table([("what", TEXT), ("answer", TEXT)], verdict_lines(verdict))
    return to_readable(fmt, "collscope hang", [Section("", (rows,))])


def verdict_line(verdict: Verdict) -> str:
    """The verdict in a line."""
    return ": ".join(("hang", *verdict_lines(verdict)[0]))


def verdict_lines(verdict: Verdict) -> list[tuple[str, str]]:
    """Head and text of each line."""
    lines = []
    if verdict.decided:
        lines.append(("Verdict", _named(verdict)))
    else:
        lines.append(("Verdict", "not decided."))
        if verdict.candidates:
            ranks = ", ".join(map(str, verdict.candidates[:_CANDIDATES]))
            more = _more(verdict.candidates, _CANDIDATES)
            lines.append(("Candidates", f"{_ranks(len(verdict.candidates))} {ranks}{more}."))
    if verdict.op is not None:
        number = "" if verdict.seq is None else f", call {verdict.seq}"
        group = "" if verdict.group is None else f" of {_group(verdict.group)}"
        lines.append(("Call that hangs", f"{verdict.op}{number}{group}."))
    if verdict.frames:
        lines.append(_code(verdict))
    if verdict.last_completed is not None and verdict.who:
        lines.append(_last_completed(verdict.last_completed, verdict.who[0].rank, verdict.group))
    if verdict.waiting.ranks:
        # Undecided: one of them may be the one that holds up the others.
        head = "Waiting" if verdict.decided else "Possibly waiting"
        lines.append((head, _waiting(verdict.waiting)))
    if verdict.certainty is not None:
        lines.append(("How sure", f"{verdict.certainty}.{_inferred(verdict)}"))
    lines.append(("Why", " ".join(verdict.reasons[:_REASONS])))
    if verdict.remarks:
        found = "; ".join(verdict.remarks[:2]) + _more(verdict.remarks, 2)
        lines.append(("Also reported", f"{found}."))
    lines.append(("What to do", ADVICE[verdict.what[0]] if verdict.decided else _RECORD))
    return lines


def _inferred(verdict: Verdict) -> str:
    """What of a likely verdict is inferred, where its reasons have recorded facts."""
    if verdict.certainty != "likely" or verdict.what != ("different_call",):
        return ""
    who = " and ".join(str(one.rank) for one in verdict.who[:_NAMED])
    several = len(verdict.who) > 1
    if len(verdict.who) > _NAMED:
        who = f"{len(verdict.who)} of them"
    return (
        f" The recorded calls differ; that rank{'s' * several} {who} "
        f"{'are' if several else 'is'} wrong is inferred."
    )


def _code(verdict: Verdict) -> tuple[str, str]:
    """Where the job's code made the call, and by which rank; JSON has PyTorch's frames, too."""
    frames = [frame for frame in verdict.frames if "/torch/" not in frame] or verdict.frames
    places = f"{', called from '.join(frames[:3])}."
    rank = verdict.frames_rank
    if rank is None:
        return "Code of the call", places
    waits = ", which waits," if verdict.decided and rank in verdict.waiting.which else ""
    call = "the call"
    if rank in {who.rank for who in verdict.who} and set(verdict.what) <= _OF_CODE:
        call = _OWN_CALL.get(verdict.what[0], "its call") if len(verdict.what) == 1 else "its call"
    return "Code", f"rank {rank}{waits} made {call} in {places}"


def _last_completed(last: str, rank: int, hangs_in: str | None) -> tuple[str, str]:
    other_group = not last.endswith(f" of group {hangs_in}")
    counted = " Each group counts its own calls." if other_group else ""
    call = _OF_GROUP.fullmatch(last)
    if call is not None:
        last = f"{call[1]}, call {call[2]} of {_group(call[3])}"
    return f"Last call that rank {rank} completed", f"{last}.{counted}"


def _group(name: str) -> str:
    """A group of ranks, with its members where the name lists them.

    >>> _group("1 [0, 1, 2, 3]"), _group("process group 2"), _group("3 [0, … 63]: 1 to 2")
    ('group 1 (ranks 0 to 3)', 'process group 2', 'group 3 (ranks 0, … 63), from rank 1 to rank 2')
    """
    kind = "" if name.startswith("process group") else "group "
    return kind + _TRANSFER.sub(r", from rank \1 to rank \2", _MEMBERS.sub(_members, name))


def _members(found: re.Match[str]) -> str:
    listed = found[1]
    return f" (ranks {listed if '…' in listed else _ranges([int(r) for r in listed.split(',')])})"


def _waiting(waiting: Waiting) -> str:
    several = "s" * (waiting.ranks > 1)
    who = f"{waiting.ranks:,} rank{several}"
    if waiting.which:
        total = f" ({who})" if waiting.ranks > _COUNTED else ""
        who = f"rank{several} {_ranges(waiting.which)}{total}"
    if not waiting.groups:
        return f"{who}."
    names = ", ".join(map(_group, waiting.groups[:3])) + _more(waiting.groups, 3)
    calls = "calls" if several else "a call"
    return f"{who}, in {calls} of {names}."


def _ranges(ranks: Sequence[int]) -> str:
    """Sorted ranks, those in a row as a range.

    >>> _ranges([0, 2, 3, 4, 8, 9])
    '0, 2 to 4, 8, 9'
    """
    rows: list[list[int]] = []
    for rank in ranks:
        if rows and rank == rows[-1][-1] + 1:
            rows[-1].append(rank)
        else:
            rows.append([rank])
    parts = [
        part
        for row in rows
        for part in ([f"{row[0]} to {row[-1]}"] if len(row) > 2 else map(str, row))
    ]
    more = f" and {len(parts) - _NAMED} more ranges" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _named(verdict: Verdict) -> str:
    number = len(verdict.who)
    names = _WHAT if number == 1 else _WHAT_OF_SEVERAL
    known = [
        one if number == 1 else several
        for one, several in _SILENT.items()
        if any(one in reason for reason in verdict.reasons)
    ]
    names = names | ({"silent": " and ".join(known)} if known else {})
    what = ", or ".join(names[name] for name in verdict.what)
    who = ", ".join(map(_who, verdict.who[:_NAMED])) + _more(verdict.who, _NAMED)
    return f"{_ranks(number)} {who} {what}."


def _more(values: tuple[object, ...], shown: int) -> str:
    return f" and {len(values) - shown} more" if len(values) > shown else ""


def _ranks(number: int) -> str:
    return "rank" if number == 1 else "ranks"


def _who(who: Who) -> str:
    parts = [
        f"host {who.host}" if who.host else "",
        f"process {who.pid}" if who.pid is not None else "",
        f"GPU {who.gpu}" if who.gpu is not None else "",
    ]
    where_it_runs = ", ".join(part for part in parts if part)
    return str(who.rank) + (f" ({where_it_runs})" if where_it_runs else "")
