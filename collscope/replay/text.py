"""The plan as text, schemas/plan.md: written (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.replay.plan import Plan, PlanClass, PlanStep

VERSION = 1
_PER_LINE = 32  # transfers written on one line


def plan_text(plan: Plan) -> str:
    """The plan in the file format of schemas/plan.md."""
    lines = [f"collscope-plan {VERSION}", f"mode {plan.mode}", f"nranks {plan.nranks}"]
    if plan.scaled_from is not None:
        lines.append(f"scaled_from {plan.scaled_from}")
    lines += [f"comm {c.id} {number_list(c.ranks)}" for c in plan.comms]
    for planned in plan.classes:
        lines.append(_class_line(planned))
        lines += _transfer_lines(planned)
    # Equal steps of a big plan are one object: each is put into words once.
    distinct = {id(step): step for step in plan.steps}
    words = {key: _step_line(step) for key, step in distinct.items()}
    lines += map(words.__getitem__, map(id, plan.steps))
    return "\n".join(lines) + "\n"


def number_list(numbers: Iterable[int]) -> str:
    """Numbers in their order, runs of three and more that rise by one as `first-last`.

    >>> number_list([0, 1, 2, 3, 7, 5])
    '0-3,7,5'
    """
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] + 1 == n:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    parts = []
    for first, last in runs:
        if last - first >= 2:
            parts.append(f"{first}-{last}")
        else:
            parts += [str(n) for n in range(first, last + 1)]
    return ",".join(parts)


def _class_line(planned: PlanClass) -> str:
    # class 0 op=AllReduce datatype=Bfloat16 redop=Avg count=4194304 in_place=1 calls=26 comms=1,2
    values = {
        "op": planned.op.value,
        "shape": planned.shape,
        "datatype": planned.datatype.value,
        "redop": None if planned.redop is None else planned.redop.value,
        "count": planned.count,
        "size_bytes": planned.size_bytes,
        "root": planned.root,
        "in_place": 1 if planned.in_place else None,
        "calls": planned.calls,
        "comms": number_list(planned.comms),
    }
    words = [f"{key}={value}" for key, value in values.items() if value is not None]
    return f"class {planned.id} {' '.join(words)}"


def _step_line(step: PlanStep) -> str:
    # step 0@1 3@2
    return "step " + " ".join(f"{key}@{comm}" for key, comm in step.items)


def _transfer_lines(planned: PlanClass) -> list[str]:
    # transfers 2 0 0>1:1024 1>2:2048 2>3:16
    lines = []
    for on in planned.transfers:
        for start in range(0, len(on.items), _PER_LINE):
            items = " ".join(f"{s}>{d}:{n}" for s, d, n in on.items[start : start + _PER_LINE])
            lines.append(f"transfers {planned.id} {on.comm} {items}")
    return lines
