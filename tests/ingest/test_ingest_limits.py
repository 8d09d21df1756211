"""Files that would fill the memory, hang, or be passed over: each is bounded and named."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from command import CALLS, collscope, rows
from packers import PACKERS

from collscope.errors import UnreadableError
from collscope.ingest import decompress, files
from collscope.ingest.files import Input, open_input
from collscope.ingest.paths import expand

_BOMB_BYTES = 1 << 30  # of zeros; packed 32 KB


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 GiB of zeros as zstd."""
    path = tmp_path_factory.mktemp("bomb") / "z.zst"
    part = zstandard.ZstdCompressor(level=1).compress(bytes(64 << 20))
    path.write_bytes(part * (_BOMB_BYTES >> 26))
    return path


@pytest.mark.parametrize("kind", ["log", "profile", "trace", "csv", "table", "metric", "auto"])
def test_a_bomb_is_refused_by_every_command(bomb: Path, db_path: Path, kind: str) -> None:
    tracemalloc.start()
    done = collscope("ingest", kind, bomb, "--db", db_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.code == 3
    assert "becomes more than 1,000 times its size when decompressed" in done.err
    assert "--max-size" in done.err
    assert peak < 4 * decompress.ANY_RATIO_BYTES
    assert not db_path.exists()


def test_a_bomb_among_files_is_skipped(bomb: Path, samples: Path, db_path: Path) -> None:
    log = samples / "nccl" / "mixed" / "rank0.log"
    done = collscope("ingest", "log", bomb, log, "--db", db_path)
    assert done.code == 0
    assert f"{bomb}: skipped: becomes more than 1,000 times its size" in done.out
    assert rows(db_path, "SELECT path FROM sources") == [(str(log),)]
    strict = collscope("ingest", "log", bomb, log, "--db", db_path, "--run", "b", "--strict")
    assert strict.code == 3


@pytest.mark.parametrize("suffix", PACKERS)
def test_every_chunk_is_bounded(suffix: str) -> None:
    plain = bytes(100 << 20)
    file = Input("x", io.BytesIO(PACKERS[suffix](plain)), len(plain))
    sizes = [len(chunk) for chunk in file.chunks()]
    assert sum(sizes) == len(plain)
    assert max(sizes) <= decompress.CHUNK_BYTES + decompress.ANY_RATIO_BYTES


def test_the_users_size_counts_instead_of_the_limits() -> None:
    packed = zstandard.ZstdCompressor(level=1).compress(bytes(100 << 20))
    with pytest.raises(UnreadableError, match=r"1,000 times"):
        Input("x", io.BytesIO(packed)).read_all()
    assert len(Input("x", io.BytesIO(packed), 100 << 20).read_all()) == 100 << 20
    with pytest.raises(UnreadableError, match=r"more than 99 MiB, the limit of --max-size"):
        Input("x", io.BytesIO(packed), 99 << 20).read_all()
    with pytest.raises(UnreadableError, match=r"more than 999 B, the limit of --max-size"):
        Input("x", io.BytesIO(bytes(1000)), 999).read_all()


def test_max_size_is_an_option(bomb: Path, samples: Path, db_path: Path) -> None:
    log = samples / "nccl" / "mixed" / "rank0.log"
    small = collscope("ingest", "log", log, "--db", db_path, "--max-size", "10K")
    assert (small.code, "more than 10 KiB, the limit of --max-size" in small.err) == (3, True)
    assert collscope("ingest", "log", log, "--db", db_path, "--max-size", "1M").code == 0
    wrong = collscope("ingest", "log", log, "--db", db_path, "--max-size", "much")
    assert (wrong.code, "not a size" in wrong.err) == (2, True)


def test_what_is_read_as_a_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_WHOLE_BYTES", 1 << 20)
    with pytest.raises(
        UnreadableError,
        match=r"more than 1 MiB, the limit for files that must be read as a"
        " whole",
    ):
        Input("x", io.BytesIO(bytes(9 << 20))).read_all()
    assert sum(map(len, Input("x", io.BytesIO(bytes(9 << 20))).chunks())) == 9 << 20


@pytest.mark.parametrize(
    "before", [("whatif", "fusion", "--layers"), ("replay", "--dry-run", "--plan"), ("msccl",)]
)
def test_other_files_are_bounded_too(bomb: Path, before: tuple[str, ...]) -> None:
    done = collscope(*before, bomb)
    assert (done.code, done.out) == (3, ""), done.err
    assert done.err.startswith(f"collscope: {bomb}: "), done.err


def test_a_real_log_that_repeats_itself_passes(samples: Path, db_path: Path) -> None:
    log = (samples / "nccl" / "mixed" / "rank0.log").read_bytes()
    packed = zstandard.ZstdCompressor(level=3).compress(log * 40)
    path = db_path.parent / "log.zst"
    path.write_bytes(packed)
    assert len(log) * 40 / len(packed) > 200  # repetitive
    assert collscope("ingest", "log", path, "--db", db_path, "--strict").code == 0


def test_many_small_frames_are_read(tmp_path: Path) -> None:
    # Each frame's rest was copied whole: quadratic in the size of the file.
    for packed in (zstandard.ZstdCompressor().compress(b"x"), gzip.compress(b"x")):
        many = Input("x", io.BytesIO(packed * 20_000))
        assert many.read_all() == b"x" * 20_000
        assert not many.truncated


def test_zstd_with_a_long_window_is_named() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(bytes(1000)) + packer.flush()
    with pytest.raises(UnreadableError, match=r"zstd --long; unpacking needs 1 GiB of memory"):
        Input("x", io.BytesIO(packed)).read_all()


def test_xz_with_a_large_dictionary_is_named() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 << 20}]
    packed = lzma.compress(bytes(1000), filters=filters)
    with pytest.raises(
        UnreadableError, match=r"xz; unpacking needs over 128 MiB of memory\. Unpack it"
    ):
        Input("x", io.BytesIO(packed)).read_all()


@pytest.mark.parametrize(("suffix", "module"), [("xz", "lzma"), ("bz2", "bz2")])
def test_a_python_without_a_library_says_so(
    monkeypatch: pytest.MonkeyPatch, suffix: str, module: str
) -> None:
    packed = PACKERS[suffix](b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnreadableError, match=r"which this Python was built without"):
        Input("x", io.BytesIO(packed)).read_all()


@pytest.mark.parametrize("kind", ["log", "trace", "auto"])
def test_what_must_be_unpacked_is_refused(tmp_path: Path, db_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\x04\x22\x4d\x18" + bytes(100))
    done = collscope("ingest", kind, path, "--db", db_path)
    assert done.code == 3
    assert done.err.startswith(f"collscope: {path}: compressed with lz4")
    assert done.err.endswith("Unpack it, and name the unpacked files.\n")


def _odd_folder(samples: Path, folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(samples / "nccl" / "mixed" / "rank0.log", folder)
    os.mkfifo(folder / "pipe")
    (folder / "gone.log").symlink_to(folder / "nothing")
    (folder / "full").symlink_to("/dev/full")
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    here = os.getcwd()  # noqa: PTH109 - the address of a socket has 108 characters at most
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    os.chdir(here)
    return folder


@pytest.mark.parametrize("kind", ["log", "auto"])
def test_what_is_no_file_is_named(samples: Path, tmp_path: Path, db_path: Path, kind: str) -> None:
    folder = _odd_folder(samples, tmp_path / "job")
    done = collscope("ingest", kind, folder, "--db", db_path)
    assert done.code == 0
    for name, why in (
        ("pipe", "a named pipe (FIFO), not a file"),
        ("gone.log", "a link to nothing"),
        ("full", "a device, not a file"),
        ("socket", "a socket, not a file"),
        ("self", "Too many levels of symbolic links"),
    ):
        assert f"{folder / name}: skipped: {why}\n" in done.out
    assert "loop" not in done.out  # the folder itself, which is read
    assert rows(db_path, "SELECT COUNT(*) FROM sources") == [(1,)]
    strict = collscope("ingest", kind, folder, "--db", db_path, "--run", "b", "--strict")
    assert strict.code == 3


def test_a_folder_without_any_file_says_why(tmp_path: Path, db_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = collscope("ingest", "log", tmp_path, "--db", db_path)
    assert (done.code, "a named pipe (FIFO), not a file" in done.err) == (3, True)


def test_links_to_folders_are_followed(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "job").symlink_to(samples / "nccl" / "mixed")
    found = expand([str(tmp_path)])
    assert [Path(name).name for name in found.files] == [f"rank{k}.log" for k in range(4)]
    assert not found.skipped


def test_a_folder_that_cannot_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir()
        (folder / "rank0.log").write_text("")
        (folder / "closed").chmod(0o000)
        read, write = os.pipe()
        child = os.fork()
        if not child:  # root reads every folder
            if os.geteuid() == 0:
                os.setuid(65534)
            os.write(write, repr(expand([name])).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        told = os.read(read, 4096).decode()
        os.close(read)
        (folder / "closed").chmod(0o755)
    closed = f"('{name}/closed', 'a folder that cannot be read: Permission denied')"
    assert told == f"Expanded(files=['{name}/rank0.log'], skipped=[{closed}])"


@pytest.mark.parametrize("kind", ["log", "trace", "auto"])
def test_a_pipe_that_nobody_writes_into_does_not_hang(
    tmp_path: Path, db_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = collscope("ingest", kind, tmp_path / "pipe", "--db", db_path)
    assert (done.code, "the file is empty" in done.err) == (3, True)


def test_a_device_is_refused(db_path: Path) -> None:
    done = collscope("ingest", "log", "/dev/zero", "--db", db_path)
    assert (done.code, "/dev/zero: a device, not a file" in done.err) == (3, True)


@pytest.mark.parametrize("kind", ["log", "auto"])
def test_a_pipe_is_read_as_the_file(
    samples: Path, tmp_path: Path, db_path: Path, kind: str
) -> None:
    log = samples / "nccl" / "mixed" / "rank0.log"
    plain = tmp_path / "plain.db"
    assert collscope("ingest", kind, log, "--db", plain).code == 0
    read, write = os.pipe()
    with os.fdopen(write, "wb") as out, subprocess.Popen(["cat", str(log)], stdout=out):
        out.close()
        done = collscope("ingest", kind, f"/dev/fd/{read}", "--db", db_path)
    os.close(read)
    assert done.code == 0, done.err
    assert rows(db_path, CALLS) == rows(plain, CALLS)


def test_what_can_be_read_once_is_kept() -> None:
    read, write = os.pipe()
    os.write(write, b"abc")
    os.close(write)
    with open_input(f"/dev/fd/{read}") as file:
        assert file.head(2) == b"ab"
        assert [file.read_all(), file.text(), file.head()] == [b"abc", "abc", b"abc"]
        # sha256sum of abc, FIPS 180-2
        assert file.sha256.startswith("ba7816bf8f01cfea")
    os.close(read)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_text(samples: Path, tmp_path: Path, db_path: Path, encoding: str) -> None:
    log = samples / "nccl" / "mixed" / "rank0.log"
    mark = "\ufeff" if encoding.endswith("be") else ""
    wide = tmp_path / "rank0.log"
    wide.write_bytes((mark + log.read_text()).encode(encoding))
    plain = tmp_path / "plain.db"
    assert collscope("ingest", "log", log, "--db", plain).code == 0
    assert collscope("ingest", "auto", wide, "--db", db_path, "--strict").code == 0
    assert rows(db_path, CALLS) == rows(plain, CALLS)


def test_a_binary_file_that_begins_like_utf_16_stays_as_it_is() -> None:
    binary = b"\xff\xfe\x01\x00\x00\x00\x00\x00" * 10
    assert Input("x", io.BytesIO(binary)).read_all() == binary
