"""FlashInfer's functions, with their signatures of August 2026; sums by gloo."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class AllReduceFusionPattern:
    kAllReduce = 0  # noqa: N815 - its name there


def trtllm_create_ipc_workspace_for_all_reduce_fusion(
    tp_rank: int,
    tp_size: int,
    max_token_num: int,
    hidden_dim: int,
    use_fp32_lamport: bool = False,
    group: Any = None,
    create_metadata: bool = False,
    comm_backend: Any = None,
    use_symm_dev_mem: bool = False,
) -> tuple[list[list[int]], Any]:
    assert not use_symm_dev_mem
    return [[0] * tp_size], torch.zeros(1)


def trtllm_allreduce_fusion(
    allreduce_in: Any,
    world_size: int,
    world_rank: int,
    token_num: int,
    hidden_dim: int,
    workspace_ptrs: Any,
    launch_with_pdl: bool,
    trigger_completion_at_end: bool,
    fp32_acc: bool,
    pattern_code: int,
    use_oneshot: bool | None,
    allreduce_out: Any,
    residual_in: Any,
    residual_out: Any,
    norm_out: Any,
    quant_out: Any,
    scale_out: Any,
    rms_gamma: Any,
    rms_eps: float | None,
    scale_factor: Any,
    layout_code: Any,
    metadata: dict[str, Any] | None = None,
    block_quant_group_size: int | None = None,
    weight_bias: float | None = None,
) -> None:
    assert token_num * hidden_dim == allreduce_in.numel()
    assert use_oneshot or token_num > world_size
    allreduce_out.copy_(allreduce_in)
    dist.all_reduce(allreduce_out)
