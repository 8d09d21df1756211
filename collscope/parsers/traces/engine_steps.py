"""Steps that inference engines mark, with what each does (pure).

vLLM      execute_context_2(1024)_generation_30(30), execute_7_context_0(sq0sk0)_generation_8(…):
          vllm/v1/worker of vllm-project/vllm; requests and tokens of prompts, and of generation
SGLang    step[DECODE bs=32], step[EXTEND bs=2 toks=8192]: scheduler of sgl-project/sglang
"""

from __future__ import annotations

import re
from itertools import groupby

import msgspec

_VLLM = re.compile(r"execute_(?:\d+_)?context_(?P<prompts>\d+)\(.*")
_SGLANG = re.compile(r"step\[(?P<mode>[A-Z_]+) bs=\d+.*\]")


class EngineStep(msgspec.Struct, frozen=True, order=True):
    """A marked step: microseconds on the trace's clock."""

    start_us: float
    duration_us: float
    decode: bool  # each request gets its next tokens, and no prompt is read


def is_decode(name: str) -> bool | None:
    """Whether a mark's step only generates; None for a name that marks no step.

    >>> is_decode("execute_context_0(0)_generation_32(32)"), is_decode("step[EXTEND bs=1 toks=9]")
    (True, False)
    """
    if (match := _VLLM.fullmatch(name)) is not None:
        return int(match["prompts"]) == 0
    if (match := _SGLANG.fullmatch(name)) is not None:
        return match["mode"] == "DECODE"
    return None


def of_one_kind(steps: list[EngineStep]) -> tuple[list[EngineStep], int]:
    """The longest row of steps of one kind, the last one of equals, and how many others there are.

    A step that reads prompts and one that generates are as different as two jobs' steps.
    """
    runs = [list(run) for _, run in groupby(sorted(steps), key=lambda step: step.decode)]
    longest = max(reversed(runs), key=len, default=[])
    return longest, len(steps) - len(longest)
