"""What a replay left in its CSV: into the store, and into other layouts."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from collscope.errors import InputError
from collscope.ingest.commands import ingest_csvs
from collscope.ingest.measurements import CSV
from collscope.model import Datatype, Measurement, Op
from collscope.model.note import Note
from collscope.outputs import write_file
from collscope.parsers import rccl_replayer_csv, replay_csv
from collscope.store.connection import open_store, transaction
from collscope.store.measurements import remove_source_by_hash
from collscope.store.sources import identity

_FUNCTIONS = {Op.SEND_RECV: "Send/Recv"}
_TYPES = {Datatype.FLOAT8E4M3: "Fp8E4M3", Datatype.FLOAT8E5M2: "Fp8E5M2"}
_REDOPS = {"Prod": "Product", "Avg": "Average"}


def read_results(path: Path) -> tuple[Measurement, ...]:
    """Measurements of a replay CSV, also of one that was cut short; none without the file.

    raises  InputError when it cannot be read
    """
    try:
        return replay_csv.parse(path.read_text("utf-8", errors="replace")).measurements
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Check the path given by --csv.") from error


def relabel(path: Path, suffix_of: Mapping[int, str]) -> None:
    """Put a suffix behind the label of the rows of some classes of a replay CSV.

    suffix_of  by `class_id`; rows of other classes, and lines cut short, do not change
    raises     InputError when the file cannot be written
    """
    if not suffix_of:
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
        write_file(path, "".join(_relabelled(lines, suffix_of)))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Name another file with --csv.") from error


def _relabelled(lines: Sequence[str], suffix_of: Mapping[int, str]) -> Iterator[str]:
    header: list[str] = []
    for line in lines:
        fields = next(csv.reader([line.rstrip("\n")]), [])
        if line.startswith("op,"):
            header = fields
        row = dict(zip(header, fields, strict=False))
        key = row.get("class_id", "")
        if line.startswith("#") or len(fields) != len(header) or not key.isdecimal():
            yield line
            continue
        row["label"] += suffix_of.get(int(key), "")
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(row.values())
        yield out.getvalue()


def oversubscription_note(
    measurements: Sequence[Measurement], nranks: int, cores: int
) -> Note | None:
    """The note where ranks on CPU memory share cores, so that they wait to be scheduled.

    nranks  processes of the replay, spread evenly over the nodes of the measurements
    cores   of one node
    """
    if not any(m.backend == "host" for m in measurements):
        return None
    per_node = -(-nranks // max(m.nnodes or 1 for m in measurements))
    if per_node <= cores:
        return None
    where = f"{cores} core{'' if cores == 1 else 's'}"
    text = f"{per_node} ranks on {where}: the times show scheduling, not communication"
    return Note("ranks_share_cores", {"ranks": per_node, "cores": cores}, text)


def digest(path: Path) -> str | None:
    """SHA-256 of a file, None where there is none.

    raises  InputError when it is there and cannot be read: what it holds is then not known
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}. Check the disk; once the file can be read, 'collscope "
            "ingest csv' takes the rows that it holds."
        ) from error


def store_results(path: Path, db: Path, run: str, before: str | None) -> None:
    """Put a replay CSV into a run of a store, which is made if it is new.

    before  digest of the file as it was before it was resumed: what came from it then is replaced
    raises  InputError when the store refuses
    """
    if before is not None and before != digest(path):
        connection = open_store(db)
        try:
            with transaction(connection, db):
                remove_source_by_hash(connection, run, identity(before, CSV))
        finally:
            connection.close()
    ingest_csvs([str(path)], db, run)


def rccl_replayer_layout(measurements: Sequence[Measurement]) -> str:
    """The nine columns of ROCm/rccl's old rccl_replayer, one row per right measurement.

    The last column is the bus bandwidth, which that tool's is not. `callNumber` counts rows;
    fields that do not apply are 0 and Sum, as the tool has them.
    """
    out = io.StringIO()
    out.write(rccl_replayer_csv.HEADER + "\n")
    timed = (m for m in measurements if m.right and m.time_us_median and m.op is not Op.SEQUENCE)
    for number, m in enumerate(timed, 1):
        out.write(", ".join(_nine(number, m)) + "\n")
    return out.getvalue()


def _nine(number: int, m: Measurement) -> tuple[str, ...]:
    time_us = m.time_us_median or 0.0
    label = "" if m.datatype is None else _TYPES.get(m.datatype, m.datatype.value)
    return (
        str(number),
        _FUNCTIONS.get(m.op, m.op.value),
        str(int(bool(m.in_place))),
        "" if m.count is None else str(m.count),
        label,
        _REDOPS.get(m.redop or "Sum", m.redop or "Sum"),
        str(m.root or 0),
        f"{time_us / 1e3:.6g}",
        "" if m.busbw_gbps is None else f"{m.busbw_gbps:.6g}",
    )
