"""`collscope tune`: run it, and keep what was measured, however it ends."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from collscope.errors import CollscopeError, InputError
from collscope.model.note import Note
from collscope.outputs import write_file
from collscope.replay.measure import ReplayInterruptedError
from collscope.tuning import previous_results
from collscope.tuning.choose import NOTHING, Choice
from collscope.tuning.gpus import refuse_host
from collscope.tuning.preview import preview
from collscope.tuning.records import INTERRUPTED, Tuning
from collscope.tuning.run import prepare, tune
from collscope.tuning.state import EARLIER, ENV, EVIDENCE, TUNER_CSV, State, TuningRequest
from collscope.tuning.summary import summary
from collscope.units import count
from collscope.writing import to_json


def run_tune(
    request: TuningRequest, notices: tuple[Note, ...]
) -> tuple[Tuning, CollscopeError | None]:
    """Tune; what was measured is in the folder, however it ends.

    returns  the answer, and the error to end with where it ended early
    raises   CollscopeError when nothing could be measured
    """
    state = prepare(request)
    state.notices += notices
    error: CollscopeError | None = None
    try:
        tune(state)
    except KeyboardInterrupt:
        error = ReplayInterruptedError(
            f"tune: interrupted. {count(state.search.launches.count, 'launch', 'launches')} "
            f"and {EVIDENCE} are kept in {request.out}."
        )
    except CollscopeError as problem:
        error = problem
    except OSError as problem:
        error = _unwritable(request.out, problem)
    try:
        if error is not None:
            _leave(state)
        if error is not None and not state.search.first and previous_results.restore(request.out):
            raise error
        write_file(request.out / EVIDENCE, to_json(summary(state)))
        if error is None:
            previous_results.discard(request.out)
    except OSError as problem:
        raise _unwritable(request.out, problem) from problem
    if error is not None and not state.search.first:
        raise error
    return summary(state), error


def dry_tune(request: TuningRequest, notices: tuple[Note, ...]) -> Tuning:
    """What `run_tune` would try; it starts and writes nothing.

    raises  MissingToolError on the host backend, which has no settings
    """
    refuse_host(request.session)
    found = preview(request)
    return replace(found, notices=(*found.notices, *notices))


def _unwritable(out: Path, problem: OSError) -> InputError:
    return InputError(f"{out}: {problem.strerror}. Name another folder with --out.")


def _leave(state: State) -> None:
    """Nothing that is not confirmed may look like an answer."""
    state.outcome, state.why = INTERRUPTED, "nothing is decided"
    state.tuned, state.unset, state.choice = None, (), Choice(NOTHING, {})
    if (state.request.out / EARLIER / EVIDENCE).exists():
        folder = str(state.request.out / EARLIER)
        state.notices.append(
            Note("earlier_tune", {"folder": folder}, f"results of the earlier tune are in {folder}")
        )
    for name in (TUNER_CSV, ENV):
        (state.request.out / name).unlink(missing_ok=True)
