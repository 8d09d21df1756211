"""What `tune` leaves: variables, the CSV of the plugin, NVIDIA's optimiser's CSV (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from collscope.model import Measurement, bus_bandwidth
from collscope.tuning import optimizer_csv
from collscope.tuning.choose import PLUGIN, Candidate, Choice
from collscope.tuning.csv_format import TunerRow
from collscope.tuning.names import COLLECTIVE_OF
from collscope.tuning.optimizer_csv import OptimizerRow
from collscope.tuning.settings import KNOBS, Setting
from collscope.units import count

OVERRIDING = ("NCCL_ALGO", "NCCL_PROTO")  # rule out what a plugin asks for


def tuned_setting(choice: Choice, plugin: Mapping[str, str]) -> Setting:
    """The choice as a setting of the ranks.

    plugin  variables that load the plugin with the CSV
    """
    loads = tuple(plugin.items()) if choice.kind == PLUGIN else ()
    return Setting("tuned", (*choice.environment, *loads), family="any")


def to_unset(tuned: Setting, present: Iterable[str], choice: Choice) -> tuple[str, ...]:
    """Knobs that the job sets and must not, and what would override a plugin.

    present  names of the knobs that the job sets
    """
    named = {name for name, _ in tuned.environment}
    wanted = {*present, *(OVERRIDING if choice.kind == PLUGIN else ())}
    return tuple(knob for knob in KNOBS if knob in wanted and knob not in named)


def shell_lines(tuned: Setting, unset: Sequence[str], comments: Sequence[str]) -> str:
    """Lines that a shell reads with `.`: what to unset, then what to set.

    >>> print(shell_lines(Setting("t", (("NCCL_ALGO", "Ring"),)), ["NCCL_PROTO"], ["why"]), end="")
    # why
    unset NCCL_PROTO
    export NCCL_ALGO=Ring
    """
    lines = [f"# {' '.join(comment.split())}" for comment in comments]
    lines += [f"unset {' '.join(unset)}"] if unset else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in tuned.environment]
    return "\n".join(lines) + "\n"


def optimizer_text(candidates: Sequence[Candidate], settings: Mapping[str, Setting]) -> str:
    """Measurements of every setting that a row can name, for `optimize_config.py`."""
    rows = []
    for c in candidates:
        for name, standing in c.standings.items():
            setting = settings.get(name)
            if setting is None or setting.algorithm is None or setting.protocol is None:
                continue
            if c.shape.op not in COLLECTIVE_OF:
                continue
            busbw = bus_bandwidth(
                c.shape.op,
                size=c.size_bytes,
                time_s=standing.time_us / 1e6,
                nranks=c.shape.nranks,
            )
            rows.append(
                OptimizerRow(
                    c.shape.op, c.size_bytes, setting.algorithm, setting.protocol,
                    setting.channels, c.shape.nnodes, c.shape.nranks, busbw or 0.0,
                    standing.time_us,
                )
            )  # fmt: skip
    return optimizer_csv.render(rows)


def row_comments(rows: Sequence[TunerRow], first: Measurement | None) -> list[str]:
    """What stands on top of the CSV."""
    library = "an unknown library" if first is None else first.library or "an unknown library"
    device = "" if first is None or not first.device else f" on {first.device}"
    return [
        f"collscope tune: {count(len(rows), 'row')}, measured with {library}{device}",
        "sizes outside of the rows are left to the library",
    ]
