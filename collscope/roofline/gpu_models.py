"""Models of GPUs, by the names that drivers give."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

# The word of a driver's name that is the model: H200 of "NVIDIA H200", A100 of "NVIDIA
# A100-SXM4-80GB", MI300X of "AMD Instinct MI300X"; none in "AMD Radeon Graphics". gfx942 is an
# architecture, which several models have.
_MODEL = re.compile(r"\b(?!GFX)[A-Z]{1,3}\d{2,4}[A-Z]?\b")


class OtherGpus(msgspec.Struct, frozen=True):
    """GPUs that ran and are of none of the system's models."""

    system: str
    models: tuple[str, ...]  # of the system's GPUs
    names: tuple[str, ...]  # of those that ran, as the driver names them


def other_gpus(system: str, models: tuple[str, ...], names: Iterable[str]) -> OtherGpus | None:
    """GPU models in the run that a system lacks; None if unknown."""
    others = tuple(
        dict.fromkeys(
            name
            for name in names
            if models and (own := _MODEL.findall(name.upper())) and not {*models} & {*own}
        )
    )
    return OtherGpus(system, models, others) if others else None
