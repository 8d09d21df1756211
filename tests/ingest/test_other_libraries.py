"""Kernels of collectives that no library's log tells of: named by the user, fused, in doubt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import collscope

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FUSED = (
    "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16>(int)"
)
UNKNOWN = "vendor_all_reduce_v9"


def traces(folder: Path, *names: str) -> list[Path]:
    """Two ranks' traces; each of eight steps has a matrix product and these kernels, 20 us each."""
    found = []
    for rank in range(2):
        events = []
        for k, name in enumerate(8 * ("gemm_kernel", *names)):
            place = {"device": rank, "stream": 7, "correlation": k + 1}
            events += [
                {"ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": 7,
                 "ts": 1e6 + 30 * k, "dur": 20.0, "args": place},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                 "ts": 1e6 + 30 * k - 9, "dur": 4.0, "args": place},
            ]  # fmt: skip
        trace = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
            "traceEvents": events,
        }
        found.append(folder / f"rank{rank}.json")
        found[-1].write_text(json.dumps(trace))
    return found


def report(db: Path, files: list[Path], *options: str) -> str:
    got = collscope("ingest", "trace", *files, "--db", db, *options)
    assert got.code == 0, got.err
    return collscope("report", "--db", db).out


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_name_of_communication_is_in_the_first_lines(tmp_path: Path, db_path: Path) -> None:
    found = in_one_line(report(db_path, traces(tmp_path, NCCL, UNKNOWN)))
    doubt = found.index("Kernels whose names suggest collectives count as compute: 33.3 %")
    assert doubt < found.index("collectives take")
    assert UNKNOWN in found[doubt:]


def test_a_verdict_is_not_sure_beside_such_kernels(tmp_path: Path, db_path: Path) -> None:
    # they count as compute, so that compute seems to bound the step and no rank to be late
    report(db_path, traces(tmp_path, NCCL, UNKNOWN))
    body = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    (entry,) = body["verdict"]
    assert (body["step"]["bound"], body["step"]["kernels_in_doubt"]) == (None, True)
    assert (entry["cause"], entry["certainty"]) == ("none", "likely")
    assert "--collective" in entry["advice"]
    # named, they are collectives, and nothing is in doubt
    named = tmp_path / "named.db"
    files = list(tmp_path.glob("rank*.json"))
    report(named, files, "--collective", "^vendor_=AllReduce")
    body = json.loads(collscope("report", "--db", named, "--format", "json").out)
    assert (body["step"]["bound"] is None, body["step"]["kernels_in_doubt"]) == (False, False)


def test_an_option_names_a_collective(tmp_path: Path, db_path: Path) -> None:
    found = report(db_path, traces(tmp_path, NCCL, UNKNOWN), "--collective", "^vendor_=AllReduce")
    assert "suggest collectives" not in in_one_line(found)
    got = collscope("sql", "--db", db_path, "SELECT DISTINCT op FROM classes").out
    assert "AllReduce" in got
    assert UNKNOWN in found


def test_a_file_names_collectives(tmp_path: Path, db_path: Path) -> None:
    (tmp_path / "names").write_text("# ours\nvendor_.*=AllReduce\n")
    found = report(db_path, traces(tmp_path, UNKNOWN), "--collective", f"@{tmp_path / 'names'}")
    assert "No collective is recognised" not in in_one_line(found)


@pytest.mark.parametrize("option", ["vendor", "vendor=Compute", "(=AllReduce", "@nowhere"])
def test_another_form_is_refused(tmp_path: Path, db_path: Path, option: str) -> None:
    files = traces(tmp_path, UNKNOWN)
    got = collscope("ingest", "trace", *files, "--db", db_path, "--collective", option)
    assert got.code in (2, 3)
    assert option.lstrip("@").partition("=")[0] in got.err


def test_the_collectives_part_of_a_fused_kernel_is_not_known(tmp_path: Path, db_path: Path) -> None:
    found = in_one_line(report(db_path, traces(tmp_path, NCCL, FUSED)))
    assert (
        "Kernels that combine a collective with compute (50.0 % of the collectives' kernel time)"
        in found
    )


def test_advice_on_sizes_is_true_of_other_libraries(tmp_path: Path, db_path: Path) -> None:
    found = in_one_line(report(db_path, traces(tmp_path, FUSED)))
    assert "get them from the job's own code" in found
    assert "ProfilerActivity.CPU and record_shapes" not in found
