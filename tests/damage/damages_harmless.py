"""Changes that lose nothing: the same numbers, and not a word more."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import msgspec
import zstandard
from damages import Files


class Change(msgspec.Struct, frozen=True):
    """A harmless change, and the groups of inputs that it can be done to."""

    apply: Callable[[Files], Files]
    groups: tuple[str, ...]


def _each(to: Callable[[bytes], bytes], end: str = "") -> Callable[[Files], Files]:
    return lambda files: {name + end: to(data) for name, data in files.items()}


def _renamed(files: Files) -> Files:
    """Names that sort in the opposite order, so that the ranks come in another order."""
    names = sorted(files, reverse=True)
    return {f"{i:03}-of-job.{n.rpartition('.')[2]}": files[n] for i, n in enumerate(names)}


def _reversed_keys(data: bytes) -> bytes:
    def turn(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return {k: turn(v) for k, v in reversed(value.items())}
        return [turn(v) for v in value] if isinstance(value, list) else value

    return msgspec.json.encode(turn(msgspec.json.decode(data)))


def _prefixed(data: bytes) -> bytes:
    return b"".join(b"[1,3]<stdout>: " + x for x in data.splitlines(keepends=True))


CHANGES = {
    "as it is": Change(dict, ("traces", "logs", "profiles", "records")),
    "other line ends": Change(_each(lambda d: d.replace(b"\n", b"\r\n")), ("logs",)),
    "prefixes": Change(_each(_prefixed), ("logs",)),
    "other white space": Change(_each(lambda d: msgspec.json.format(d, indent=3)), ("traces",)),
    "other order of keys": Change(_each(_reversed_keys), ("traces",)),
    "gzip": Change(_each(gzip.compress, ".gz"), ("traces", "logs")),
    "zstd": Change(_each(zstandard.ZstdCompressor().compress, ".zst"), ("traces", "logs")),
    "other names": Change(_renamed, ("traces", "logs")),
}
