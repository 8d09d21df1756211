"""Write `collscope/sanitize/words.txt`: the words that a shareable copy keeps.

They are the words of the messages of NCCL and RCCL, and those that collscope's readers look for:

    python scripts/library_words.py NCCL_CHECKOUT RCCL_CHECKOUT

A digit is written as 9, so that rank0 and rank12 are one word. Without a checkout the list would
lose the words of a library: the script refuses.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_TARGET = _ROOT / "collscope" / "sanitize" / "words.txt"
# Readers, and what turns their findings into messages.
_PYTHON = ("parsers", "ingest", "match", "model", "timeline", "kernel_names.py", "stamps.py")
_TABLES = ("collscope/roofline/gpu_models.py", "collscope/roofline/links.toml")
_NATIVE = ("logscan", "tracescan")
# Words that no source spells so: devices, marks of glog, versions.
_MORE = """
eth9 ib9 ens9 bond9 mlx9_9 bnxt_re9 lo cuda9 hip9 rocm9 sm9 sm9a gfx9 gfx9a v9 W9 I9 E9 F9 s9 GPU9
gpu9 step9 LL9 nccl9 rank9 default_pg None True False nan inf NaN Version Driver Passed Waived HBM9
HBM9e DP TP PP EP CP dp tp pp ep cp ncclx sn ts us id ids type p9p avg timing stats netname
splitshare corr Float Half Double BFloat9 Int Long Byte Char Short Bool
api Summary Average Ave Percentage Instances Med Total Time time sum gpu mem kern cuda CALLS DOMAIN
DURATION AVERAGE STDDEV PERCENT
all_reduce all_gather reduce_scatter reduce gather scatter broadcast alltoall alltoallv sendrecv
perf okay hex iter per pct cv skip of place unchecked device experiment unalign inner
osu bw bibw mbw mr latency allgather allreduce bcast barrier put get xccl Allreduce Allgather
Alltoall Bcast Bandwidth Bi-Directional Latency Multiple Message Rate Personalized Exchange
Overall Overlap Messages Tree Ring TREE RING NVLS ANVLS Speedup Non-trainable Trainable
combined Before After value testing validating measuring TransferBench Transfers
Two Single Aggregate Bidirectional
Unidirectional GPU-executed DMA9 Overhead Baseline Chunk Pickle Sync TFLOPs Nvlink Buffe
Without ALGO PROTO tested tasks-per-node srun mpirun mpiexec
sbatch python bash torchrun params
images samples tokens second
NVIDIA AMD Intel Instinct Kind Accum Block Dispatch LDS SGPR VGPR Workgroup Agent Queue Scratch Grid
""".split()  # noqa: SIM905
# Words of the sources that hosts are called by as well.
_NOT = {"node9", "host9", "localhost9", "Rome", "server9", "worker9"}
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# What replaces a value in a format, and what a letter behind a backslash stands for.
_FORMAT = re.compile(r"%[-+ #0]*[\d.*]*(?:hh|ll|[hlzjt])?[diouxXeEfgGcsp]")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|[abdfnrstvwABDSWZ])")
_WORD = re.compile(r"[^\W\d_]\w*(?:[-.]\w+)*")


def words_of(text: str, number: str = " ") -> Iterator[str]:
    """Words of a literal, whole and in their parts; `number` stands for a formatted value."""
    plain = _ESCAPE.sub(" ", _FORMAT.sub(number, text))
    for found in _WORD.findall(plain):
        yield re.sub(r"\d+", "9", found)
        yield from (re.sub(r"\d+", "9", part) for part in re.split(r"[-.]", found) if part)


def of_python(path: Path) -> Iterator[str]:
    """Words of the strings of a module, without its docstrings; of its fields' names as well."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            value = (
                node.value.decode("ascii", "ignore")
                if isinstance(node.value, bytes)
                else node.value
            )
            if isinstance(value, str):
                yield from words_of(value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from words_of(node.target.id)  # msgspec decodes JSON by the names of fields


def of_native(path: Path) -> Iterator[str]:
    """Words of the strings of a source in C or C++."""
    for line in path.read_text("utf-8", "replace").splitlines():
        if not line.lstrip().startswith(("#include", "//", "*")):
            for text in _STRING.findall(line):
                yield from words_of(text)
                yield from words_of(text, "9")  # "rank%d" gives rank9


def why_unusable(arguments: list[str]) -> str | None:
    """What is wrong with the checkouts, and what to do; None where both are there."""
    if len(arguments) != 2:
        return "library_words: two checkouts are needed. Name NCCL_CHECKOUT and RCCL_CHECKOUT."
    for name, folder in zip(("NCCL", "RCCL"), arguments, strict=True):
        sources = Path(folder, "src")
        # Both have init.cc; RCCL alone has sources whose names begin with rccl or rocm.
        amd = any(next(sources.rglob(f"{begin}*"), None) for begin in ("rccl", "rocm"))
        if not (sources / "init.cc").is_file() or amd is not (name == "RCCL"):
            return f"{folder}: no checkout of {name}. Name a folder that holds {name}'s src/."
    return None


def main(checkouts: list[str]) -> int:
    """Write the list; returns the exit code."""
    if (why := why_unusable(checkouts)) is not None:
        print(why, file=sys.stderr)
        return 2
    found: set[str] = set()
    package = _ROOT / "collscope"
    for name in _PYTHON:
        path = package / name
        for source in [path] if path.is_file() else sorted(path.rglob("*.py")):
            found.update(of_python(source))
    for name in _TABLES:
        found.update(words_of(" ".join(_STRING.findall((_ROOT / name).read_text("utf-8")))))
    for name in _NATIVE:
        for source in sorted((_ROOT / "native" / name).glob("*.[hc]*")):
            found.update(of_native(source))
    for checkout in checkouts:
        for end in ("cc", "h", "cu", "cpp", "c"):
            for source in sorted(Path(checkout, "src").rglob(f"*.{end}")):
                found.update(of_native(source))
    kept = sorted(word for word in {*found, *_MORE} - _NOT if len(word) > 1)
    _TARGET.write_text("\n".join(kept) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
