"""What trials with public documents found: each test is a class of fault, on a small text."""

from __future__ import annotations

import json
from pathlib import Path

from command import collscope, rows


def test_one_test_twice_in_a_text_has_two_labels(tmp_path: Path, db_path: Path) -> None:
    """Two machines of a guide: the median of both is the bandwidth of none."""
    table = (
        "# OSU MPI Bi-Directional Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1048576  {}\n"
    )
    path = tmp_path / "guide.rst"
    path.write_text(f"CPU nodes\n\n{table.format(23299.12)}\nGPU nodes\n\n{table.format(49931.84)}")
    assert collscope("ingest", "auto", path, "--db", db_path).code == 0
    query = "SELECT label, ROUND(2 * busbw_gbps, 3) FROM measurements ORDER BY line"
    label = "OSU Bi-Directional Bandwidth"
    assert rows(db_path, query) == [(label, 23.299), (f"{label} (2)", 49.932)]


def test_a_healthy_answer_of_ras_is_no_log(tmp_path: Path, db_path: Path) -> None:
    """It begins with the library's version, as logs do; nothing of it is stored, as is said."""
    path = tmp_path / "ras.txt"
    path.write_text(
        'RCCL version 2.28.3 compiled with ROCm "7.2.0"\n'
        "HIP runtime version 70226015, amdgpu driver version 70226015\n\n"
        "Job summary\n===========\n\n"
        "  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n"
        "      1          8            1          8        8\n\n"
        "Communicators... (0.00s)\n=============\n\n"
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    #  in group  per comm  per node  per comm  in group\n"
        "    0         1         1         8         8         8   RUNNING      OK\n\n"
        "Errors\n======\n\nWarnings\n========\n\n"
    )
    done = collscope("ingest", "auto", path, "--db", db_path)
    assert (done.code, "Nothing was stored" in done.err) == (3, True)
    assert not db_path.exists()


def test_what_a_program_prints_is_no_title(tmp_path: Path, db_path: Path) -> None:
    """A message on a line of its own inside of a code block stands above a table."""
    table = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "     1048576        262144     float     sum      -1   1000.0    1.05    1.05      0\n"
    )
    block = "```\nall_reduce_perf -g 2\n\nNo protocol specified\n\n{}```\n\n"
    path = tmp_path / "notes.md"
    path.write_text(f"### Default\n\n{block}### Tuned\n\n{block}".replace("{}", table))
    done = collscope("ingest", "table", path, "--ranks", "2", "--db", db_path)
    assert done.code == 0
    query = "SELECT DISTINCT label FROM measurements ORDER BY line"
    assert rows(db_path, query) == [("Default",), ("Tuned",)]


def test_two_summaries_of_deepspeed_have_two_labels(tmp_path: Path, db_path: Path) -> None:
    """The second holds the calls of the first, or is of another run. Code behind it is no row."""
    table = (
        "```\nComm. Op            Message Size        Count               Total Latency(ms)   "
        "Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)\nbroadcast\n"
        "                    2.0 KB              146                 11.12               {}"
        "                0.43                0.41\n```\n\n```\n    dist.log_summary()\n```\n"
    )
    path = tmp_path / "guide.md"
    path.write_text(table.format("0.08") + table.format("0.06"))
    assert collscope("ingest", path, "--db", db_path).code == 0
    query = "SELECT label, time_us_median FROM measurements ORDER BY line"
    assert rows(db_path, query) == [("guide", 80.0), ("DeepSpeed summary 2", 60.0)]
    assert rows(db_path, "SELECT code FROM diagnostics WHERE code = 'torn_row'") == []


def test_a_heading_that_names_a_program_is_a_title(tmp_path: Path, db_path: Path) -> None:
    """Its tables were those of the section above, of another program."""
    table = (
        "```\n#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
        "            (us)  (GB/s)  (GB/s)\n"
        "  1073741824     268435456     float     sum      -1   {0}.0    4.00    4.00      0"
        "   {0}.0    4.00    4.00      0\n```\n\n"
    )
    path = tmp_path / "blog.md"
    path.write_text(
        "### p2pBandwidthLatencyTest\n\n```\n   D\\D     0      1\n```\n\n"
        + f"### nccl-tests: all_reduce_perf -g 2\n\n{table.format(268435)}"
        + f"### the same with NVLink: all_reduce_perf -g 2\n\n{table.format(100000)}"
    )
    assert collscope("ingest", path, "--db", db_path).code == 0
    query = "SELECT DISTINCT label, ROUND(time_us_median) FROM measurements ORDER BY line"
    assert rows(db_path, query) == [
        ("nccl-tests: all_reduce_perf -g 2", 268435),
        ("the same with NVLink: all_reduce_perf -g 2", 100000),
    ]


def test_a_row_of_an_allocation_is_no_kernel(tmp_path: Path, db_path: Path) -> None:
    """A site's guide has five columns without a header, as the totals of an RPD file."""
    path = tmp_path / "guide.rst"
    path.write_text(
        "   Project          | Allocation   |   Usage   | Remaining  |    Priority\n"
        "   _________________|______________|___________|____________|______________\n"
        "   abc123           |  20000       |   126.3   |  19873.7   |   1560.80\n"
    )
    done = collscope("ingest", path, "--db", db_path)
    assert (done.code, "Nothing was stored" in done.err) == (3, True)
    row = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)|26592|69872574|2627|10.45\n"
    path.write_text(row)
    assert collscope("ingest", path, "--db", db_path).code == 0
    assert rows(db_path, "SELECT calls, total_ns FROM kernel_totals") == [(26592, 69872574000)]


def test_a_job_has_the_ranks_of_its_dumps(tmp_path: Path, db_path: Path) -> None:
    """Four dumps with calls of groups of two: the largest communicator was told as the job."""
    for rank in range(4):
        group = [rank // 2 * 2, rank // 2 * 2 + 1]
        entry = {
            "record_id": 0,
            "pg_id": 1,
            "process_group": [str(group[0] + 1), "TENSOR_GROUP"],
            "collective_seq_id": 1,
            "p2p_seq_id": 0,
            "op_id": 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1758610505592849034,
            "input_sizes": [[1024]],
            "input_dtypes": ["Float"],
            "output_sizes": [[1024]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "is_p2p": False,
        }
        config = {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "1": {"name": str(group[0] + 1), "desc": "TENSOR_GROUP", "ranks": str(group)},
        }
        dump = {"version": "2.5", "pg_config": config, "pg_status": {}, "entries": [entry]}
        (tmp_path / f"job_rank_{rank}.json").write_text(json.dumps(dump))
    assert collscope("ingest", *tmp_path.glob("*.json"), "--db", db_path).code == 0
    report = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    assert {row["nranks"] for row in report["communicators"]} == {2}
    assert report["header"]["ranks"] == 4
    assert {row["name"] for row in report["communicators"]} == {"TENSOR_GROUP"}


def test_measurements_without_ranks_are_in_the_first_lines(tmp_path: Path, db_path: Path) -> None:
    """A report began with what the run lacks, and named its measurements far below."""
    path = tmp_path / "osu-128.out"
    path.write_text(
        "# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n"
        "1024                 1670.46\n1048576              7660.03\n"
    )
    assert collscope("ingest", path, "--db", db_path).code == 0
    report = collscope("report", "--db", db_path)
    first = " ".join(report.out.partition("Verdict")[0].split())
    assert "Bandwidths not known: the measurements lack ranks or sizes." in first
