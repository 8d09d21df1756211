"""One verdict for a hang: logs, what processes print, and the RAS service."""

from __future__ import annotations

import json
import socketserver
import threading
from typing import TYPE_CHECKING

import pytest
from command import collscope

from collscope.errors import InputError, UsageError
from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge
from collscope.hang.service import ask_twice, parse_address
from collscope.reports.hang.text import render_hang

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from collscope.hang.records import Verdict


def named(verdict: Verdict) -> tuple[list[int], tuple[str, ...]]:
    return [one.rank for one in verdict.who], verdict.what


def of_files(folder: Path) -> tuple[list[int], tuple[str, ...]]:
    return named(judge(evidence_of([str(folder)])))


# --- logs ---------------------------------------------------------------------

Step = tuple[str, int, int]  # operation, elements, root
TURN: list[Step] = [("AllReduce", 64, 0), ("Broadcast", 32, 1), ("AllGather", 16, 0)]


def write_log(folder: Path, rank: int, steps: Sequence[Step], nranks: int = 4) -> None:
    at = f"node:{100 + rank}:{100 + rank} [{rank}] NCCL INFO"
    comm = f"0x{rank + 1}000"
    state = (
        f"ncclCommInitRank comm {comm} rank {rank} nranks {nranks} cudaDev {rank} nvmlDev {rank}"
    )
    lines = [
        f"{at} {state} busId {rank}0 commId 0xabc - Init {end}" for end in ("START", "COMPLETE")
    ]
    lines += [
        f"{at} {op}: opCount {n:x} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0"
        f" root {root} comm {comm} [nranks={nranks}] stream 0x5"
        for n, (op, count, root) in enumerate(steps)
    ]
    (folder / f"nccl.{rank}.log").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("last", "what"),
    [
        ([], ("host_never_called",)),
        ([("AllReduce", 64, 0), ("Broadcast", 32, 2), ("AllGather", 16, 0)], ("different_call",)),
        ([("AllReduce", 65, 0), ("Broadcast", 32, 1), ("AllGather", 16, 0)], ("different_call",)),
        ([("AllGather", 16, 0), ("AllReduce", 64, 0), ("Broadcast", 32, 1)], ("different_order",)),
        ([("AllReduce", 64, 0)] * 2 + TURN[1:], ("extra_call",)),
    ],
)
def test_logs_alone(tmp_path: Path, last: list[Step], what: tuple[str, ...]) -> None:
    for rank in (0, 1, 3):
        write_log(tmp_path, rank, TURN * 8)
    write_log(tmp_path, 2, [*TURN * 7, *last])
    found = of_files(tmp_path)
    assert found[0] == [2]
    assert set(what) <= set(found[1])


def test_logs_of_a_job_that_ended_name_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    assert of_files(tmp_path) == ([], ())


def test_a_broadcast_that_only_its_root_made_may_have_ended(tmp_path: Path) -> None:
    for rank in range(2):
        write_log(tmp_path, rank, [*TURN * 8, TURN[0], *([TURN[1]] if rank == 1 else [])], 2)
    assert of_files(tmp_path) == ([], ())


def test_a_rank_whose_log_was_not_collected_is_not_named(tmp_path: Path) -> None:
    for rank in range(3):
        write_log(tmp_path, rank, TURN * 8)
    assert of_files(tmp_path) == ([], ())


def test_a_rank_that_never_began_the_communicator(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        write_log(tmp_path, rank, [])
        path = tmp_path / f"nccl.{rank}.log"
        path.write_text(path.read_text().split("\n")[0] + "\n")
    assert of_files(tmp_path) == ([3], ("not_initialised",))


def test_an_empty_folder_beside_logs_does_not_end_it(tmp_path: Path) -> None:
    logs, dumps = tmp_path / "logs", tmp_path / "dumps"
    logs.mkdir()
    dumps.mkdir()
    for rank in range(4):
        write_log(logs, rank, TURN * (7 if rank == 3 else 8))
    assert named(judge(evidence_of([str(dumps), str(logs)])))[0] == [3]


# --- what processes print -------------------------------------------------------


def status(rank: int, enqueued: int, completed: int) -> str:
    at = f"[rank{rank}]:[E1123 06:24:09.85 ProcessGroupNCCL.cpp:2303]"
    return (
        f"{at} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum="
        f"{completed + 1}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=12000) ran\n"
        f"{at} [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work"
        f" sequence id: {completed + 1} PG status: last enqueued work: {enqueued}, last completed"
        f" work: {completed}\n"
    )


TORCHRUN = """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_06:24:09
  host      : node7
  rank      : 2 (local_rank: 2)
  exitcode  : {code} (pid: 1234)
  error_file: <N/A>
"""


def test_the_rank_that_the_watchdog_saw_behind(tmp_path: Path) -> None:
    lines = "".join(status(rank, 25, 22) for rank in (0, 1, 3)) + status(2, 22, 22)
    (tmp_path / "stderr.txt").write_text(lines)
    assert of_files(tmp_path) == ([2], ("host_never_called",))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TORCHRUN.format(code=-9), ([2], ("dead",))),
        (TORCHRUN.format(code=1), ([2], ("dead",))),
        (TORCHRUN.format(code=-6), ([], ())),  # its own watchdog ended it: it waited
        (
            "[Rank 0]: Ranks 3 failed to pass monitoredBarrier in 10000 ms\n",
            ([3], ("host_never_called",)),
        ),
        (
            " - [3] finished collective #4, but didn't join collective #5 (count from 1)\n",
            ([3], ("host_never_called",)),
        ),
        (
            "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no\n",
            ([1], ("dead",)),
        ),
        (
            "[rank1]: Traceback (most recent call last):\n"
            "[rank1]: torch.distributed.DistBackendError: NCCL error\n" + status(0, 2, 1),
            ([], ()),
        ),
        # The end of a traceback alone, and an end that mpirun reports.
        ("[rank1]:     loss.backward()\n[rank1]: MemoryError: 4 GB\n", ([1], ("dead",))),
        (
            "mpirun noticed that process rank 3 with PID 7 on node n2 exited on signal 11"
            " (Segmentation fault).\n",
            ([3], ("dead",)),
        ),
        (
            "mpirun noticed that process rank 3 with PID 7 on node n2 exited on signal 15"
            " (Terminated).\n" + status(0, 2, 1),
            ([], ()),
        ),
        # A rank that timed out ends with an exit code, too; a signal is no consequence.
        (status(2, 22, 21) + TORCHRUN.format(code=1), ([], ())),
        (status(2, 22, 21) + TORCHRUN.format(code=-11), ([2], ("dead",))),
        (
            "[rank2]: Traceback (most recent call last):\n"
            "[rank2]: torch.distributed.DistBackendError: NCCL error\n" + TORCHRUN.format(code=1),
            ([], ()),
        ),
        (
            "Traceback (most recent call last):\n"
            "RuntimeError: Timed out waiting 9000ms for recv operation to complete\n"
            + TORCHRUN.format(code=1),
            ([], ()),
        ),
        (
            "Traceback (most recent call last):\nKeyError: 'labels'\n" + TORCHRUN.format(code=1),
            ([2], ("dead",)),
        ),
    ],
)
def test_lines_of_processes_and_launchers(
    tmp_path: Path, text: str, found: tuple[list[int], tuple[str, ...]]
) -> None:
    (tmp_path / "out.log").write_text("loss 3.2\n" + text)
    assert of_files(tmp_path) == found


def test_xid_lines_name_the_rank_of_the_process(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    line = "kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=102, name=python, GPU has fallen off\n"
    (tmp_path / "dmesg.txt").write_text(line)
    assert of_files(tmp_path) == ([2], ("gpu_not_finished",))


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running x",
        "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors",
        "RuntimeError: Rank 1 timed out in monitoredBarrier after 5000 ms.",
        "RuntimeError: [gloo/transport/tcp/pair.cc:1] Connection closed by peer [10.0.0.2]:8",
        "RuntimeError: Timed out waiting 9000ms for send operation to complete",
        "RuntimeError: NCCL communicator was aborted on rank 1.",
        "RuntimeError: [Rank 1] Caught collective operation timeout: WorkNCCL(SeqNum=2, x)",
        "RuntimeError: NCCL error in: NCCLUtils.hpp:1, remote process exited",
        "RuntimeError: Socket Timeout",
        "RuntimeError: Horovod has been shut down. An exception on one of the ranks",
        "OSError: gone: Broken pipe\n[rank1]: Traceback (most recent call last):\n"
        "[rank1]: ValueError: 3",
    ],
)
def test_what_a_rank_raises_because_of_others_does_not_name_it(tmp_path: Path, text: str) -> None:
    lines = f"[rank1]: Traceback (most recent call last):\n[rank1]: {text}\n"
    (tmp_path / "out.log").write_text(lines)
    assert of_files(tmp_path) == ([], ())


def test_tracebacks_of_two_ranks_whose_lines_alternate(tmp_path: Path) -> None:
    lines = (
        "[rank0]: Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        "[rank0]: ValueError: no",
        "[rank1]: torch.distributed.DistBackendError: NCCL error",
    )
    (tmp_path / "out.log").write_text("\n".join(lines) + "\n")
    assert of_files(tmp_path) == ([0], ("dead",))


@pytest.mark.parametrize("before", ["0: ", "2026-11-23T06:24:09.1Z worker-1 ", "[default0]:"])
def test_a_table_behind_what_a_collector_of_logs_writes(tmp_path: Path, before: str) -> None:
    lines = TORCHRUN.format(code=-9).splitlines()
    (tmp_path / "out.log").write_text("".join(f"{before}{line}\n" for line in lines))
    assert of_files(tmp_path) == ([2], ("dead",))


def test_a_row_of_a_table_in_one_line(tmp_path: Path) -> None:
    row = " ".join(TORCHRUN.format(code=-9).split("[0]:")[1].split())
    (tmp_path / "out.log").write_text(f" | 2026-11-23T06:24:09.1Z | [0]: {row}\n")
    assert of_files(tmp_path) == ([2], ("dead",))


def test_tables_of_two_launchers_whose_lines_alternate(tmp_path: Path) -> None:
    first = TORCHRUN.format(code=-9).splitlines()
    second = TORCHRUN.format(code=-15).replace("rank      : 2", "rank      : 5").splitlines()
    pairs = zip(first, second, strict=True)
    (tmp_path / "out.log").write_text("".join(f"0: {a}\n1: {b}\n" for a, b in pairs))
    assert of_files(tmp_path) == ([2], ("dead",))


def test_an_exception_that_python_ignores_names_nobody(tmp_path: Path) -> None:
    lines = "Exception ignored in: <function Pool.__del__>\nTraceback (most recent call last):\n"
    (tmp_path / "rank_1.err").write_text(f"{lines}OSError: closed\n{status(1, 2, 1)}")
    assert of_files(tmp_path) == ([], ())


@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        ("SequenceNumber=3OpType=REDUCE", ("Rank 1 called AllReduce.", "Rank 4 called Reduce.")),
        (
            "SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[2], TensorDtypes=Float",
            (
                "Rank 1 called AllReduce with other arguments than rank 4.",
                "Rank 4 called AllReduce with other arguments than rank 1.",
            ),
        ),
    ],
)
def test_a_mismatch_of_two_ranks_gives_both_as_candidates(
    tmp_path: Path, other: str, reasons: tuple[str, str]
) -> None:
    lines = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running"
        " collective: CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[1],"
        " TensorDtypes=Float), but Rank 4 is running collective:"
        f" CollectiveFingerPrint({other})).\n"
    )
    (tmp_path / "out.log").write_text(lines)
    verdict = judge(evidence_of([str(tmp_path)]))
    assert (verdict.who, verdict.candidates, verdict.reasons) == ((), (1, 4), reasons)


def test_a_rank_waits_where_only_a_peer_printed_the_call(tmp_path: Path) -> None:
    first, second = status(0, 25, 22), status(1, 25, 22).split("\n")[1]
    (tmp_path / "out.log").write_text(f"{first}{second}\n")
    verdict = judge(evidence_of([str(tmp_path)]))
    assert (verdict.who, verdict.candidates, verdict.waiting.ranks) == ((), (), 2)


# --- RAS --------------------------------------------------------------------------


def answer(counts: Sequence[int], missing: Sequence[int] = (), at: str = "13:00:00") -> str:
    def process(rank: int) -> dict[str, object]:
        return {"rank": rank, "host": "node", "pid": 100 + rank, "cuda_dev": rank}

    ranks = [
        {**process(rank), "status": {"async_error": 0}, "collective_counts": {"AllReduce": made}}
        for rank, made in enumerate(counts) if rank not in missing
    ]  # fmt: skip
    gone = [
        {**process(rank), "status": {"unresponsive": True, "considered_dead": False}}
        for rank in missing
    ]
    return json.dumps({
        "nccl_version": "2.30.7", "timestamp": f"2026-11-23 {at}", "communicators_count": 1,
        "communicators": [{
            "hash": "0x1", "size": len(counts), "ranks": ranks, "missing_ranks": gone,
        }],
    })  # fmt: skip


TEXT = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 641
  2 ranks have launched up to operation 640
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124
"""


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([answer([9, 9, 7, 9])], ([2], ("host_never_called",))),
        ([answer([9, 9, 0, 9], missing=[2])], ([2], ("silent",))),
        ([TEXT], ([12, 13], ("host_never_called",))),
        ([answer([9, 7])], ([], ())),  # or rank 0 made two calls too many
        ([answer([9, 9, 7, 9]), answer([9, 9, 8, 9], at="13:00:05")], ([], ())),  # it runs
        ([answer([9, 9, 9, 9])], ([], ())),
    ],
)
def test_answers_of_the_service(
    tmp_path: Path, texts: list[str], found: tuple[list[int], tuple[str, ...]]
) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"ras.{number}.txt").write_text(text)
    assert of_files(tmp_path) == found


@pytest.mark.parametrize(
    ("dead", "reason"),
    [
        (False, "Rank 2 does not answer the RAS service."),
        (True, "Rank 2 is dead according to the RAS service."),
    ],
)
def test_a_rank_that_does_not_answer_is_not_yet_dead(
    tmp_path: Path, reason: str, *, dead: bool
) -> None:
    text = answer([9, 9, 0, 9], missing=[2])
    text = text.replace('"considered_dead": false', f'"considered_dead": {json.dumps(dead)}')
    (tmp_path / "ras.json").write_text(text)
    verdict = judge(evidence_of([str(tmp_path)]))
    assert (verdict.who[0].rank, verdict.reasons) == (2, (reason,))


def test_an_answer_with_a_missing_comma(tmp_path: Path) -> None:
    rank = '{"rank": 1, "host": "n", "pid": 5, "cuda_dev": 1,\n "nvml_dev": 1\n "status":'
    text = (
        '{"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [{"hash": "0x1",'
        ' "size": 2, "ranks": [], "missing_ranks": ['
        f'{rank} {{"unresponsive": true, "considered_dead": false}}}}]}}]}}'
    )
    (tmp_path / "ras.json").write_text(text)
    assert of_files(tmp_path) == ([1], ("silent",))
    line, *_ = render_hang(judge(evidence_of([str(tmp_path)])), "text").splitlines()
    # No word of dumps: there is none of any rank.
    assert line.endswith(") does not answer the RAS service.")


def test_a_verdict_of_several_ranks_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(TEXT)
    first, *_ = render_hang(judge(evidence_of([str(tmp_path)])), "text").splitlines()
    assert first.startswith("Verdict: ranks 12 (")
    assert "), 13 (" in first
    assert first.endswith(
        "did not make the call (their processes sleep, wait elsewhere, or skipped it)."
    )


def test_text_of_the_service_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(TEXT)
    done = collscope("ingest", "auto", tmp_path / "ras.txt", "--db", tmp_path / "a.db")
    assert "ras_text: 1 figure" in done.out
    assert "ras_ranks_behind" in done.out


@pytest.fixture(params=["json", "text"])
def service(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a service that knows JSON, or, as before NCCL 2.28.7, text alone."""
    answers = [answer([9, 9, 7, 9]), answer([9, 9, 7, 9], at="13:00:05")]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            assert self.rfile.readline() == b"CLIENT PROTOCOL 2\n"
            self.wfile.write(b"SERVER PROTOCOL 2\n")
            assert self.rfile.readline() == b"SET FORMAT json\n"
            json_known = request.param == "json"
            self.wfile.write(b"OK\n" if json_known else b"ERROR: Unknown command\n")
            assert self.rfile.readline() == b"VERBOSE STATUS\n"
            self.wfile.write((answers.pop(0) if json_known else TEXT).encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_live_service_is_asked_twice(service: str) -> None:
    waited: list[float] = []
    answers = ask_twice(service, waited.append)
    found = judge(evidence_of([], [(service, text) for text in answers]))
    assert found.what == ("host_never_called",)
    assert len(waited) == 1


def test_a_port_at_which_nothing_answers() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        port = server.server_address[1]
    with pytest.raises(InputError, match="NCCL_RAS_ADDR"):
        ask_twice(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", ":1", "a:", "a:99999", "a:x"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="HOST"):
        parse_address(address)
