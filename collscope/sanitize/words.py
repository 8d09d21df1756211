"""Words that stay in a shareable copy: those of the libraries, and those that readers look for.

`words.txt` holds them (`scripts/library_words.py` writes it). Any other word counts as a name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache, lru_cache
from importlib.resources import files

# Functions, types and kernels of the libraries, and environment variables of theirs.
_LIBRARY = re.compile(
    r"(?:m?s?nccl|rccl|mscclpp|msccl|cuda|hip|cupti|nvml|nvtx|roctx)(?:x?[A-Z]\w*)|cu[A-Z][a-z]\w*|"
    r"(?:ibv|mlx9dv|efadv|hsa|rocm_smi|rsmi|c10d|aten)_\w+|"
    r"(?:NCCL|RCCL|TORCH|MSCCL|MSCCLPP|CUDA|HIP|HSA|ROCR|OMP|OMPI|PMI|PMIX|UCX|SLURM|PBS)_[A-Z0-9_]+"
)
_QUANTITY = re.compile(
    r"[A-Z]\d{1,3}|\d+(?:\.\d+)*(?:[eE]|[A-Za-z%µ]{1,2}|[kKMGT]i?[Bb](?:it)?|[xX]\d+)?"
)
_DIGITS = re.compile(r"\d+")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDENTIFIER = re.compile(r"_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)*_*")


@cache
def _words() -> frozenset[str]:
    return frozenset(files("collscope.sanitize").joinpath("words.txt").read_text("utf-8").split())


@lru_cache(1 << 16)
def is_kept(word: str) -> bool:
    """Whether a word stays; a word with digits does with any others.

    >>> is_kept("opCount"), is_kept("rank12"), is_kept("coll_start_sn"), is_kept("alice")
    (True, True, True, False)
    """
    return (
        len(word) == 1
        or _DIGITS.sub("9", word) in _words()
        or _QUANTITY.fullmatch(word) is not None
        or _LIBRARY.fullmatch(word) is not None
        or _is_identifier(word)
        or (word[0].isdecimal() and word.lstrip("0123456789") in _words())
    )


def begins_word(text: str) -> bool:
    """Whether a word that stays begins so.

    >>> begins_word("opCou"), begins_word("ott")
    (True, False)
    """
    words = _in_order()
    at = bisect_left(words, text)
    return at < len(words) and words[at].startswith(text)


@cache
def _in_order() -> tuple[str, ...]:
    return tuple(sorted(_words()))


def _is_identifier(word: str) -> bool:
    """Whether words that stay are joined as programs do: coll_start_sn, CopyHostToDevice."""
    if _IDENTIFIER.fullmatch(word) is None:
        return False
    parts = [part for part in _PARTS.findall(word) if not part.isdecimal()]
    joined = len(parts) > 1 or word[0] == "_" or word[-1] == "_"
    return joined and all(len(p) == 1 or p in _words() or p.lower() in _words() for p in parts)
