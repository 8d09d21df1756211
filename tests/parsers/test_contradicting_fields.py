"""Fields that say one thing twice: contradictions are counted, what conventions allow is silent."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from inputs import ROOT
from readers import parse, parse_recording

from collscope.model import Op
from collscope.model.trace import RecordedCalls
from collscope.parsers._sides import counts_contradict, is_group

SAMPLES = ROOT / "samples" / "recorders"
FLIGHT = "ddp.fr.rank0.json"


@pytest.mark.parametrize(
    ("op", "counts", "ranks", "name", "expected"),
    [
        (Op.ALL_REDUCE, (8, 8), 4, "allreduce", False),
        (Op.ALL_REDUCE, (8, 4), 4, "allreduce", True),
        (Op.ALL_REDUCE, (8, 4), None, "allreduce", True),
        (Op.ALL_REDUCE, (0, 0), 4, "allreduce", False),
        (Op.ALL_REDUCE, (8, None), 4, "allreduce", False),
        (Op.BROADCAST, (8, 9), 4, "_broadcast_oop", True),
        (Op.REDUCE, (8, 9), 4, "reduce", True),
        (Op.ALL_GATHER, (8, 32), 4, "_allgather_base", False),
        (Op.ALL_GATHER, (8, 32), 8, "_allgather_base", True),
        (Op.ALL_GATHER, (8, 33), None, "_allgather_base", False),
        (Op.ALL_GATHER, (8, 40), 4, "allgather_into_tensor_coalesced", False),
        (Op.REDUCE_SCATTER, (32, 8), 4, "_reduce_scatter_base", False),
        (Op.REDUCE_SCATTER, (8, 32), 4, "_reduce_scatter_base", True),
        (Op.ALL_TO_ALL, (8, 12), 4, "all_to_all", False),  # uneven ones have the same name
        (Op.ALL_TO_ALLV, (8, 12), 4, "all_to_allv", False),
        (Op.GATHER, (8, 0), 4, "gather", False),  # not the root
        (Op.SCATTER, (8, 1), 4, "scatter", False),
        (Op.SEND, (8, 9), 2, "send", False),
        (Op.BARRIER, (0, 1), 4, "barrier", False),
        (Op.UNKNOWN, (0, 1), 4, "wait", False),
        (Op.ALL_REDUCE, (8, 2**62), 4, "allreduce", False),  # beyond any memory: counted as that
    ],
)
def test_in_and_out(
    op: Op, counts: tuple[int | None, int | None], ranks: int | None, name: str, expected: bool
) -> None:
    assert counts_contradict(op, counts, ranks, name) is expected


@pytest.mark.parametrize(
    ("ranks", "size", "world", "expected"),
    [
        ((4, 5), 2, 8, True),
        ((4, 5), None, None, True),
        ((4, 5), 3, 8, False),
        ((4, 4), 2, 8, False),
        ((4, 8), 2, 8, False),
    ],
)
def test_ranks_of_a_group(
    ranks: tuple[int, ...], size: int | None, world: int | None, expected: bool
) -> None:
    assert is_group(ranks, size, world) is expected


def flight(**fields: object) -> RecordedCalls:
    """The sample's dump; each field of its first entry given here is another one."""
    document = json.loads((SAMPLES / FLIGHT).read_bytes())
    document["entries"][0].update(fields)
    found = parse_recording([json.dumps(document).encode()], FLIGHT)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"input_dtypes": ["Half"]}, 1),
        ({"input_sizes": [[5]]}, 1),
        ({"input_sizes": [[5], [8388603]]}, 0),  # several tensors in one call
        ({"input_sizes": [], "input_dtypes": []}, 0),
        ({"profiling_name": "nccl:_all_gather_base"}, 1),
        ({"profiling_name": "nccl:_all_gather_base", "output_sizes": [[4, 8388608]]}, 0),
        ({"profiling_name": "nccl:all_to_all", "output_sizes": [[5]]}, 0),
        ({"profiling_name": "nccl:send 0->1", "is_p2p": True, "output_sizes": [[5]]}, 0),
    ],
)
def test_flight_recorder(fields: dict[str, Any], told: int) -> None:
    found = flight(**fields)
    codes = [d.count for d in found.diagnostics if d.code == "contradicting_fields"]
    assert sum(codes) == told
    what = found.calls[0].collective
    assert (what.in_count is None and what.out_count is None) is bool(told)


def test_clog() -> None:
    name = "synthetic.clog.txt"
    text = (SAMPLES / name).read_text()
    found = parse_recording([text.replace("in_count=1024", "in_count=1025", 1).encode()], name)
    assert found is not None
    assert ("contradicting_fields", 1) in [(d.code, d.count) for d in found.diagnostics]


@pytest.mark.parametrize(("world", "codes"), [(4, []), (8, ["contradicting_fields"])])
def test_size_of_the_job_and_of_its_default_group(world: int, codes: list[str]) -> None:
    text = gzip.decompress((ROOT / "samples/traces/default/rank0.json.gz").read_bytes())
    assert b'"world_size": 4' in text
    (trace,) = parse([text.replace(b'"world_size": 4', b'"world_size": %d' % world)], "rank0.json")
    assert [d.code for d in trace.diagnostics] == codes
    assert trace.world_size == 4  # as the calls have it, too
