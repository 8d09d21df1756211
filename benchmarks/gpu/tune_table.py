"""Predicted against measured change of a step, and what NCCL ran: of the files of tune.sh.

    python3 benchmarks/gpu/tune_table.py FOLDER START...

Reads START-bad.step, START-tuned.step, START/evidence.json and the TUNING lines of *.nccl.*.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

# AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
CHOICE = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?: channel\{Lo\.\.Hi\}=\{(\S+?)\})?"
)
MOST_WARM_UP = 50  # calls; what ran less often is of the start


def step_ms(folder: Path, name: str) -> float | None:
    """Median step time that a job printed."""
    path = folder / f"{name}.step"
    found = re.findall(r"STEP (\{.*\})", path.read_text()) if path.exists() else []
    return json.loads(found[-1])["median_ms"] if found else None


def choices(folder: Path, name: str) -> Counter[tuple[str, ...]]:
    """How often NCCL reports that it ran a size with an algorithm, protocol and channels."""
    seen: Counter[tuple[str, ...]] = Counter()
    for log in folder.glob(f"{name}.nccl.*"):
        text = log.read_text(errors="replace")
        seen.update(match.groups(default="") for match in CHOICE.finditer(text))
    return seen


def show(value: float | None) -> str:
    """A cell."""
    return "-" if value is None else f"{value:.4f}"


def main(folder: Path, starts: list[str]) -> None:
    """Print the table, and the choices of each job."""
    print(f"{'start':16}{'before ms':>10}{'predicted':>10}{'after':>10}  outcome")
    for start in starts:
        path = folder / start / "evidence.json"
        evidence = json.loads(path.read_text()) if path.exists() else {}
        before, after = (step_ms(folder, f"{start}-{which}") for which in ("bad", "tuned"))
        saved = evidence["gain"]["saved_ns"] / 1e6 if evidence.get("gain") else 0.0
        predicted = None if before is None else before - saved
        cells = "".join(f"{show(x):>10}" for x in (before, predicted, after))
        print(f"{start:16}{cells}  {evidence.get('outcome')}: {evidence.get('why')}")
    for name in (f"{start}-{which}" for start in starts for which in ("bad", "tuned")):
        print(f"\n{name}")
        for what, calls in sorted(
            choices(folder, name).items(), key=lambda c: (c[0][0], int(c[0][1]))
        ):
            if calls > MOST_WARM_UP:
                print(f"  {calls:5}", *what)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
