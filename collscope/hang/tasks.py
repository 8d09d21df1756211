"""Tasks of Slurm that ended, as ranks.

A task is a rank where srun starts each rank: SLURM_PROCID is then the rank. Where torchrun runs
below srun, a task is a node. srun prints tasks alone, so that other sources must agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.hang.records import Claim

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collscope.hang.records import Evidence, Task

_SHOWN = 4


def failed_tasks(evidence: Sequence[Evidence]) -> tuple[dict[int, Claim], tuple[str, ...]]:
    """Ranks whose task ended by itself; or a sentence with the reason why tasks are not used."""
    tasks = {task.number: task for one in evidence for task in one.tasks}
    failed = {number: task for number, task in tasks.items() if task.reason is not None}
    if not failed:
        return {}, ()
    size = _world_size(evidence)
    if set(tasks) == set(range(size)) or _on_their_hosts(failed, evidence):
        return {
            number: Claim(
                number, "dead", f"Rank {number} ended: srun reports '{task.reason}' for its task.",
                task.host,
            )
            for number, task in failed.items()
        }, ()  # fmt: skip
    shown = ", ".join(
        f"task {number} on {task.host} ({task.reason})"
        for number, task in sorted(failed.items())[:_SHOWN]
    )
    known = f"the job has {size} ranks" if size else "the number of ranks is not known"
    return {}, (
        f"srun reports the end of {shown}. A task may be a node, not a rank: srun lists "
        f"{len(tasks)} of the tasks, and {known}.",
    )


def _world_size(evidence: Sequence[Evidence]) -> int:
    sizes = [len(members) for one in evidence for _, members in one.groups if one.kind != "stderr"]
    return max(sizes, default=0)


def _on_their_hosts(failed: Mapping[int, Task], evidence: Sequence[Evidence]) -> bool:
    """Whether each task is on the host of the rank of its number, and not on that of rank 0.

    With fewer tasks than ranks on a host, the numbers agree on the first host alone.
    """
    hosts = {rank.rank: _short(rank.host) for one in evidence for rank in one.ranks if rank.host}
    return all(
        hosts.get(number) == _short(task.host) != hosts.get(0, _short(task.host))
        for number, task in failed.items()
    )


def _short(host: str) -> str:
    return host.split(".", maxsplit=1)[0].lower()
