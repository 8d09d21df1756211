"""Layer lists: what is reduced, in order (pure)."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import msgspec

from collscope.errors import InputError

HEADER = ("name", "parameters")


class Layer(msgspec.Struct, frozen=True):
    """A layer, or a recorded call in its stead: what is reduced as one piece."""

    name: str
    parameters: int  # elements, 1 or more


def parse_layers(text: str, where: str) -> tuple[Layer, ...]:
    """Layers of a CSV text with the header line `name,parameters`, in its order.

    Empty lines and lines that begin with `#` are comments; layers without parameters are left out.

    where   what errors call the text
    raises  InputError, with the line, for a missing field, a name that was there before, a number
            that is not whole or below 0; for a text without the header, or without parameters
    """
    rows = _rows(text)
    number, header = next(rows, (1, []))
    if tuple(field.strip().lower() for field in header) != HEADER:
        raise InputError(
            f"{where}:{number}: no header line. Begin with '{','.join(HEADER)}', then a layer a"
            " line."
        )
    seen: dict[str, int] = {}
    layers = []
    for number, fields in rows:
        layer = _layer(fields, f"{where}:{number}")
        if layer.name in seen:
            raise InputError(
                f"{where}:{number}: layer '{layer.name}' is also on line {seen[layer.name]}. Give"
                " each layer its own name."
            )
        seen[layer.name] = number
        if layer.parameters:
            layers.append(layer)
    if not layers:
        raise InputError(f"{where}: no layer with parameters. List one layer a line.")
    return tuple(layers)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line number, from 1, and fields of every line that is not a comment."""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield number, next(csv.reader([line]))


def _layer(fields: list[str], where: str) -> Layer:
    # conv1,9472
    if len(fields) != len(HEADER):
        raise InputError(f"{where}: {len(fields)} fields. Write name,parameters.")
    name, count = (field.strip() for field in fields)
    if not name:
        raise InputError(f"{where}: no name. Name every layer.")
    if not count:
        raise InputError(f"{where}: layer '{name}' has no number of parameters. Fill the gap.")
    if count.startswith("-"):
        raise InputError(f"{where}: layer '{name}' has {count} parameters. Give 0 or more.")
    if not (count.isascii() and count.isdigit() and len(count) <= 15):
        raise InputError(
            f"{where}: '{count}' is not a number of parameters. Write for example 9472."
        )
    return Layer(name, int(count))
