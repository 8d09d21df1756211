"""Settings that are measured in turns: A B A B … within one command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from collscope.errors import UsageError
from collscope.programs import named_file

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A comma parts two settings only where a name follows: NCCL_IB_HCA=mlx5_0,mlx5_1 is one.
_BETWEEN = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")


class Variant(msgspec.Struct, frozen=True):
    """One setting: its label, and what it changes."""

    label: str
    environment: tuple[tuple[str, str], ...] = ()
    library: str | None = None
    runtime: str | None = None


def parse_assignment(text: str) -> tuple[str, str]:
    """Name and value of ``NAME=VALUE``.

    raises  UsageError when the text is none

    >>> parse_assignment("NCCL_ALGO=Ring")
    ('NCCL_ALGO', 'Ring')
    """
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise UsageError(f"'{text}': not NAME=VALUE. For example, write NCCL_ALGO=Ring.")
    return name, value


def parse_variant(text: str) -> Variant:
    """A variant of ``LABEL:NAME=VALUE,…``; `library` and `runtime` name files, not variables.

    raises  UsageError when the text is none

    >>> parse_variant("ring:NCCL_ALGO=Ring,library=/opt/librccl.so").environment
    (('NCCL_ALGO', 'Ring'),)
    """
    label, _, settings = text.partition(":")
    if not label or "=" in label or not label.isprintable():
        raise UsageError(
            f"variant '{text}': no label before the colon. For example, write"
            " ring:NCCL_ALGO=Ring, or base: for no change."
        )
    pairs = [parse_assignment(part) for part in _BETWEEN.split(settings)] if settings else []
    files = {name: named_file(file) for name, file in pairs if name in ("library", "runtime")}
    return Variant(
        label,
        tuple((name, value) for name, value in pairs if name not in files),
        files.get("library"),
        files.get("runtime"),
    )


def parse_variants(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Variants of a command line.

    raises  UsageError when one cannot be read, or two share a label
    """
    variants = tuple(parse_variant(text) for text in texts)
    labels = [variant.label for variant in variants]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UsageError(f"variant '{twice}': named twice. Give each its own label.")
    return variants


def schedule(variants: Sequence[Variant], rounds: int) -> Iterator[tuple[int, Variant]]:
    """Round, from 1, and variant of every start, in order.

    Every round runs each variant once, so that a slow drift of the machine meets all alike.
    """
    return iter(product(range(1, rounds + 1), variants))
