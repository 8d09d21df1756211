"""Find a system by name, by file, or as a node with a network; list those that ship."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from collscope.errors import InputError, UnreadableError
from collscope.inputs import read_small
from collscope.roofline.system import Fabric, Network, System
from collscope.roofline.system_file import parse_system
from collscope.roofline.topology_xml import parse_topology

_FOLDER = Path(__file__).parent / "systems"
_MAX_FILE_BYTES = 4 << 20  # the largest dump of a rack is below 1 MB
# h100+8xib-ndr: eight such NICs per node; h100+efa-p5: as many as in the network's file
_WITH_NETWORK = re.compile(r"(?P<node>.+)\+(?:(?P<nics>[1-9]\d{0,3})x)?(?P<network>[^+]+)")


class SystemRow(msgspec.Struct, frozen=True):
    """One line of `collscope roofline --list`; rates are GB/s of one direction."""

    name: str
    title: str  # what it is
    wiring: str | None  # mesh, switch, host, matrix; None: no links
    gpus: int | None  # GPUs of a node or domain
    gpu_uni_gbps: float | None  # all links of a GPU; the smallest where they differ
    link_uni_gbps: float | None  # one link, one direction
    node_uni_gbps: float | None  # all NICs of a node
    nics: int | None  # NICs of a node
    # part of the links' line rate that data can use; of the network's where there are no links
    usable_fraction: float
    usable_assumed: bool  # nobody measured that on such links
    # part of the NICs' line rate that data can use, where there are links beside them
    network_usable_fraction: float | None
    network_usable_assumed: bool  # nobody measured that on such a network
    in_network: str | None  # reduction by switches
    source_kind: str  # src: read; std: data sheet by name; calc; inf: inferred; user
    # high, medium, low: of the links; of the network where there are no links
    confidence: str
    network_confidence: str | None  # of the network, where there are links beside it
    source: str  # where the figures are from


def load_system(name: str) -> System:
    """System of a shipped name, of a TOML or topology XML file, or NODE+[K x]NETWORK.

    raises  InputError: no such system (with the nearest names), or a file that cannot be used
    """
    combined = _WITH_NETWORK.fullmatch(name)
    if combined is not None and not Path(name).is_file():
        node, other = load_system(combined["node"]), load_system(combined["network"])
        if node.fabric is None or other.network is None:
            part, lacks = (node, "links") if node.fabric is None else (other, "NICs")
            raise InputError(
                f"system '{name}': {part.name} has no {lacks}. "
                "Write NODE+NETWORK, as in h100+8xib-ndr."
            )
        return node.with_network(other, int(combined["nics"]) if combined["nics"] else None)
    if name.lower() in _files():
        return _shipped(name.lower())
    known = _names()
    if name.lower() in known:
        return known[name.lower()]
    if name.endswith((".toml", ".xml")) or "/" in name or Path(name).is_file():
        return _from_file(Path(name))
    nearest = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(nearest)}? " if nearest else ""
    raise InputError(
        f"system '{name}': not known. {hint}"
        "Give a name of collscope roofline --list, or a TOML or topology XML file."
    )


def system_names() -> tuple[str, ...]:
    """Names of the shipped systems."""
    return tuple(_files())


def shipped_systems() -> tuple[System, ...]:
    """The systems that come with collscope, by name."""
    return tuple(_shipped(name) for name in _files())


def catalogue_rows() -> tuple[SystemRow, ...]:
    """What `collscope roofline --list` shows."""
    return tuple(_row(system) for system in shipped_systems())


@cache
def _files() -> dict[str, Path]:
    """Files of the shipped systems by name."""
    return {file.stem: file for file in sorted(_FOLDER.glob("*.toml"))}


@cache
def _shipped(name: str) -> System:
    """A shipped system; each file is parsed at its first use."""
    file = _files()[name]
    return parse_system(file.read_text(encoding="utf-8"), file.name)


@cache
def _names() -> dict[str, System]:
    """Names and aliases, lower case, of the shipped systems."""
    names: dict[str, System] = {}
    for system in shipped_systems():
        names.update((alias.lower(), system) for alias in (system.name, *system.aliases))
    return names


def _from_file(path: Path) -> System:
    """System of a user's file: topology XML by its first character, else TOML."""
    try:
        content = read_small(str(path), _MAX_FILE_BYTES, "Give a system's TOML or topology XML")
    except UnreadableError as error:
        if isinstance(error.__cause__, OSError):
            raise InputError(
                f"{path}: cannot be read ({error.reason}). Check the path, or give a name of "
                "collscope roofline --list."
            ) from error
        raise
    if not content.strip():
        raise InputError(f"{path}: empty. Give a system's TOML or topology XML.")
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return parse_topology(content, str(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text. Give a TOML or topology XML file.") from error
    return parse_system(text, str(path), _base(path))


def _base(path: Path) -> Callable[[str], System]:
    """Finds the base of a file: a shipped system, or NODE+NETWORK; files of files have no end."""

    def load(name: str) -> System:
        if name.endswith((".toml", ".xml")) or "/" in name:
            raise InputError(f"{path}: base '{name}'. Name a system of collscope roofline --list.")
        return load_system(name)

    return load


def _row(system: System) -> SystemRow:
    """Record of one shipped system."""
    fabric, network = system.fabric, system.network
    described = fabric if fabric is not None else network
    assert described is not None  # a loaded system has one of them
    beside = network if fabric is not None else None
    return SystemRow(
        name=system.name,
        title=system.title,
        wiring=None if fabric is None else fabric.wiring,
        gpus=None if fabric is None else fabric.gpus,
        gpu_uni_gbps=None if fabric is None else min(map(sum, fabric.capacity[: fabric.gpus])),
        link_uni_gbps=None if fabric is None else fabric.uni_gbps,
        node_uni_gbps=None if network is None else network.node_gbps,
        nics=None if network is None else network.nics,
        usable_fraction=described.usable.value,
        usable_assumed=described.usable.assumed,
        network_usable_fraction=None if beside is None else beside.usable.value,
        network_usable_assumed=beside is not None and beside.usable.assumed,
        in_network=None if described.in_network is None else described.in_network.name,
        source_kind=described.source_kind,
        confidence=_confidence(described),
        network_confidence=None if beside is None else _confidence(beside),
        source=described.source,
    )


def _confidence(described: Fabric | Network) -> str:
    """How sure a row is; one step lower where the usable part of the rate is assumed."""
    if not described.usable.assumed:
        return described.confidence
    return "medium" if described.confidence == "high" else "low"
