"""SGLang's second class: it is disabled, as where GPUs have no NVLink."""

from __future__ import annotations

from typing import Any


class CustomAllReduceV2:
    def __init__(
        self,
        group: Any,
        device: Any,
        max_pull_size: int | None = None,
        max_push_size: int | None = None,
        max_pull_blocks: int | None = None,
        max_push_blocks: int | None = None,
    ) -> None:
        self.disabled = True
