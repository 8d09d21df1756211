"""Compressions that inputs may have, by the ending of their files."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import zstandard

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor(level=1).compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}
