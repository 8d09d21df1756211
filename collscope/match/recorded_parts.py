"""Parts of one process's recording, as a recorder with bounded files leaves them, joined (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from collscope.model.trace import RecordedCalls


def join_recorded_parts(recordings: Sequence[RecordedCalls]) -> dict[int, RecordedCalls]:
    """Recordings of whole processes, by the place of their first part among those given.

    A part that is there twice counts once.
    """
    places: dict[object, dict[int, int]] = defaultdict(dict)
    for k, recorded in enumerate(recordings):
        key = k if recorded.process is None else (recorded.dialect, recorded.process)
        places[key].setdefault(recorded.part, k)
    found = {}
    for parts in places.values():
        own = [parts[part] for part in sorted(parts)]
        found[own[0]] = _joined([recordings[k] for k in own])
    return dict(sorted(found.items()))


def _joined(parts: Sequence[RecordedCalls]) -> RecordedCalls:
    """Parts in their order as one recording."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        calls=tuple(chain.from_iterable(part.calls for part in parts)),
        coverage="sample",  # what stands at the border of two parts may lack
        diagnostics=tuple(chain.from_iterable(part.diagnostics for part in parts)),
        callback_ns=parts[-1].callback_ns,
    )
