"""Classes of calls, groups of ranks and GPUs in words."""

from __future__ import annotations

from collscope.model import CollectiveClass
from collscope.reports.calls.answer import ClassRow
from collscope.roofline.gpu_models import OtherGpus
from collscope.units import count, format_size


def class_words(row: ClassRow) -> str:
    """A class in a sentence."""
    what = row.op.value
    if row.count is not None and row.datatype is not None:
        what += f" of {row.count} {row.datatype} ({format_size(row.size_bytes)})"
    elif row.size_bytes is not None:
        what += f" of {format_size(row.size_bytes)}"
    else:
        what += ", size not known,"
    return f"{what} on {count(row.nranks, 'rank')}"


def inferred_groups(groups: int) -> str:
    """Words for groups of some of the ranks that are known only by the ends of their calls."""
    return (
        f"{count(groups, 'process group')} of some of the ranks "
        f"{'has' if groups == 1 else 'have'} no name in the traces. Ranks whose collectives "
        "end together count as one group; a wrong group makes waits and transfers wrong. "
        "Traces with CPU activities name the groups"
    )


def other_gpus_words(others: OtherGpus) -> str:
    """Words for a job whose GPUs are not those of the system."""
    return (
        f"'{others.system}' is a system of {' or '.join(others.models)} GPUs, but the job "
        f"ran on {' and '.join(others.names)}"
    )


def class_phrase(key: CollectiveClass) -> str:
    """A class in a sentence."""
    ranks = count(key.nranks, "rank") if key.nranks else "an unknown number of ranks"
    size = "unknown size" if key.size_bytes is None else f"{key.size_bytes} B"
    return f"{key.op.value} of {size} on {ranks}"


def place_words(in_place: bool | None) -> str:
    """In place or out of place, behind other words; empty where it is not known."""
    if in_place is None:
        return ""
    return ", in place" if in_place else ", out of place"


def where_words(key: CollectiveClass) -> str:
    """Nodes and root where they are not one node and rank 0, and the place."""
    nodes = f" on {count(key.nnodes, 'node')}" if (key.nnodes or 1) > 1 else ""
    root = f", root {key.root}" if key.root else ""
    return f"{nodes}{root}{place_words(key.in_place)}"


def class_name(key: CollectiveClass) -> str:
    """A class with its size, ranks and place."""
    size = "unknown size" if key.size_bytes is None else f"{key.size_bytes} B"
    return f"{key.kind} {size} {count(key.nranks, 'rank')}{where_words(key)}"
