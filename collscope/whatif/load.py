"""What a what-if needs from the store: a run's all-reduces in order, and measured times."""

from __future__ import annotations

import sqlite3

import msgspec

from collscope.errors import InputError, NoVerdictError
from collscope.model import Datatype, Measurement, Op
from collscope.model.note import Note
from collscope.store.measurements import StoredMeasurement, no_such_label, read_measurements
from collscope.units import count_of
from collscope.whatif.cycle import last_cycle
from collscope.whatif.layers import Layer

_LARGEST = """
SELECT comm_id, datatype FROM calls WHERE run = ? AND op = 'AllReduce' AND count > 1
GROUP BY comm_id, datatype ORDER BY SUM(size_bytes) DESC, comm_id LIMIT 1
"""
_CALLS = """
SELECT call_id, count, nranks, nnodes FROM calls
WHERE run = ? AND op = 'AllReduce' AND comm_id = ? AND datatype = ? AND count > 1
ORDER BY call_id
"""
# A gradient is there when the last rank has come to its call; clocks as the matching aligned them.
_STARTS = """
SELECT call_id, MAX(start_ns - COALESCE(clock_offset_ns, 0)) FROM kernels k
LEFT JOIN traces t ON t.run = k.run AND t.source_id = k.source_id
WHERE k.run = ? AND call_id IS NOT NULL GROUP BY call_id
"""


class RecordedStep(msgspec.Struct, frozen=True):
    """The all-reduces of a job's step, in launch order.

    layers    the calls, which cannot be parted further
    ready_us  when each began on its last rank, on a clock of their own; empty without traces
    notices   what had to be assumed
    """

    layers: tuple[Layer, ...]
    datatype: Datatype
    nranks: int
    nnodes: int | None
    ready_us: tuple[float, ...]
    notices: tuple[Note, ...]


def load_step(connection: sqlite3.Connection, store: str, run: str) -> RecordedStep:
    """The last step of a run, of the communicator and datatype that reduce the most bytes.

    raises  InputError when the run has no all-reduce of more than one element
    """
    largest = connection.execute(_LARGEST, (run,)).fetchone()
    if largest is None:
        raise InputError(
            f"{store}: run '{run}' has no AllReduce calls in order. Ingest its logs or traces, or "
            "give --layers FILE."
        )
    comm, datatype = largest
    calls = connection.execute(_CALLS, (run, comm, datatype)).fetchall()
    found = last_cycle([count for _, count, _, _ in calls])
    notices = [
        Note(
            "calls_of",
            {"datatype": datatype, "communicator": comm},
            f"AllReduce calls of {datatype} on communicator {comm}; single elements left out",
        )
    ]
    if found is None:
        notices.append(
            Note(
                "no_step_repeats",
                {"calls": len(calls)},
                f"no step repeats: all {len(calls)} calls count as one step",
            )
        )
    else:
        begin, length = found
        calls = calls[begin : begin + length]
        notices.append(
            Note(
                "last_calls",
                {"calls": length},
                f"the last {length} calls, which repeat, count as one step",
            )
        )
    starts = dict(connection.execute(_STARTS, (run,)).fetchall())
    timed = [starts.get(call) for call, *_ in calls]
    ready = tuple(t / 1e3 for t in timed if t is not None) if None not in timed else ()
    return RecordedStep(
        tuple(Layer(f"call {i}", count) for i, (_, count, _, _) in enumerate(calls)),
        Datatype.of_label(datatype) or Datatype.UNKNOWN,
        calls[0][2],
        calls[0][3],
        ready,
        tuple(notices),
    )


def load_measured(
    connection: sqlite3.Connection, label: str, run: str | None
) -> tuple[tuple[Measurement, ...], tuple[Note, ...]]:
    """All-reduces measured under a label with right results, with their samples, and notices.

    Notices report mixed runs, and what failed or gave wrong results.

    run     whose measurements are taken where it has the label; else those of every run
    raises  InputError when there are none; NoVerdictError when none has a right result
    """
    stored = _all_reduces(connection, label)
    if not stored:
        known = sorted({s.label for s in _all_reduces(connection)})
        raise no_such_label(label, known, "AllReduce measurements")
    runs = sorted({s.run for s in stored})
    if run in runs:
        stored, runs = [s for s in stored if s.run == run], [run]
    found = tuple(s.measurement for s in stored)
    right = tuple(m for m in found if m.right)
    if not right:
        raise NoVerdictError(
            f"--label '{label}': every AllReduce measured under it failed or gave wrong results. "
            "Measure again, or name another label."
        )
    notices = []
    if len(right) < len(found):
        bad = len(found) - len(right)
        notices.append(
            Note(
                "unusable_left_out",
                {"label": label, "measurements": bad, "of": len(found)},
                f"label '{label}': {count_of(bad, len(found), 'measurement')} "
                "failed or gave wrong results, and are left out",
            )
        )
    if len(runs) > 1:
        notices.append(
            Note(
                "runs_taken_together",
                {"label": label, "runs": runs},
                f"label '{label}' is in the runs {', '.join(runs)}; they are combined",
            )
        )
    return right, tuple(notices)


def _all_reduces(
    connection: sqlite3.Connection, label: str | None = None
) -> list[StoredMeasurement]:
    stored = read_measurements(connection, label=label)
    return [s for s in stored if s.measurement.op is Op.ALL_REDUCE]
