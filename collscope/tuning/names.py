"""Names of collectives, algorithms and protocols in the CSVs of NVIDIA's example tuner plugin.

Source: NVIDIA/nccl plugins/tuner/example (plugin.cc, nccl_tuner.conf); ROCm/rccl uses the same.
"""

from __future__ import annotations

from collscope.model import Op

COLLECTIVES = {
    op.value.lower(): op
    for op in (Op.BROADCAST, Op.REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE)
}
COLLECTIVE_OF = {op: name for name, op in COLLECTIVES.items()}
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
_BARE = {name.replace("_", ""): name for name in (*ALGORITHMS, *PROTOCOLS)}


def plugin_name(name: str) -> str | None:
    """The CSVs' spelling of an algorithm or protocol as logs or NCCL_ALGO spell it, or None.

    >>> plugin_name("NVLSTree"), plugin_name("COLLNET_DIRECT"), plugin_name("LL128")
    ('nvls_tree', 'collnet_direct', 'll128')
    """
    return _BARE.get(name.lower().replace("_", ""))
