"""`collscope tune`: survey, worth, search, choice, confirmation, files."""

from __future__ import annotations

import random

from collscope.errors import InputError, MissingToolError, ReplayError, UsageError
from collscope.model.note import Note
from collscope.replay.mpi import RUN_ALONE
from collscope.replay.session import Target, check_target
from collscope.tuning import confirm as confirmation
from collscope.tuning import finish, previous_results
from collscope.tuning.choose import NOTHING, PLUGIN, PRESENT, Candidate, Choice, choose
from collscope.tuning.gpus import NO_GPU, require_gpu
from collscope.tuning.launches import Launches
from collscope.tuning.offers import offer_settings
from collscope.tuning.plugin import LIBRARY, installed_plugin
from collscope.tuning.records import NOT_WORTH, NOTHING_BETTER
from collscope.tuning.search import Clock, Search
from collscope.tuning.settings import DEFAULT, place_of, present_setting
from collscope.tuning.state import CHANNELS, SEARCH_CSV, State, TuningRequest
from collscope.tuning.worth import worth


def prepare(request: TuningRequest) -> State:
    """A state with nothing measured; the folder is there, and earlier results wait aside.

    raises  UsageError, InputError; MissingToolError without a GPU
    """
    if request.session.place is not None:
        raise UsageError(f"tune: started by srun or mpirun. {RUN_ALONE}")
    check_target(Target(request.db, request.run))
    require_gpu(request.session, request.plan.nranks // request.session.method.gpus_per_process)
    try:
        previous_results.set_aside(request.out, request.present)
    except OSError as error:
        raise InputError(f"{request.out}: {error.strerror}. Name a folder with --out.") from error
    present = present_setting({v.name: v.value for v in request.present})
    settings = {PRESENT: present}
    if present.environment:
        settings[DEFAULT.name] = DEFAULT
    launches = Launches(request.plan, request.session, request.out / SEARCH_CSV, request.kept)
    return State(request, Search(launches, Clock(request.time_limit_s), settings))


def tune(state: State) -> None:
    """Measure, decide, confirm and write; `state` holds what is known at any time.

    raises  ReplayError when neither the present setting nor the default could be measured;
            what launching raises; KeyboardInterrupt
    """
    _survey(state)
    state.worth = worth(state.weighed(), state.job_seconds())
    if not state.worth.worth_it:
        state.outcome, state.why = NOT_WORTH, state.worth.why
        return
    share, basis = state.worth.share, state.request.job.basis
    known = "" if share is None else f" ({basis})"
    state.notices.append(Note("worth", {"share": share, "basis": basis}, state.worth.why + known))
    legal = offer_settings(state)
    for name in state.search.begin(state.worth.kept, legal):
        state.excluded[name] = "no time left: raise --time-limit"
    named = state.request.named
    channels = named is None or CHANNELS in named
    state.search.rounds(state.place, legal, random.Random(state.request.seed), channels=channels)
    _choose(state)
    if state.choice.kind != NOTHING:
        finish.confirm(state)
    finish.write(state)


def _survey(state: State) -> None:
    """Present and default on every class: the time now, the library, and what a launch takes."""
    search = state.search
    search.survey([c.id for c in state.request.plan.classes])
    if not search.first:
        reasons = [*search.dropped.values(), *search.failed.values()]
        raise ReplayError(
            "tune: neither the present setting nor the library's default could be measured"
            f" ({reasons[0] if reasons else 'no result'}). Check that 'collscope replay' runs."
        )
    first = next(iter(search.first.values()))
    if first.backend == "host":
        raise MissingToolError(NO_GPU)
    nvls = dict(state.request.kept).get("NCCL_NVLS_ENABLE", "") != "0"
    state.place = place_of(first.library, first.device, nvls=nvls, seen=state.request.seen)
    labels = 2 if search.default == PRESENT else 3
    search.clock.reserved_s = labels * confirmation.ROUNDS * search.clock.whole_s


def _choose(state: State) -> None:
    search, calls = state.search, state.calls
    decided = search.decided()
    state.candidates = tuple(
        Candidate(c, state.shape(c), search.first[c].size_bytes or 0, calls[c], *decided[c])
        for c in search.classes
    )
    if not search.enough:
        state.outcome = NOTHING_BETTER
        tried = any(search.counts[name] for name in search.settings if name != PRESENT)
        rounds = f"{search.done} rounds finished in time, but 3 are needed: raise --time-limit"
        here = "they need NCCL or RCCL" if state.place.library is None else "none fits this job"
        state.why = rounds if tried else f"there is no other setting to try: {here}"
        return
    state.choice = choose(state.choice_input())
    if state.choice.kind == PLUGIN and installed_plugin() is None:
        state.choice = Choice(NOTHING, {}, why=f"rows need {LIBRARY}, which was not built")
    if state.choice.kind == NOTHING:
        state.outcome = NOTHING_BETTER
        state.why = state.choice.why or "no setting is certainly better than the present one"
