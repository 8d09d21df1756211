"""What keeps a measurement from being of exactly a class, in words."""

from __future__ import annotations

from collscope.model import Gap
from collscope.reports.efficiency.serving import Mark, Reason
from collscope.units import count

_PLAIN_MARKS: dict[Gap | Reason, str] = {
    Gap.NODES_UNKNOWN: "the nodes are not known",
    Gap.SHAPE_UNKNOWN: "the shape is not known",
    Gap.PLACE_UNKNOWN: "in place or out of place is not known",
    Gap.DATATYPE_UNKNOWN: "the datatype is not known",
    Gap.REDOP_UNKNOWN: "the reduction is not known",
    Gap.ROOT_UNKNOWN: "the root is not known",
    Reason.ON_HOST: "measured in host memory",
}
_MARK_WORDS = {  # with the values of the mark
    Gap.NODES_DIFFER: "measured on {}",
    Gap.ROOT_DIFFERS: "measured with root {}",
    Reason.FEWER_RANKS: "measured on {}, scaled",
    Reason.SMALLER_JOB: "measured in a job of fewer than its {} ranks, scaled",
}


def mark_words(mark: Mark) -> str:
    """What keeps a measurement from being of exactly a class."""
    if mark.of in _PLAIN_MARKS:
        return _PLAIN_MARKS[mark.of]
    if mark.of is Reason.NO_TIME:
        return f"replay {mark.status}"
    values = " and ".join(map(str, mark.values))
    if mark.of is Gap.NODES_DIFFER:
        values = " and ".join(count(n, "node") for n in mark.values)
    elif mark.of is Reason.FEWER_RANKS:
        values = count(mark.values[0], "rank")
    return _MARK_WORDS[mark.of].format(values)
