"""Damaged samples through every reader: `python tests/fuzz_readers.py [VARIANTS] [SEED]`.

Every reader of the registry is asked for what it fits, and the readers of plans, systems,
topologies and algorithms, which refuse what they cannot use with a sentence. Prints the seed and
the input's name of the first other exception; the input is made again from both.
"""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

from fuzz_recorders import numbers, run

from collscope.errors import CollscopeError
from collscope.parsers import msccl_xml, registry
from collscope.parsers.hints import Hints
from collscope.parsers.reader import Fit, InMemory
from collscope.replay.parse import parse_plan
from collscope.roofline.system_file import parse_system
from collscope.roofline.topology_xml import parse_topology
from collscope.tuning import csv_format
from collscope.whatif.layers import parse_layers

_ROOT = Path(__file__).resolve().parent.parent
_LARGEST = 4 << 20  # bytes of a sample
PLAN = b"""collscope-plan 1
mode sequence
nranks 4
comm 0 0-3
comm 1 0,2
class 0 op=AllReduce datatype=Bfloat16 redop=Sum count=4096 in_place=1 calls=26 comms=0,1
class 1 op=Broadcast datatype=Float32 count=1024 root=0 in_place=1 calls=13 comms=0
"""
TUNER_CSV = b"""# collscope tune: 3 rows
collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
allreduce,0,65536,tree,ll,8,1,8,-1,-1
allgather,65537,16777216,ring,ll128,-1,-1,-1,-1,-1
"""


def read_all(data: bytes, name: str) -> None:
    """Through every reader that fits, and those of files that are named by an option."""
    head = data[: registry.HEAD_BYTES]
    for kind in registry.DIALECTS:
        for reader in registry.readers(kind):
            if reader.sniff(head) is not Fit.NONE:
                reader.read(InMemory([data], name), Hints())
        registry.read_bytes(kind, data, Hints())
    text = data.decode("utf-8", errors="replace")
    for parse in (parse_plan, parse_system, parse_layers):
        with contextlib.suppress(CollscopeError):
            parse(text, name)
    with contextlib.suppress(CollscopeError):
        parse_topology(data, name)
    msccl_xml.parse(data)
    csv_format.parse(text)


def _samples() -> dict[str, bytes]:
    found = {"a.plan": PLAN, "tuner.csv": TUNER_CSV}
    folders = (_ROOT / "samples", _ROOT / "collscope" / "roofline" / "systems")
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if not path.is_file() or path.stat().st_size > _LARGEST or path.name == "README.md":
            continue
        data = path.read_bytes()
        found[path.name] = gzip.decompress(data) if path.suffix == ".gz" else data
    return found


if __name__ == "__main__":
    run(_samples(), read_all, *numbers())
