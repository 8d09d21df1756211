"""What bounds a step: the longest path through it, by kind (pure)."""

from __future__ import annotations

import numpy as np

from collscope.timeline.graph import FIRST, HOST
from collscope.timeline.play import Played, Substitutions, longest_path, play
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.records import Bound


def recorded_bounds(recorded: RecordedJob) -> tuple[Bound, ...]:
    """What bounds a recorded step, ns a step, the most first; none without steps."""
    if not recorded.step_ns:
        return ()
    return step_bounds(recorded, play(recorded.graph, Substitutions()), recorded.step_ns)


def step_bounds(recorded: RecordedJob, played: Played, step_ns: float) -> tuple[Bound, ...]:
    """What bounds a step: the longest path through the steps by kind, the most first.

    step_ns  what the parts sum to; the played steps are as long but for a factor
    """
    graph, rows, steps = recorded.graph, recorded.rows, recorded.steps
    begin, finish = steps.span(played.end, len(rows.ranks))
    # The rank whose steps are the longest, as in `Steps.mean_ns`.
    of_step = (finish - begin)[steps.traces] / steps.count
    trace = int(steps.traces[of_step.argmax()])
    of_rank = steps.last_rows(trace)
    row = int(of_rank[played.end[of_rank].argmax()])
    path = longest_path(graph, played, int(graph.end_node[row]), float(begin[trace]))
    part = graph.part[path.node - FIRST]
    class_of = np.full(len(path.node), -1)
    on = (path.slot == HOST) & (part >= 0)
    class_of[on] = recorded.linked.class_[recorded.linked.call_of_part[part[on]]]
    scale = step_ns / float(finish[trace] - begin[trace])
    found = [
        Bound("host", None, float(path.work.sum()) * scale),
        # A last row that is no collective ends its duration after its node.
        Bound("compute", None, float(path.lasted.sum() + played.duration[row]) * scale),
        Bound("waiting", None, float(path.gap.sum()) * scale),
    ]
    for k in np.unique(class_of[class_of >= 0]).tolist():
        total = float(path.transfer[class_of == k].sum())
        found.append(Bound("collective", recorded.linked.classes[k], total * scale))
    return tuple(sorted(found, key=lambda b: -b.ns))
