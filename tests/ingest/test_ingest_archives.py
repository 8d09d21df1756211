"""Archives are folders: every member is read, or named with the reason why it is not."""

from __future__ import annotations

import io
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
import zstandard
from command import CALLS, collscope, rows
from packers import PACKERS

from collscope.ingest import archives
from collscope.ingest.archives import Skipped, open_all

_RANKS = 4
_PACK = {"tar": bytes} | {f"tar.{suffix}": pack for suffix, pack in PACKERS.items()}


def _tar(members: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            header = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else b""
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def _archive(kind: str, members: dict[str, bytes]) -> bytes:
    return _zip(members) if kind == "zip" else _PACK[kind](_tar(dict(members)))


def _link(name: str, target: str) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = tarfile.SYMTYPE, target
    return found


@pytest.fixture
def logs(samples: Path) -> dict[str, bytes]:
    """The four logs of one job, as members of a folder."""
    folder = samples / "nccl" / "mixed"
    return {f"job/{log.name}": log.read_bytes() for log in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", [*_PACK, "zip"])
@pytest.mark.parametrize("command", ["log", "auto"])
def test_an_archive_is_a_folder(
    samples: Path, logs: dict[str, bytes], tmp_path: Path, kind: str, command: str
) -> None:
    packed = tmp_path / f"logs.{kind}"
    packed.write_bytes(_archive(kind, logs))
    db, plain = tmp_path / "t.db", tmp_path / "plain.db"
    done = collscope("ingest", command, packed, "--db", db, "--strict")
    assert done.code == 0, done.err
    assert collscope("ingest", command, samples / "nccl" / "mixed", "--db", plain).code == 0
    assert rows(db, CALLS) == rows(plain, CALLS)
    paths = [(f"{packed}/job/rank{k}.log",) for k in range(_RANKS)]
    assert rows(db, "SELECT path FROM sources ORDER BY path") == paths
    # The same bytes are the same source, in an archive or outside.
    again = collscope("ingest", command, samples / "nccl" / "mixed", "--db", db)
    assert again.out.count("already in this run (same bytes)") == _RANKS


def test_eight_traces_of_a_tar_are_eight(recordings: Path, tmp_path: Path) -> None:
    folder = recordings.parent / "h200x4-nccl2.28.9-torch2.11" / "blocking"
    traces = sorted(folder.glob("*/rank*.json.gz"))[:8]
    packed = tmp_path / "traces.tar.gz"
    members = {f"t/{k}.json.gz": path.read_bytes() for k, path in enumerate(traces)}
    packed.write_bytes(_PACK["tar.gz"](_tar(dict(members))))
    db = tmp_path / "t.db"
    assert collscope("ingest", "trace", packed, "--db", db).code == 0
    assert rows(db, "SELECT COUNT(*) FROM sources") == [(len(traces),)]


def test_tables_of_a_zip_keep_their_names(samples: Path, tmp_path: Path) -> None:
    table = samples / "tables" / "frontier-allreduce.txt"
    packed = tmp_path / "tables.zip"
    packed.write_bytes(_zip({"deep/frontier-allreduce.txt": table.read_bytes()}))
    labels = "SELECT DISTINCT label, op FROM measurements ORDER BY 1, 2"
    found = []
    for path in (packed, table):
        db = tmp_path / f"{path.suffix}.db"
        assert collscope("ingest", "table", path, "--db", db).code == 0
        found.append(rows(db, labels))
    assert found[0] == found[1] != []


def test_what_is_no_file_in_an_archive_is_named(logs: dict[str, bytes], tmp_path: Path) -> None:
    first = next(iter(logs))
    members: dict[str, bytes | tarfile.TarInfo] = {
        "../../outside.log": logs[first],
        "/etc/absolute.log": b"x",
        "link.log": _link("link.log", "/etc/passwd"),
        "inner.tar": _tar({"a.log": b"x"}),
        "inner.zip": _zip({"a.log": b"x"}),
        "empty": b"",
    }
    packed = tmp_path / "odd.tar"
    packed.write_bytes(_tar(members))
    before = sorted(tmp_path.rglob("*"))
    db = tmp_path / "t.db"
    done = collscope("ingest", "auto", packed, "--db", db)
    assert done.code == 0, done.err
    assert f"{packed}/../../outside.log: nccl_log: " in done.out
    for name, why in (
        ("link.log", "a link or a device inside an archive, not a file"),
        ("inner.tar", "an archive inside an archive: its members are not read"),
        ("inner.zip", "an archive inside an archive: its members are not read"),
        ("empty", "the file is empty"),
        ("/etc/absolute.log", "no profile, trace"),
    ):
        assert f"{packed}/{name}: skipped: {why}" in done.out
    assert sorted(p for p in tmp_path.rglob("*") if not p.name.startswith("t.db")) == before
    assert collscope("ingest", "auto", packed, "--db", db, "--strict").code == 3


def test_a_bomb_in_an_archive_is_skipped(logs: dict[str, bytes], tmp_path: Path) -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(100 << 20))
    for name, data in (("b.tar", _tar({"b": bomb, **logs})), ("b.zip", _zip({"b": bomb, **logs}))):
        packed = tmp_path / name
        packed.write_bytes(data)
        done = collscope("ingest", "log", packed, "--db", tmp_path / f"{name}.db")
        assert done.code == 0
        assert f"{packed}/b: skipped: becomes more than 1,000 times its size" in done.out
        assert rows(tmp_path / f"{name}.db", "SELECT COUNT(*) FROM sources") == [(_RANKS,)]


@pytest.mark.parametrize("kind", [*_PACK, "zip"])
def test_a_cut_archive_keeps_its_beginning(
    logs: dict[str, bytes], tmp_path: Path, kind: str
) -> None:
    whole = _archive(kind, logs)
    if kind.startswith("tar."):  # in parts, since what is cut inside of one may be lost
        plain, pack = _tar(dict(logs)), _PACK[kind]
        whole = b"".join(pack(plain[i : i + 4000]) for i in range(0, len(plain), 4000))
    packed = tmp_path / f"cut.{kind}"
    packed.write_bytes(whole[: len(whole) * 7 // 10])
    db = tmp_path / "t.db"
    done = collscope("ingest", "log", packed, "--db", db)
    assert "a damaged archive: nothing after the damage is read" in done.out + done.err
    if kind != "zip":  # whose list of members stands at its end
        assert done.code == 0
        assert rows(db, "SELECT COUNT(*) FROM sources WHERE path LIKE '%rank0.log'") == [(1,)]


def test_a_damaged_member_is_named(logs: dict[str, bytes], tmp_path: Path) -> None:
    data = bytearray(_zip(logs))
    data[2000] ^= 0x55  # in the first member
    packed = tmp_path / "bad.zip"
    packed.write_bytes(data)
    done = collscope("ingest", "log", packed, "--db", tmp_path / "t.db")
    assert done.code == 0
    assert f"{packed}/job/rank0.log: skipped: the compressed data ends early" in done.out
    assert rows(tmp_path / "t.db", "SELECT COUNT(*) FROM sources") == [(_RANKS - 1,)]


def test_an_archive_from_standard_input(
    logs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "logs.tar.gz"
    packed.write_bytes(_archive("tar.gz", logs))
    for command, code in (("auto", 0), ("log", 3)):
        with packed.open() as file:
            monkeypatch.setattr("sys.stdin", file)
            done = collscope("ingest", command, "-", "--db", tmp_path / f"{command}.db")
        assert done.code == code
    assert "a tar archive; its members are not read here" in done.err


def test_an_archive_without_files_says_so(tmp_path: Path) -> None:
    packed = tmp_path / "none.tar"
    packed.write_bytes(_tar({"folder": _folder("folder")}))
    done = collscope("ingest", "auto", packed, "--db", tmp_path / "t.db")
    assert (done.code, "an archive without files" in done.err) == (3, True)


def _folder(name: str) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = tarfile.DIRTYPE
    return found


def test_members_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    packed = tmp_path / "many.tar"
    packed.write_bytes(_tar({f"{k}": b"x" for k in range(5)}))
    with open_all(str(packed)) as members:
        found = list(members)
    assert len(found) == 4
    assert found[-1] == Skipped(str(packed), "more than 3 members: the rest is not read")


def test_a_tar_of_the_tools_themselves(logs: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for name, data in logs.items():
        (tmp_path / name).write_bytes(data)
    packed = tmp_path / "job.tgz"
    done = subprocess.run(["tar", "-czf", packed, "-C", tmp_path, "job"], check=False)
    if done.returncode:
        pytest.skip("there is no tar")
    assert collscope("ingest", "log", packed, "--db", tmp_path / "t.db", "--strict").code == 0
    assert rows(tmp_path / "t.db", "SELECT COUNT(*) FROM sources") == [(_RANKS,)]


def _patched(archive: bytes, field: int, value: bytes, name: bytes) -> bytes:
    """A zip archive with other bytes in the central directory's entry of a member.

    field  its offset in the entry (APPNOTE.TXT 4.3.12): 6 version, 8 flags, 10 method, 24 size
    """
    data = bytearray(archive)
    entry = archive.rindex(name) - 46
    assert archive[entry : entry + 4] == b"PK\1\2"
    data[entry + field : entry + field + len(value)] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        (10, (9).to_bytes(2, "little"), "compressed with Deflate64"),
        (10, (77).to_bytes(2, "little"), "compressed with method 77"),
        (8, (0x20).to_bytes(2, "little"), "a patch of another file"),
        (8, (0x40).to_bytes(2, "little"), "encrypted"),
        # 2 GiB of a few kB: told by the header, before a byte is unpacked
        (24, (2 << 30).to_bytes(4, "little"), "becomes more than 1,000 times its size"),
    ],
)
def test_a_member_that_cannot_be_read_is_named_and_the_others_are_read(
    logs: dict[str, bytes], tmp_path: Path, field: int, value: bytes, why: str
) -> None:
    first, *others = logs
    packed = tmp_path / "logs.zip"
    packed.write_bytes(_patched(_zip(logs), field, value, first.encode()))
    done = collscope("ingest", "log", packed, "--db", tmp_path / "store.db")
    assert done.code == 0
    assert f"{packed}/{first}: skipped: {why}" in done.out
    assert all(f"{packed}/{name}: nccl_log" in done.out for name in others)


def test_a_zip_of_a_newer_format_is_named(logs: dict[str, bytes], tmp_path: Path) -> None:
    packed = tmp_path / "logs.zip"
    packed.write_bytes(
        _patched(_zip(logs), 6, (99).to_bytes(2, "little"), next(iter(logs)).encode())
    )
    done = collscope("ingest", "log", packed, "--db", tmp_path / "store.db")
    assert done.code == 3
    assert f"{packed}: a zip archive of an unknown version" in done.err


def test_members_of_an_archive_start_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start one takes longer than to read a small file."""
    path = tmp_path / "many.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(20):
            content = b"node:%d:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" % number
            member = tarfile.TarInfo(f"{number}.log")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    started: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), start(t)))
    assert collscope("ingest", "auto", path, "--db", tmp_path / "t.db").code == 0
    assert len(started) < 20
