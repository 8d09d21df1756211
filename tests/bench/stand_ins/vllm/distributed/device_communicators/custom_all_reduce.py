"""vLLM's class with its interface: signatures and rules as in vllm-project/vllm, sums by gloo.

STAND_IN makes it misbehave from the call after capture on: wrong, exit, hang.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

_LATER = 30  # calls: in the rounds, behind the first check


class CustomAllreduce:
    def __init__(
        self,
        group: Any,
        device: Any,
        max_size: int = 8192 * 1024,
        symm_mem_enabled: bool = False,
    ) -> None:
        assert dist.get_backend(group) != "nccl"
        self.group, self.max_size, self.disabled, self.calls = group, max_size, True, 0

    def finalize_p2p(self) -> None:
        self.disabled = False

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        yield

    def should_custom_ar(self, inp: Any) -> bool:
        return not self.disabled and inp.numel() * inp.element_size() < self.max_size

    def custom_all_reduce(self, input: Any) -> Any:
        self.calls += 1
        how = os.environ.get("STAND_IN")
        if self.calls > _LATER and how == "exit":
            os._exit(9)
        if self.calls > _LATER and how == "hang":
            time.sleep(600)
        out = input.clone()
        if how != "wrong":
            dist.all_reduce(out, group=self.group)
        return out
