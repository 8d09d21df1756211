"""Damages of NCCL and RCCL text logs, one file for each rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random

from damages import Damage, Damaged, Files, one, some, without_one

_CALL = re.compile(
    rb"NCCL INFO (\w+): opCount (\w+) .* count (\d+) .* comm (0x\w+) \[nranks=(\d+)\]"
)
_TUNING = re.compile(rb"NCCL INFO (\w+): (\d+) Bytes -> Algo")
_COMPLETE = re.compile(rb"commId (0x\w+) .*(?:Init COMPLETE|Init START)")

Lines = list[bytes]


def _by_rank(lines: Lines) -> list[tuple[bytes, ...]]:
    """Operation and count of the collectives of all ranks, in order."""
    return [m.group(1, 3) for line in lines if (m := _CALL.search(line)) and m[1] not in _P2P]


_P2P = (b"Send", b"Recv")


def _comparable(files: Files) -> bool:
    """Whether ranks of one world are here whose undamaged lines are the same calls."""
    each = [Counter(_by_rank(data.splitlines())) for data in files.values()]
    return len(each) > 1 and all(c == each[0] for c in each)


def _judged(before: Files, after: Files, undecided: str, why: str | None = None) -> Damaged:
    """By the given reason, or by what the ranks' lines say against each other.

    All ranks of a communicator log the same collectives, and each call's TUNING line repeats its
    operation: a call that only some ranks logged, or a TUNING line more than calls, is a loss.
    """
    if why is not None:
        return Damaged(after, True, why)
    if _two_sizes(after):
        return Damaged(after, True, "one communicator with two numbers of ranks")
    if _comparable(before) and not _comparable(after):
        return Damaged(after, True, "the ranks do not log the same calls")
    for name, data in after.items():
        if data and not data.endswith(b"\n") and before.get(name, b"\n").endswith(b"\n"):
            return Damaged(after, True, "the last line has no end")
        lines, old = data.splitlines(), before[name].splitlines() if name in before else []
        if sum(map(_tuned_alone, lines, lines[1:])) > sum(map(_tuned_alone, old, old[1:])):
            return Damaged(after, True, "a TUNING line without its call before it")
    return Damaged(after, False, undecided)


def _tuned_alone(line: bytes, following: bytes) -> bool:
    tuned, call = _TUNING.search(following), _CALL.search(line)
    return tuned is not None and call is not None and tuned[1] != call[1]


def _lines(
    change: Callable[[Lines, Random, float], Lines], undecided: str, why: str | None = None
) -> Callable[[Files, Random, float], Damaged | None]:
    """A damage by a change of the lines of one file, or of all of them."""

    def apply(files: Files, draw: Random, severity: float) -> Damaged | None:
        out = dict(files)
        for name in some(files, draw):
            lines = files[name].splitlines(keepends=True)
            out[name] = b"".join(change(lines, draw, severity))
        return None if out == dict(files) else _judged(files, out, undecided, why)

    return apply


def _gone(test: Callable[[bytes], object]) -> Callable[[Lines, Random, float], Lines]:
    return lambda lines, draw, part: [x for x in lines if not (test(x) and draw.random() < part)]


def _interval(lines: Lines, draw: Random, part: float) -> Lines:
    size = max(1, int(len(lines) * part))
    at = draw.randrange(len(lines) - size + 1)
    return lines[:at] + lines[at + size :]


def _tail(lines: Lines, _draw: Random, part: float) -> Lines:
    return lines[: int(len(lines) * (1 - part))]


def _doubled(lines: Lines, draw: Random, part: float) -> Lines:
    return [x for x in lines for _ in range(1 + (draw.random() < part))]


def _swapped(lines: Lines, draw: Random, part: float) -> Lines:
    out = list(lines)
    for i in range(len(out) - 1):
        if draw.random() < part:
            out[i], out[i + 1] = out[i + 1], out[i]
    return out


def _interleaved(lines: Lines, draw: Random, part: float) -> Lines:
    """Two writers on one file: a line's rest stands behind the line after it."""
    out, i = [], 0
    while i < len(lines):
        if i + 1 < len(lines) and draw.random() < part and len(lines[i]) > 20:
            at = draw.randrange(10, len(lines[i]) - 1)
            out += [lines[i][:at] + lines[i + 1], lines[i][at:]]
            i += 2
        else:
            out.append(lines[i])
            i += 1
    return out


def _in_calls(
    pattern: bytes, to: Callable[[bytes, Random], bytes]
) -> Callable[[Lines, Random, float], Lines]:
    find = re.compile(pattern)

    def change(lines: Lines, draw: Random, part: float) -> Lines:
        out = []
        for x in lines:
            m = find.search(x) if _CALL.search(x) and draw.random() < part else None
            out.append(x if m is None else x[: m.start(1)] + to(m[1], draw) + x[m.end(1) :])
        return out

    return change


def _digit(number: bytes, draw: Random) -> bytes:
    at = draw.randrange(len(number))
    return (number[:at] + number[at + 1 :]) or b"0"


def _hole(files: Files, draw: Random, part: float) -> Damaged:
    name = one(files, draw)
    data = files[name]
    size = max(1, int(len(data) * part))
    at = draw.randrange(1, len(data) - size)
    return _judged(
        files, {**files, name: data[:at] + data[at + size :]}, "lines of no call, or of one world"
    )


def _torn(files: Files, draw: Random, part: float) -> Damaged:
    out = dict(files)
    for name in some(files, draw):
        at = int(len(files[name]) * (1 - part)) - 1
        while files[name][at - 1 : at] == b"\n":
            at -= 1
        out[name] = files[name][:at]
    return _judged(files, out, "", "the last line has no end")


def _torn_in_call(files: Files, draw: Random, _part: float) -> Damaged:
    # As a killed job leaves it: the last line is the beginning of a call's.
    out = dict(files)
    for name in some(files, draw):
        calls = list(re.finditer(rb"[^\n]*opCount[^\n]*\n", files[name]))
        last = calls[len(calls) // 2 :][0]
        at = draw.randrange(last.start() + 5, last.end() - 1)
        out[name] = files[name][:at]
    return _judged(files, out, "", "the last line has no end")


def _cut_clean(files: Files, _draw: Random, part: float) -> Damaged:
    # All ranks end after the same call: such a log is one of a shorter job.
    out = {}
    for name, data in files.items():
        lines = data.splitlines(keepends=True)
        calls = [i for i, x in enumerate(lines) if _CALL.search(x)]
        out[name] = b"".join(lines[: calls[int(len(calls) * (1 - part))]])
    return _judged(files, out, "all ranks are cut cleanly at one place")


def _concatenated(files: Files, draw: Random, _part: float) -> Damaged:
    out = dict(files)
    for name in some(files, draw):
        out[name] = files[name] * 2
    # commId is random, and each communicator begins once on a rank.
    found = any(_COMPLETE.search(data) for data in files.values())
    return Damaged(out, found, "one commId begins twice" if found else "no communicator begins")


def _file_twice(files: Files, draw: Random, _part: float) -> Damaged:
    name = one(files, draw)
    found = _COMPLETE.search(files[name]) is not None
    out = {**files, f"again-{name}": files[name] + b"\n"}
    return Damaged(out, found, "one rank of one commId twice" if found else "no commId")


def _ranks_swapped(files: Files, draw: Random, _part: float) -> Damaged | None:
    names = sorted(files)
    if len(names) < 2:
        return None
    out = dict(files)
    a, b = draw.sample(names, 2)
    size = len(files[a]) // 2
    at, bt = files[a].find(b"\n", size) + 1, files[b].find(b"\n", size) + 1
    out[a], out[b] = files[a][:at] + files[b][bt:], files[b][:bt] + files[a][at:]
    return Damaged(out, True, "process ids change in the middle of a file")


def _two_starts(files: Files, draw: Random, _part: float) -> Damaged | None:
    if len(files) < 2 or not any(_COMPLETE.search(d) for d in files.values()):
        return None
    # Another start of the same job has other commIds; one rank's file is of it.
    name = one(files, draw)
    data = re.sub(rb"commId 0x(\w)", lambda m: b"commId 0x%x" % (int(m[1], 16) ^ 5), files[name])
    return Damaged({**files, name: data}, True, "ranks of one commId are missing")


def _pointer(lines: Lines, draw: Random, part: float) -> Lines:
    return _in_calls(rb"comm 0x(\w+) \[", lambda p, d: p[:-3] + b"%03x" % d.randrange(4096))(
        lines, draw, part
    )


def _repeated(lines: Lines, draw: Random, part: float) -> Lines:
    size = max(1, int(len(lines) * part))
    at = draw.randrange(len(lines) - size + 1)
    return lines[: at + size] + lines[at:]


def _shortened(lines: Lines, draw: Random, part: float) -> Lines:
    return [x[:120].rstrip(b"\n") + b"\n" if draw.random() < part else x for x in lines]


def _two_sizes(files: Files) -> bool:
    """Whether one communicator's calls of a file name two numbers of ranks."""
    for data in files.values():
        sizes: dict[bytes, bytes] = {}
        for m in _CALL.finditer(data):
            if sizes.setdefault(m[4], m[5]) != m[5]:
                return True
    return False


def _counted_gap(files: Files, draw: Random, part: float) -> Damaged | None:
    """opCount rises by one with each call, and some calls between are in no rank's log."""
    if not _comparable(files) or any(_P2P_LINE.search(d) for d in files.values()):
        return None
    calls = min(len(_CALL.findall(data)) for data in files.values())
    size = max(1, int(calls * part))
    if calls < size + 2:
        return None
    at = draw.randrange(1, calls - size)
    out = {}
    for name, data in files.items():
        number, kept = -1, []
        for line in data.splitlines(keepends=True):
            number += _CALL.search(line) is not None
            if not (at <= number < at + size and (_CALL.search(line) or _TUNING.search(line))):
                kept.append(re.sub(rb"opCount \w+", b"opCount %x" % max(number, 0), line))
        out[name] = b"".join(kept)
    return Damaged(out, True, "opCount has a gap on all ranks")


def _other_init(files: Files, draw: Random, _part: float) -> Damaged | None:
    """The INIT lines of one rank give twice the ranks that its calls give."""
    name = one(files, draw)
    change = rb"(n[rR]anks )(\d+)(?!\])"
    cut = re.sub(change, lambda m: m[1] + str(2 * int(m[2])).encode(), files[name])
    if cut == files[name] or not _COMPLETE.search(cut) or not _CALL.search(cut):
        return None
    return Damaged({**files, name: cut}, True, "INIT lines and calls give other numbers of ranks")


_P2P_LINE = re.compile(rb"NCCL INFO (?:Send|Recv): opCount")
_SAME = "no call's line changed, or only one rank's are here"
_ANY = (0.01, 0.1, 0.4)

DAMAGES = (
    Damage("lines gone", _lines(_gone(lambda _: True), _SAME), _ANY),
    Damage("lines of calls gone", _lines(_gone(_CALL.search), _SAME), _ANY),
    Damage("TUNING lines gone", _lines(_gone(_TUNING.search), "TUNING may be off"), (0.1, 1.0)),
    Damage("lines of an interval gone", _lines(_interval, _SAME), _ANY),
    Damage("last lines gone", _lines(_tail, _SAME), _ANY),
    Damage("lines doubled", _lines(_doubled, "equal calls may follow each other"), _ANY),
    Damage("neighbouring lines swapped", _lines(_swapped, _SAME), _ANY),
    Damage("lines interleaved", _lines(_interleaved, _SAME), _ANY),
    Damage("counts lose a digit", _lines(_in_calls(rb" count (\d+)", _digit), _SAME), _ANY),
    Damage("counts doubled", _lines(_in_calls(rb" count (\d+)", lambda n, _: n + n), _SAME), _ANY),
    Damage(
        "comm pointers changed",
        _lines(_pointer, "", "calls on a communicator that never begins, in files that hold INITs"),
        _ANY,
    ),
    Damage(
        "nranks lose a digit",
        _lines(_in_calls(rb"nranks=(\d+)", _digit), "all calls of the file changed alike"),
        _ANY,
    ),
    Damage("bytes gone from the middle", _hole, (0.0005, 0.02, 0.3)),
    Damage("end torn off", _torn, (0.0, 0.05, 0.4)),
    Damage("torn within a call", _torn_in_call, (1.0,)),
    Damage("all ranks cut at one call", _cut_clean, (0.2, 0.5)),
    Damage("a file after itself", _concatenated, (1.0,)),
    Damage("a file twice", _file_twice, (1.0,)),
    Damage("a rank's file gone", without_one("nranks is more than there are files"), (1.0,)),
    Damage("halves of two ranks' files swapped", _ranks_swapped, (1.0,)),
    Damage("a rank's file of another start", _two_starts, (1.0,)),
    Damage("calls of all ranks gone, opCount rises", _counted_gap, _ANY),
    Damage("another number of ranks in INIT", _other_init, (1.0,)),
    Damage("lines of an interval repeated", _lines(_repeated, _SAME), _ANY, exam=True),
    Damage("lines cut at 120 bytes", _lines(_shortened, _SAME), _ANY, exam=True),
)
