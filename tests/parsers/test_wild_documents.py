"""What trials with public documents found: each test is a class of fault, on a small text."""

from __future__ import annotations

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
