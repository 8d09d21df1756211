"""Recorded calls in the JSON of NCCL's Inspector, a file for each process.

Source: plugins/profiler/inspector/inspector_json.cc of NVIDIA/nccl 2.30, format v4.0, with the
algorithm and protocol of v4.2. Inspector has whole microseconds; here they have decimals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from collscope import __version__
from collscope.errors import InputError
from collscope.model import algorithm_bandwidth, bus_bandwidth
from collscope.model.trace import RecordedCall
from collscope.outputs import replaced
from collscope.reports.recorded.answer import RecordedProcess, hosts_of, recorded_processes
from collscope.units import count, count_of

_DECIMALS = 6  # of bandwidths, as in Inspector's files


def export_inspector(db: Path, run: str, folder: Path) -> str:
    """Write HOST-pidPID.log of each process into a folder; returns what they hold in words.

    raises  InputError for a run without recordings, or a folder that cannot be written
    """
    processes = recorded_processes(db, run)
    hosts = hosts_of(processes)
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for process in processes:
            records = list(inspector_records(process, hosts))
            with replaced(
                folder / f"{process.host or 'unknown'}-pid{process.pid or 0}.log"
            ) as file:
                file.write(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
            written += len(records)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}. Name another folder with --out.") from error
    calls = sum(len(process.calls) for process in processes)
    left = " The other calls do not fit Inspector's format: they have no GPU time, or no size." * (
        written < calls
    )
    files = count(len(processes), "file")
    return f"{folder}: {files}, {count_of(written, calls, 'recorded call')}.{left}"


def inspector_records(
    process: RecordedProcess, hosts: Mapping[str, int]
) -> Iterator[dict[str, object]]:
    """One record for each call that has a GPU time and a size.

    hosts  of the communicators, where they are known
    """
    metadata = {
        "inspector_output_format_version": "v4.0",
        "git_rev": f"collscope {__version__}",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": max((c.start_ns or 0 for c in process.calls), default=0) // 1000,
        "hostname": process.host or "unknown",
        "pid": process.pid or 0,
    }
    transfers: Counter[tuple[str | None, int | None]] = Counter()
    for call in process.calls:
        what = call.collective
        # Inspector numbers Sends and Recvs of a communicator together, from 1.
        if what.op.point_to_point:
            transfers[what.group, call.group_rank] += 1
        perf = _perf(call, transfers[what.group, call.group_rank])
        if perf is None:
            continue
        nodes = hosts.get(what.group or "")
        header = {"id": what.group, "comm_name": "unknown", "rank": call.group_rank}
        header |= {"n_ranks": what.group_size} if what.group_size else {}
        yield {
            "header": header | ({"nnodes": nodes} if nodes else {}),
            "metadata": metadata,
            "p2p_perf" if what.op.point_to_point else "coll_perf": perf,
        }


def _perf(call: RecordedCall, transfer: int) -> dict[str, object] | None:
    what = call.collective
    counted = what.in_count if what.in_count is not None else what.out_count
    itemsize = None if what.datatype is None else what.datatype.itemsize
    if not call.duration_ns or counted is None or itemsize is None or call.timing_source is None:
        return None
    part = counted * itemsize
    size = part * what.group_size if what.op.count_is_part and what.group_size else part
    seconds = call.duration_ns * 1e-9
    algbw = algorithm_bandwidth(size, seconds) or 0.0
    busbw = bus_bandwidth(what.op, size=size, time_s=seconds, nranks=what.group_size)
    kind = "p2p" if what.op.point_to_point else "coll"
    number = transfer if what.op.point_to_point else call.seq
    perf: dict[str, object] = {kind: what.op.value}
    perf |= {} if number is None else {f"{kind}_sn": number}
    perf |= {} if what.peer is None else {"p2p_peer": what.peer}
    perf |= {
        f"{kind}_msg_size_bytes": part,
        f"{kind}_exec_time_us": call.duration_ns / 1000,
        f"{kind}_timing_source": call.timing_source,
        f"{kind}_algobw_gbs": round(algbw, _DECIMALS),
        f"{kind}_busbw_gbs": round(algbw if busbw is None else busbw, _DECIMALS),
    }
    named = {"coll_algo": what.algorithm, "coll_proto": what.protocol}
    return perf | {name: value for name, value in named.items() if value is not None}
