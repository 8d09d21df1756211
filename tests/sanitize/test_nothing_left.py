"""A search for every name of the original finds nothing in a copy."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from command import collscope

from collscope.sanitize.words import is_kept

KINDS = (
    "nccl/mixed", "nccl/ddp", "nccl/mixed-coll-only.log", "rccl", "traces/default",
    "traces/ringll", "recorders", "tables", "replay", "profiles",
)  # fmt: skip
# What the store itself calls hosts, communicators, pointers, groups and devices.
NAMED = (
    "SELECT host FROM _process", "SELECT host FROM _trace", "SELECT host FROM _measurement",
    "SELECT comm_ptr FROM _comm_handle", "SELECT comm_hash FROM _comm_handle",
    "SELECT parent_ptr FROM _comm_handle", "SELECT comm_ptr FROM _kernel",
    "SELECT comm_hash FROM _comm", "SELECT name FROM _comm", "SELECT group_name FROM _progress",
    "SELECT value FROM _fact WHERE kind LIKE '%address%' OR kind LIKE '%interface%'",
)  # fmt: skip
ADDRESS = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])|(?<=buff )0x[0-9a-f]{8,}")
PLANTED = (
    "acme-h100-017", "ottilie", "falconheart", "10.77.3.19", "fd12:3456:789a::17",
    "7f3c91d2e4a0", "0a:1b:2c:3d:4e:5f", "8827461", "zebrafish-v7", "tungstenlabs",
    "GPU-5f0d9c1e-2b3a-4c5d-8e9f-a0b1c2d3e4f5",
)  # fmt: skip


def contents(path: Path) -> Iterator[bytes]:
    """The names and bytes of all files of a copy, unpacked."""
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        yield str(file.relative_to(path.parent)).encode()
        yield from _unpacked(file.read_bytes())


_PACKED = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"\x28\xb5\x2f\xfd": lambda d: zstandard.ZstdDecompressor().decompressobj().decompress(d),
}


def _unpacked(data: bytes) -> Iterator[bytes]:
    yield data
    for magic, unpack in _PACKED.items():
        if data.startswith(magic):
            yield from _unpacked(unpack(data))
            return
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                yield member.filename.encode()
                yield from _unpacked(archive.read(member))
    elif tarfile.is_tarfile(io.BytesIO(data)):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                yield entry.name.encode()
                yield from _unpacked(archive.extractfile(entry).read())  # type: ignore[union-attr]
    elif data.startswith(b"SQLite"):
        yield from _stored(data)


def _stored(data: bytes) -> Iterator[bytes]:
    """All texts of a store, and its blobs; of another SQLite file the bytes alone."""
    with closing(sqlite3.connect(":memory:")) as store:
        store.deserialize(data)
        yield "\n".join(store.iterdump()).encode()
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = '_trace'").fetchone():
            return
        yield from (blob for (blob,) in store.execute("SELECT columns FROM _trace"))
        for (blob,) in store.execute("SELECT calls FROM _recording"):
            yield from _unpacked(blob)


def left(copy: Path, names: set[str]) -> list[str]:
    """Names that stand in a copy, as words of their own."""
    patterns = {
        name: re.compile(rb"(?<![A-Za-z0-9])%b(?![A-Za-z0-9])" % re.escape(name.encode()))
        for name in names
    }
    return sorted({n for data in contents(copy) for n, p in patterns.items() if p.search(data)})


def names_of(db: Path) -> set[str]:
    """What a store calls hosts, communicators and groups, but for words of the libraries."""
    with closing(sqlite3.connect(db)) as store:
        found = {str(value) for query in NAMED for (value,) in store.execute(query) if value}
    return {name for name in found if len(name) > 1 and not is_kept(name) and not name.isdecimal()}


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_a_store_is_left(samples: Path, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home" / "ottilie" / "falconheart"
    home.mkdir(parents=True)
    source = home / f"run{Path(kind).suffix}"
    if (samples / kind).is_dir():
        shutil.copytree(samples / kind, source)
    else:
        shutil.copy(samples / kind, source)
    db = tmp_path / "before.db"
    assert collscope("ingest", "auto", source, "--db", db).code == 0
    names = names_of(db) | {"ottilie", "falconheart"}
    for data in contents(source):
        names |= {one.decode() for one in ADDRESS.findall(data)}
    names = {n for n in names if not n.startswith(("127.", "0.0.", "0x0"))}
    for given, made in ((source, "copy"), (db, "copy.db")):
        outcome = collscope("sanitize", given, tmp_path / made, "--key", "k")
        assert outcome.code == 0, outcome.err
        assert left(tmp_path / made, names) == []


# Names where logs have them, and where only people put them; HERE begins a line of NCCL.
PLANTED_LOG = r"""
0: submitted by ottilie@acme-h100-017 as job 8827461 of tungstenlabs
SLURM_JOB_ID=8827461 USER=ottilie SLURM_JOB_NAME=zebrafish-v7
HERE INFO Bootstrap : Using eth0:10.77.3.19<0>
HERE INFO NET/Socket : Using [0]eth0:fd12:3456:789a::17<0>
HERE INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.77.3.19<41234>
HERE INFO NCCL_DEBUG_FILE set by environment to /scratch/ottilie/zebrafish-v7/%h.log
HERE INFO NCCL_TOPO_FILE set by environment to /opt/tungstenlabs/topo.xml
HERE INFO AllReduce: opCount 1f sendbuff 0x7f3c91d2e4a0 recvbuff 0x7f3c91d2e4a0 count 8
HERE INFO datatype 7 op 0 root 0 comm 0x7f3c91d2e4a0 [nranks=2] stream 0x7f3c91d2e4a0
HERE WARN socketStartConnect: Connect to acme-h100-017<41234> failed : Connection refused
peer 0a:1b:2c:3d:4e:5f GPU-5f0d9c1e-2b3a-4c5d-8e9f-a0b1c2d3e4f5
loading s3://tungstenlabs/zebrafish-v7/shard-0.tar https://ottilie:8080/falconheart?u=ottilie
Traceback: File "/users/ottilie/falconheart/train.py", line 3, in zebrafish
acme-h100-017.tungstenlabs:4712:4712 [1] NCCL INFO comm 0x7f3c91d2e4a0 rank 1
prefixacme-h100-017 ottilie_falconheart <ottilie> 'falconheart' (tungstenlabs)
C:\Users\ottilie\zebrafish-v7 \\acme-h100-017\share ~ottilie/x ../falconheart/y
""".replace("HERE", "acme-h100-017:4711:4711 [0] NCCL")


def test_planted_names_are_gone_whatever_they_are_packed_in(tmp_path: Path) -> None:
    log = PLANTED_LOG.encode()
    folder = tmp_path / "acme-h100-017" / "ottilie"
    folder.mkdir(parents=True)
    (folder / "zebrafish-v7.log").write_bytes(log)
    (folder / "a.log.gz").write_bytes(gzip.compress(log))
    (folder / "a.log.xz").write_bytes(lzma.compress(log))
    (folder / "a.log.bz2").write_bytes(bz2.compress(log))
    (folder / "a.log.zst").write_bytes(zstandard.ZstdCompressor().compress(log))
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.comment = b"of ottilie"
        archive.writestr("ottilie/falconheart.log", log)
        archive.writestr("ottilie/a.log.gz", gzip.compress(log))
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        about = tarfile.TarInfo("users/ottilie/falconheart.log")
        about.size, about.uname, about.gname = len(log), "ottilie", "tungstenlabs"
        archive.addfile(about, io.BytesIO(log))
    outcome = collscope("sanitize", tmp_path / "acme-h100-017", tmp_path / "copy")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert len([p for p in (tmp_path / "copy").rglob("*") if p.is_file()]) == 7
    everything = b"\n".join(contents(tmp_path / "copy")).lower()
    assert [name for name in PLANTED if name.lower().encode() in everything] == []
    # One name for each in all files of a call, and a log as many lines long.
    plain = next((tmp_path / "copy").rglob("*.log")).read_bytes()
    assert plain.count(b"\n") == log.count(b"\n")
    # Five files, two members of the zip, one of the tar.
    assert list(contents(tmp_path / "copy")).count(plain) == 8


def test_planted_names_are_gone_from_documents(tmp_path: Path) -> None:
    trace = (
        '{"schemaVersion": 1, "hostname": "acme-h100-017", "traceName": "/users/ottilie/t.json",\n'
        '"distributedInfo": {"rank": 0, "world_size": 2, "user": "ottilie", "job": 8827461},\n'
        '"env": {"USER": "ottilie", "PATH": "/users/ottilie/bin:/usr/bin"}, "ottilie": 1,\n'
        '"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "zebrafish-v7", "ts": 1, "dur": 2,\n'
        '"args": {"Addr": 139943940716224, "note": "ott\\u0069lie", "stack": "falconheart.py"}},\n'
        '{"ph": "X", "cat": "kernel", "name": "void gemm<float>(int)", "pid": 0, "tid": 7,\n'
        '"ts": 1, "dur": 3, "args": {"stream": 7, "device": 0, "correlation": 1}}]}\n'
    )
    (tmp_path / "rank0.json").write_text(trace)
    outcome = collscope("sanitize", tmp_path / "rank0.json", tmp_path / "copy.json")
    assert outcome.code == 0, outcome.err
    made = (tmp_path / "copy.json").read_text()
    assert [n for n in (*PLANTED, "139943940716224", "ott\\u0069lie") if n in made] == []
    assert '"name": "void gemm<float>(int)"' in made


def test_one_secret_gives_one_name_and_a_fresh_one_another(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(PLANTED_LOG)
    for name, key in (("1", "s"), ("2", "s"), ("3", "t"), ("4", None), ("5", None)):
        options = [] if key is None else ["--key", key]
        assert collscope("sanitize", tmp_path / "a.log", tmp_path / name, *options).code == 0
    made = [(tmp_path / name).read_text() for name in "12345"]
    assert made[0] == made[1]
    assert len(set(made)) == 4


def test_unknown_files_get_no_copy(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "core.4711").write_bytes(bytes(range(256)) * 64)
    (folder / "a.log").write_text(PLANTED_LOG)
    with closing(sqlite3.connect(folder / "b.sqlite")) as other:
        other.execute("CREATE TABLE ottilie (x)")
    with zipfile.ZipFile(folder / "c.zip", "w") as archive:
        archive.writestr("core", bytes(range(256)) * 64)
    outcome = collscope("sanitize", folder, tmp_path / "copy")
    assert outcome.code == 0
    assert outcome.err.count("no copy") == 3
    assert len([p for p in (tmp_path / "copy").rglob("*") if p.is_file()]) == 1
    assert collscope("sanitize", folder, tmp_path / "copy").code == 2
    assert collscope("sanitize", folder / "core.4711", tmp_path / "none").code == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "in"]
