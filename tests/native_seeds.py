"""Seeds for the fuzzing of the native parts: `python tests/native_seeds.py FOLDER`.

What the programs read there is what Python gives them: plans and results, tuner CSVs, the calls of
two ranks, a graph of one compute kernel beside one collective.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fuzz_readers import PLAN, TUNER_CSV

from collscope.parsers.log_scan import scan

_SAMPLES = Path(__file__).resolve().parent.parent / "samples"
# As native/play/fuzz.cpp reads it: 4 nodes and 12 times 1 row; edges of each, where they lead, how
# many causes each node has, GPUs, the kernel that starts at each node, collectives that come and
# leave, the origin; times in quarters: of the edges, the work, its pace.
_GRAPH = (
    16,
    *(1, 0, 1, 0, 1), *(1, 3, 2), *(0, 1, 1, 1), *(0, 0, 0, 0, 0), *(-1, 0, -1, -1), *(0, 0, 1, -1),
    0,
    *(4, 8, 12), 40, 6,
)  # fmt: skip


def _calls(rank: int) -> bytes:
    """One byte for each call of a rank's log: which of its kinds it is."""
    found = scan([(_SAMPLES / "nccl" / "mixed" / f"rank{rank}.log").read_bytes()])
    return bytes(sig % 256 for sig in found.coll.sig.tolist())


def main(folder: Path) -> None:
    """Write the seeds, named by the part of `native/` that they are for."""
    folder.mkdir(parents=True, exist_ok=True)
    results = (_SAMPLES / "replay" / "h200x4-mixed.csv").read_bytes()
    seeds = {
        "replayer.plan": PLAN,
        "replayer.csv": results,
        "tuner.csv": TUNER_CSV,
        "align.calls": (_calls(0) + _calls(1))[:4000],
        "play.graph": bytes(value % 256 for value in _GRAPH),
        "picklejson.dump": (_SAMPLES / "recorders" / "ddp.fr.rank1.pickle").read_bytes()[:4000],
    }
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
