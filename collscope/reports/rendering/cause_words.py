"""Causes of a long step in words: their names, where they are, the evidence, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from collscope.timeline.step_causes.tolerances import FAR_BELOW_REACHABLE, REACHED
from collscope.units import figure

if TYPE_CHECKING:
    from collscope.timeline.step_causes.records import Cause, Evidence

_TEMPLATE = re.compile(r"<[^<>]*>")
_NAME = 40  # characters of a kernel's name
_WHERE = {
    "calls": "where the host waits", "copies": "in copies", "collectives": "in all collectives",
    "backward": "in the backward pass",
    "exchanges": "between stages", "steps": "in some of the steps",
}  # fmt: skip
_CALLS = {
    "STREAM_SYNC": "cudaStreamSynchronize", "DEVICE_SYNC": "cudaDeviceSynchronize",
    "EVENT_SYNC": "cudaEventSynchronize", "COPY": "copies to the host",
}  # fmt: skip


def kernel(name: str) -> str:
    """Name of a kernel without its types.

    >>> kernel("void at::native::vectorized_elementwise_kernel<4, float>(int, float)")
    'vectorized_elementwise_kernel'
    """
    name = name.replace("(anonymous namespace)::", "")
    while _TEMPLATE.search(name):
        name = _TEMPLATE.sub("", name)
    plain = name.split("(")[0] if not name.startswith(("Memcpy", "Memset")) else name
    plain = plain.removeprefix("void ").rsplit("::", maxsplit=1)[-1].strip() or name
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "~"


def where(cause: Cause) -> str:
    """Place of a cause in the step, in words."""
    shown = cause.evidence
    if cause.where == "launch":
        return f"before {kernel(shown.before)}" + (
            f", after {kernel(shown.after)}" if shown.after else ""
        )
    if cause.where == "kernels":
        return f"in {kernel(shown.name)}" if shown.name else "in all kernels"
    return _WHERE[cause.where]


def evidence(cause: Cause, ranks: int | None = None) -> str:
    """What the recording shows, in a sentence or two; `ranks` are those with a trace."""
    words = _EVIDENCE[cause.evidence.kind](cause, cause.evidence)
    return words.replace("another rank", "the other rank") if ranks == 2 else words


def _between(shown: Evidence) -> str:
    """The launches around a host's gap."""
    return f"{kernel(shown.after) or 'the step before'} and {kernel(shown.before)}"


def _gaps(cause: Cause, shown: Evidence) -> str:
    where = _between(shown)
    longest, all_ = figure(shown.usual), ms(shown.ms)
    if cause.ranks:
        words = (
            f"In one step, rank {cause.ranks[0]}'s host took {longest} ms longer than rank "
            f"{shown.detail}'s between launching {where}; all such gaps together take {all_} ms "
            "longer, on average over the steps."
        )
    else:
        words = (
            f"In one step, {longest} ms passed on every rank's host between launching {where}; "
            f"all such gaps together take {all_} ms, on average over the steps."
        )
    return words + " Only part of this lengthens the step." * (cause.cost.high < shown.ms)


def _pauses(cause: Cause, shown: Evidence) -> str:
    return (
        f"In {figure(shown.count)} of {figure(shown.usual)} steps, rank {cause.ranks[0]}'s host "
        f"took {ms(shown.ms)} ms longer than rank {shown.detail}'s between launching "
        f"{_between(shown)}. A host that waits for a data loader waits longer without the "
        "profiler."
    )


def _pauses_in_turns(_cause: Cause, shown: Evidence) -> str:
    return (
        f"In each of {figure(shown.count)} steps one host took {ms(shown.ms)} ms longer than "
        f"another rank's between launching {_between(shown)}; ranks "
        f"{shown.detail} take turns."
    )


def _extra(cause: Cause, shown: Evidence) -> str:
    who = f"rank {cause.ranks[0]}" if cause.ranks else "one rank"
    return (
        f"In each step {who} runs {kernel(shown.name)} {figure(shown.count)} times, another rank "
        f"{figure(shown.usual)} times. All extra kernels of {who} run {ms(shown.ms)} ms a step; "
        "the saving is simulated and can differ."
    )


def _longer(cause: Cause, shown: Evidence) -> str:
    steps = f"In {shown.detail} steps " if shown.detail else ""
    return (
        f"{steps}{kernel(shown.name)} takes {figure(shown.usual)} times as long as on another "
        f"rank; the same kernels take {ms(shown.ms)} ms more "
        f"{'in such a step' if shown.detail else 'a step'}."
    )


def _setting(cause: Cause, shown: Evidence) -> str:
    blocks = ""
    if shown.usual:
        blocks = f"; kernels use {figure(shown.usual)} thread block{'s' * (shown.usual != 1)}"
    name = f"{shown.name}={shown.detail}" if shown.name else "Few channels"
    if not shown.name and shown.detail:
        name = f"The links of these GPUs go through {shown.detail}"
    return f"{name}{blocks}; collective transfers take {ms(shown.ms)} ms a step."


def _taken(cause: Cause, shown: Evidence) -> str:
    return (
        f"The GPU of rank {cause.ranks[0]} runs nothing of this job for {ms(shown.ms)} ms a step, "
        f"in {figure(shown.count)} places, although its next kernel has been launched. The places "
        "differ from step to step, and no other rank has them: another process uses this GPU."
    )


def _slow_calls(cause: Cause, shown: Evidence) -> str:
    """The worst class, the transfer of all slow calls, and the speed that the saving assumes."""
    several = shown.count != 1
    other = float(shown.detail) - shown.count
    below = f"below {100 * FAR_BELOW_REACHABLE:.0f} %"
    who = f"Calls {below}"
    if other >= 1:
        calls = "call" if other == 1 else "calls"
        who = f"{'These' if several else 'It'} and {figure(other)} other {calls} {below}"
    return (
        f"{shown.name} ({figure(shown.count)} call{'s' * several} a step) reaches "
        f"{100 * shown.usual:.0f} % of the bandwidth reachable on this system. {who} take "
        f"{ms(shown.ms)} ms a step; the saving assumes that they then reach {100 * REACHED:.0f} to "
        "100 % (some machines reach more)."
    )


_EVIDENCE: dict[str, Callable[[Cause, Evidence], str]] = {
    "host_gaps": _gaps,
    "pauses": _pauses,
    "pauses_in_turns": _pauses_in_turns,
    "extra_kernels": _extra,
    "longer_kernels": _longer,
    "taken": _taken,
    "unused_parameters": lambda _, e: (
        "DistributedDataParallel searches for unused parameters in every step"
        + (f" and marks {figure(e.count)} gradients" if e.count else "")
        + f": its host spends {ms(e.ms)} ms on that."
    ),
    "setting": _setting,
    "transport": _setting,
    "crowded": lambda _, e: (
        f"{e.name}={e.detail}: collectives use {figure(e.usual)} thread blocks, each on a "
        f"multiprocessor that kernels beside them lack for {ms(e.ms)} ms a step."
    ),
    "slow_calls": _slow_calls,
    "turns": lambda _, e: (
        f"Different ranks compute longest in turn, by {100 * e.count:.0f} % on average."
    ),
    "blocking_calls": lambda _, e: (
        f"The host waits for its GPU in {figure(e.count)} {_CALLS.get(e.name, e.name)} a step."
        + (f" After them it pauses for {ms(e.ms)} ms a step." if e.ms else "")
        + (" One is usual: the cost is of all but the longest." if e.usual else "")
    ),
    "blocking_launches": lambda _, e: (
        f"{figure(e.count)} launches a step return only when their kernel is done, as with "
        "CUDA_LAUNCH_BLOCKING=1."
    ),
    "polls": lambda _, e: (
        f"The host waits {figure(e.count)} times a step until a collective is done, as with "
        "TORCH_NCCL_BLOCKING_WAIT=1."
    ),
    "nan_checks": lambda _, e: (
        f"{figure(e.count)} checks for NaN a step make the host wait for its GPU: "
        "torch.autograd.set_detect_anomaly is on."
    ),
    "barriers": lambda _, e: (
        f"The host waits in {figure(e.count)} barriers a step. They carry no data, and take "
        f"{ms(e.ms)} ms on the GPU."
    ),
    "objects": lambda _, e: (
        f"The host sends or receives Python objects in {figure(e.count)} collectives a step, as "
        f"all_gather_object does: sizes, then bytes. It reads both from its GPU, and spends "
        f"{ms(e.ms)} ms on them."
    ),
    "small_calls": lambda _, e: (
        f"A step makes {figure(e.count)} small {e.name} calls one after the other. Meanwhile the "
        f"host waits for its GPU about {e.usual:.0f} times."
    ),
    "copies": lambda _, e: (
        f"A step makes {figure(e.count)} {e.name}, which take {ms(e.ms)} ms; the host waits "
        "for them."
    ),
    "bubble": lambda _, e: (
        f"{figure(e.count)} microbatches run through {figure(e.usual)} stages; the stages "
        f"wait {ms(e.ms)} ms."
    ),
    "long_steps": lambda _, e: (
        f"{figure(e.count)} of {figure(e.usual)} recorded steps took {ms(e.ms)} ms longer "
        "than the rest" + (f": {kernel(e.name)}." if e.name else ".")
    ),
}

_ADVICE = {
    "late_host": "Find what the host does in this gap: data loading, garbage collection, "
    "logging or allocation. A trace with ProfilerActivity.CPU shows it.",
    "extra_work": (
        "Find out why this rank runs more kernels. Spread the work over all ranks, or remove it."
    ),
    "slow_gpu": "Check this GPU with nvidia-smi: its other processes, clocks and temperature.",
    "uneven_work": (
        "Give every rank the same amount of work: sort or pad by length, balance experts or shards."
    ),
    "blocking_sync": "Read GPU values less often, or several at once and later.",
    "small_calls": "Stack the values into one tensor and reduce it once.",
    "slow_setting": "Unset it, unless this machine needs it, and measure again.",
    "slow_transport": "Unset it, and check the links between the GPUs: nvidia-smi topo -m.",
    "slow_transfer": (
        "Pin the memory (pin_memory=True) and copy one step ahead with non_blocking=True."
    ),
    "pipeline_bubble": "Use at least four microbatches per stage, or interleave the stages.",
    "periodic": "Find what these steps alone do: checkpoints, data loading or garbage collection. "
    "Do it in the background, or less often.",
    "no_overlap": "Use smaller buckets, so that calls start during the backward pass.",
    "host_bound": (
        "Launch fewer kernels: torch.compile, CUDA graphs, fused optimizers, larger batches."
    ),
    "contention": (
        "Try fewer channels (NCCL_MAX_CTAS), or run the collectives at other points of the step."
    ),
}
_TITLES = {
    "late_host": "Late host", "extra_work": "Extra work", "slow_gpu": "Slow GPU",
    "uneven_work": "Uneven work", "blocking_sync": "Blocking calls", "small_calls": "Small calls",
    "slow_setting": "Slow setting", "slow_transport": "Slow transport",
    "slow_transfer": "Slow copies", "pipeline_bubble": "Pipeline bubble", "periodic": "Long steps",
    "no_overlap": "No overlap", "host_bound": "Host bound", "contention": "Contention",
}  # fmt: skip


_REMEDIES = {
    "slow_calls": "Check the environment for NCCL settings; collscope tune tries others.",
    "unused_parameters": (
        "Pass find_unused_parameters=False if every step uses all parameters, or "
        "static_graph=True if the unused ones are the same in every step."
    ),
    "blocking_launches": "Unset CUDA_LAUNCH_BLOCKING, and run without a debugger.",
    "polls": (
        "Unset TORCH_NCCL_BLOCKING_WAIT, or wait for a collective only where its result is needed."
    ),
    "barriers": "Remove the barriers: collectives wait for each other without them.",
    "objects": (
        "Send tensors whose sizes all ranks know, or all objects in one call, or send them less "
        "often."
    ),
    "nan_checks": "Turn off torch.autograd.set_detect_anomaly and TORCH_DISTRIBUTED_DEBUG.",
}
"""By what the recording shows, where the cause alone is too little."""
_WITHOUT_SETTING = {
    "slow_setting": (
        "Unset what limits the channels, unless this machine needs it, and measure again."
    ),
    "slow_transport": "Check the links between the GPUs, nvidia-smi topo -m, and NCCL's log.",
}
"""Where the recording shows no setting by name."""


def remedy(cause: Cause) -> str:
    """What removes a cause."""
    if not cause.evidence.name and cause.cause in _WITHOUT_SETTING:
        return _WITHOUT_SETTING[cause.cause]
    return _REMEDIES.get(cause.evidence.kind, _ADVICE[cause.cause])


# Where more data and a slow GPU would look the same.
_OTHERWISE = {
    "slow_gpu": " If it is as fast as the others, this rank may have more data.",
    "uneven_work": " If every rank has the same, check the clock of this GPU with nvidia-smi.",
}


def advice(cause: Cause) -> str:
    """What removes a cause, and what would make it certain."""
    text = remedy(cause)
    if cause.cause == "late_host" and not cause.certain:
        text += " Time the job without the profiler, and pass that time as --step-ms."
    if cause.evidence.kind == "longer_kernels" and not (cause.certain or cause.evidence.detail):
        text += _OTHERWISE.get(cause.cause, "")
    return text


def cause_title(cause: str, ranks: tuple[int, ...]) -> str:
    """A cause's code in words, with its ranks.

    >>> cause_title("late_host", (1,))
    'Late host, rank 1'
    """
    words = ", ".join(map(str, ranks))
    return _TITLES[cause] + (f", rank {words}" if words else "")


# Of one rank, and of all.
_SENTENCES = {
    "late_host": ("Rank {} is late", "All hosts are late"),
    "extra_work": ("Rank {} has extra work", "Ranks have extra work"),
    "slow_gpu": ("The GPU of rank {} is slow", "The GPUs are slow"),
    "uneven_work": ("Rank {} has more work", "Work is uneven"),
    "blocking_sync": ("The host of rank {} waits for its GPU", "Hosts wait for their GPUs"),
    "small_calls": ("Rank {} makes many small calls", "Many small calls"),
    "slow_setting": ("A setting slows down rank {}", "A setting slows down collectives"),
    "slow_transport": ("Rank {} takes a slow path", "Collectives take a slow path"),
    "slow_transfer": ("Copies of rank {} are slow", "Copies are slow"),
    "pipeline_bubble": ("Rank {} waits in the pipeline", "The pipeline has bubbles"),
    "periodic": ("Rank {} makes some steps long", "Some steps are long"),
    "host_bound": ("The host of rank {} is too slow", "Hosts are too slow"),
}


def cause_sentence(cause: str, ranks: tuple[int, ...]) -> str:
    """What is wrong, as a heading.

    >>> cause_sentence("late_host", (1,))
    'Rank 1 is late'
    """
    one, every = _SENTENCES[cause]
    return one.format(", ".join(map(str, ranks))) if ranks else every


def ms(value: float) -> str:
    """A time in ms, with three digits."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
