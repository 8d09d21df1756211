"""Recorded steps played with one reading of what is not known (pure)."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.timeline.graph import Graph
from collscope.timeline.play import Played, Substitutions, play
from collscope.timeline.prediction.contention_change import ContentionReading
from collscope.timeline.recorded_job import RecordedJob, recorded_transfers

Floats = npt.NDArray[np.float64]


class Scenario(msgspec.Struct, frozen=True):
    """One reading of what is not known."""

    host: float
    factor: Floats  # (parts,)
    contention: ContentionReading
    seen: bool = False  # only edges that a recorded start shows
    # what rows wait for no known cause after the change, in parts of before
    unexplained: float = 1.0


class Player:
    """Plays scenarios; one that was played before is known."""

    def __init__(self, recorded: RecordedJob) -> None:
        """Play scenarios of one recorded job."""
        self.recorded = recorded
        self._old: dict[tuple[float, int, int, bool], Played] = {}

    def before(self, host: float, contention: ContentionReading, *, seen: bool = False) -> Played:
        """The recorded collectives."""
        # The scenarios keep the arrays alive.
        key = host, id(contention.alone), id(contention.old), seen
        if key not in self._old:
            new = Substitutions(host=host, alone=contention.alone, slowdown=contention.old)
            self._old[key] = play(self._graph(seen=seen), new)
        return self._old[key]

    def after(self, scenario: Scenario) -> Played:
        """The new collectives."""
        # Transfers that are not known apart from the waiting change by what they mostly are.
        graph, contention = self._graph(seen=scenario.seen), scenario.contention
        transfer = graph.transfer + recorded_transfers(self.recorded) * (scenario.factor - 1)
        return play(
            graph,
            Substitutions(
                transfer,
                scenario.host,
                contention.alone,
                contention.new,
                unexplained=scenario.unexplained,
            ),
        )

    def _graph(self, *, seen: bool) -> Graph:
        return self.recorded.graph.seen if seen else self.recorded.graph

    def old_step(self, host: float, contention: ContentionReading, *, seen: bool = False) -> float:
        """Step with the recorded collectives, ns."""
        return self.recorded.step(self.before(host, contention, seen=seen))

    def new_step(self, scenario: Scenario) -> float:
        """Step with the new ones, ns."""
        return self.recorded.step(self.after(scenario))
