"""Request of `tune`, and everything it knows so far."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from collscope.model.note import Note
from collscope.replay.plan import Plan
from collscope.replay.session import Session
from collscope.roofline.system import System
from collscope.tuning.choose import NOTHING, PRESENT, Candidate, Choice, ChoiceInput
from collscope.tuning.confirm import Confirmed
from collscope.tuning.intervals import Shape
from collscope.tuning.records import Gain, JobTime, Variable
from collscope.tuning.search import Search
from collscope.tuning.settings import DEFAULT, Setting, TuningTarget
from collscope.tuning.worth import Weighed, Worth

CHANNELS = "channels"  # in `named`: numbers of channels too
SEARCH_CSV, CONFIRM_CSV, TUNER_CSV = "replay.csv", "confirm.csv", "tuner.csv"
ENV, OPTIMIZER_CSV, EVIDENCE = "tuned.env", "measurements.csv", "evidence.json"
EARLIER = "earlier"  # folder in which results of an earlier tune wait for the new ones
FILES = (SEARCH_CSV, CONFIRM_CSV, TUNER_CSV, ENV, OPTIMIZER_CSV, EVIDENCE)


class TuningRequest(msgspec.Struct, frozen=True):
    """What to tune, and how.

    class_ids   number that the report has for a class of the plan; empty: made from no run
    present     the job's own knobs
    left_out    knobs that the logs set and no launch gets, since a log must not name files
    settings_logged  the run's logs hold the variables of its environment
    blocks      fewest and most thread blocks of collective kernels in the run's traces; None:
                unknown
    kept        other variables, which hold for every launch; empty: not set there
    candidates  settings of the user's own, tried in addition to ours
    roofs_us    of classes of the plan, where a roof is known
    system      for the library's model; None: nothing is screened out by it
    seen        algorithms in the run's logs
    library     as they name it, "nccl 2.28.9"; None: they do not, or several
    nnodes      of the job's largest communicator; None: unknown
    prefix      before the labels present, default and tuned
    """

    plan: Plan
    class_ids: Mapping[int, int]
    session: Session
    present: tuple[Variable, ...]
    left_out: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    candidates: tuple[Setting, ...]
    named: frozenset[str] | None  # of the settings of ours only these; None: all
    job: JobTime
    roofs_us: Mapping[int, float]
    system: System | None
    seen: frozenset[str]
    library: str | None
    nnodes: int | None
    out: Path
    db: Path
    run: str
    settings_logged: bool = False
    blocks: tuple[int, int] | None = None
    prefix: str = ""
    time_limit_s: float = 300.0
    seed: int = 1

    def report_id(self, class_id: int) -> int:
        """The number of a class of the plan for people: the report's where there is one."""
        return self.class_ids.get(class_id, class_id)


class State(msgspec.Struct):
    """Everything that is known so far; the report is made of it, however tune ends."""

    request: TuningRequest
    search: Search
    place: TuningTarget = msgspec.field(default_factory=lambda: TuningTarget(None))
    worth: Worth | None = None
    candidates: tuple[Candidate, ...] = ()
    choice: Choice = msgspec.field(default_factory=lambda: Choice(NOTHING, {}))
    tuned: Setting | None = None
    unset: tuple[str, ...] = ()
    confirmed: Confirmed | None = None
    taken_back: set[int] = msgspec.field(default_factory=set)  # classes whose rows did not hold
    gain: Gain | None = None
    outcome: str = ""
    why: str = ""
    estimated_s: float | None = None
    notices: list[Note] = msgspec.field(default_factory=list)
    excluded: dict[str, str] = msgspec.field(default_factory=dict)  # not tried at all, and why

    @property
    def calls(self) -> dict[int, float]:
        """Calls that one rank makes, by class: its communicators are disjoint."""
        return {c.id: c.calls / len(c.comms) for c in self.request.plan.classes}

    def shape(self, class_id: int) -> Shape:
        """Operation, ranks and nodes of a class, as it ran here."""
        first = self.search.first[class_id]
        return Shape(first.op, first.nranks or 1, first.nnodes or 1)

    def size(self, class_id: int) -> tuple[Shape, int]:
        """Shape and nccl-tests size of a class: a row distinguishes no more."""
        return self.shape(class_id), self.search.first[class_id].size_bytes or 0

    def weighed(self) -> list[Weighed]:
        """Classes with their present time: with the present setting, else with the default."""
        found = []
        for class_id, calls in self.calls.items():
            times = self.search.times[class_id]
            now = next((times[n] for n in (PRESENT, DEFAULT.name) if times.get(n)), None)
            if now:
                (first, *_) = now.values()
                roof = self.request.roofs_us.get(class_id)
                found.append(Weighed(class_id, calls, first, roof, self.request.job.exposed))
        return found

    def job_seconds(self) -> float | None:
        """The job's time on one rank; of a fraction by the collective time measured here."""
        job = self.request.job
        if job.time_ns is not None:
            return job.time_ns / 1e9
        collective_s = sum(w.calls * w.now_us for w in self.weighed()) / 1e6
        return collective_s / job.fraction if job.fraction else None

    def choice_input(self) -> ChoiceInput:
        """What a choice is made of."""
        settings = self.search.settings | {DEFAULT.name: DEFAULT}
        return ChoiceInput(self.candidates, settings, self._sizes(), self.place)

    def _sizes(self) -> list[tuple[Shape, int]]:
        """Of every class of the plan; a class without times counts with the nodes of others."""
        ranks = self.request.plan.comm_ranks()
        nnodes = {m.nranks: m.nnodes or 1 for m in self.search.first.values()}
        found = []
        for c in self.request.plan.classes:
            nranks = len(ranks[c.comms[0]])
            never_ran = Shape(c.op, nranks, nnodes.get(nranks, 1)), c.size(nranks)
            found.append(self.size(c.id) if c.id in self.search.first else never_ran)
        return found
