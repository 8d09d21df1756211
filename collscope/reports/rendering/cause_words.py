"""Causes of a long step in words: their names, where they are, the evidence, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from collscope.units import figure

if TYPE_CHECKING:
    from collscope.timeline.step_causes.records import Cause, Evidence

_TEMPLATE = re.compile(r"<[^<>]*>")
_NAME = 40  # characters of a kernel's name
_WHERE = {
    "calls": "where the host waits", "copies": "in copies", "collectives": "in all collectives",
    "exchanges": "between stages", "steps": "in some of the steps",
}  # fmt: skip
_CALLS = {
    "STREAM_SYNC": "cudaStreamSynchronize", "DEVICE_SYNC": "cudaDeviceSynchronize",
    "EVENT_SYNC": "cudaEventSynchronize", "POLL": "waits for collectives",
    "LAUNCH": "launches that wait for their kernel",
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
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "…"


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


def evidence(cause: Cause) -> str:
    """What the recording shows, one sentence."""
    return _EVIDENCE[cause.evidence.kind](cause, cause.evidence)


def _gaps(cause: Cause, shown: Evidence) -> str:
    who = f"rank {cause.ranks[0]}'s host" if cause.ranks else "every rank's host"
    return (
        f"Once {figure(shown.usual)} ms passed on {who} between the launches of "
        f"{kernel(shown.after) or 'the step before'} and {kernel(shown.before)}; "
        f"such gaps take {ms(shown.ms)} ms a step"
        + (" more than on another rank." if cause.ranks else ".")
    )


def _extra(cause: Cause, shown: Evidence) -> str:
    return (
        f"{figure(shown.count)} {kernel(shown.name)} a step, {figure(shown.usual)} on another "
        f"rank: {ms(shown.ms)} ms more kernel time."
    )


def _longer(cause: Cause, shown: Evidence) -> str:
    return (
        f"{kernel(shown.name)} takes {figure(shown.usual)} times as long as on another rank; "
        f"equal kernels take {ms(shown.ms)} ms more a step."
    )


def _setting(cause: Cause, shown: Evidence) -> str:
    blocks = f"; kernels use {figure(shown.usual)} thread blocks" if shown.usual else ""
    name = f"{shown.name}={shown.detail}" if shown.name else "Few channels"
    return f"{name}{blocks}; collectives transfer for {ms(shown.ms)} ms a step."


_EVIDENCE: dict[str, Callable[[Cause, Evidence], str]] = {
    "host_gaps": _gaps,
    "extra_kernels": _extra,
    "longer_kernels": _longer,
    "setting": _setting,
    "transport": _setting,
    "slow_calls": lambda _, e: (
        f"{figure(e.count)} {e.name} a step reach {100 * e.usual:.0f} % of what this system does; "
        f"such calls transfer for {ms(e.ms)} ms a step."
    ),
    "turns": lambda _, e: (
        f"Now one rank computes longer, now another: by {100 * e.count:.0f} % on average."
    ),
    "blocking_calls": lambda _, e: (
        f"{figure(e.count)} {_CALLS.get(e.name, e.name)} a step make the host wait for its GPU."
    ),
    "nan_checks": lambda _, e: (
        f"{figure(e.count)} checks for NaN a step make the host wait for its GPU: "
        "torch.autograd.set_detect_anomaly is on."
    ),
    "small_calls": lambda _, e: (
        f"{figure(e.count)} small {e.name} a step, one after the other; {figure(e.usual)} waits of "
        "the host among them."
    ),
    "copies": lambda _, e: (
        f"{figure(e.count)} {e.name} a step, {ms(e.ms)} ms; the host waits for them."
    ),
    "bubble": lambda _, e: (
        f"{figure(e.count)} microbatches for {figure(e.usual)} stages; stages wait {ms(e.ms)} ms."
    ),
    "long_steps": lambda _, e: (
        f"{figure(e.count)} of {figure(e.usual)} recorded steps took {ms(e.ms)} ms longer than "
        "the others" + (f": {kernel(e.name)}." if e.name else ".")
    ),
}

_ADVICE = {
    "late_host": "Find what the host does there: data loading, garbage collection, logging, "
    "allocation. A trace with ProfilerActivity.CPU names it.",
    "extra_work": "Find out why only this rank runs them; spread the work or leave it out.",
    "slow_gpu": "See with nvidia-smi who else uses this GPU, its clocks and its temperature.",
    "uneven_work": "Give every rank as much: sort or pad by length, balance experts or shards.",
    "blocking_sync": "Read values of the GPU less often, or together and later.",
    "small_calls": "Stack the values into one tensor and reduce that once.",
    "slow_setting": "Unset it, unless it is needed here, and measure again.",
    "slow_transport": "Unset it, and see what links the GPUs have: nvidia-smi topo -m.",
    "slow_transfer": "Pin the memory (pin_memory=True) and copy one step ahead, non_blocking=True.",
    "pipeline_bubble": "Use more microbatches, four for each stage or more, or interleave stages.",
    "periodic": "Write checkpoints in the background, or less often.",
    "no_overlap": "Use smaller buckets, so that calls start during the backward pass.",
    "host_bound": "Launch less: torch.compile, CUDA graphs, fused optimizers, larger batches.",
    "contention": "Try fewer channels (NCCL_MAX_CTAS), or other places for the collectives.",
}
_TITLES = {
    "late_host": "Late host", "extra_work": "Extra work", "slow_gpu": "Slow GPU",
    "uneven_work": "Uneven work", "blocking_sync": "Blocking calls", "small_calls": "Small calls",
    "slow_setting": "Slow setting", "slow_transport": "Slow transport",
    "slow_transfer": "Slow copies", "pipeline_bubble": "Pipeline bubble", "periodic": "Long steps",
    "no_overlap": "No overlap", "host_bound": "Host bound", "contention": "Contention",
}  # fmt: skip


def advice(cause: Cause) -> str:
    """What to do about a cause."""
    text = _ADVICE[cause.cause]
    if cause.evidence.kind == "slow_calls":
        return "Look for NCCL settings in the environment; collscope tune tries others."
    if cause.evidence.kind == "nan_checks":
        return "Leave torch.autograd.set_detect_anomaly out, and TORCH_DISTRIBUTED_DEBUG."
    if cause.cause == "late_host" and not cause.certain:
        text += " Time the job without the profiler and give that as --step-ms."
    return text


def cause_title(cause: str, ranks: tuple[int, ...]) -> str:
    """A cause's code in words, with its ranks.

    >>> cause_title("late_host", (1,))
    'Late host, rank 1'
    """
    words = ", ".join(map(str, ranks))
    return _TITLES[cause] + (f", rank {words}" if words else "")


def ms(value: float) -> str:
    """A time in ms, with three digits."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
