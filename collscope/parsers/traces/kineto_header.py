"""What stands around the events of a PyTorch profiler trace: rank, groups, versions, time base."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from collscope.parsers.traces.kineto_calls import Groups, whole_list
from collscope.parsers.traces.kineto_names import described

_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_LARGEST_BASE = 4 * 10**18  # ns; the year 2096
_LARGEST_RANK = 1 << 31


class Header(msgspec.Struct, frozen=True):
    """Members of the document that say where the trace comes from."""

    rank: int | None = None
    world_size: int | None = None
    contradicts: bool = False  # the group of all ranks has another size than `world_size`
    library_version: str | None = None
    base_ns: int = 0  # added to the times of all events
    groups: Groups = msgspec.field(default_factory=dict)
    descriptions: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # of groups by their names
    gpus: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # names of devices by their numbers


def read_header(head: bytes, tail: bytes) -> Header:
    """Header of the text before and after the events; either may be cut or empty."""
    members = {**_members(head.strip() + b"}"), **_members(b"{" + tail.strip().lstrip(b","))}
    info = members.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    base = members.get("baseTimeNanoseconds")
    if base is None and (found := _BASE.search(head) or _BASE.search(tail)):
        base = int(found[1])
    version = info.get("nccl_version")
    world, default = _number(info.get("world_size")) or None, _default_size(info.get("pg_config"))
    contradicts = None not in (world, default) and world != default
    return Header(
        rank=_number(info.get("rank")),
        world_size=None if contradicts else world,
        contradicts=contradicts,
        library_version=version if isinstance(version, str) else None,
        base_ns=_number(base, _LARGEST_BASE) or 0,
        groups=_groups(info.get("pg_config")),
        descriptions=_descriptions(info.get("pg_config")),
        gpus=_gpus(members.get("deviceProperties")),
    )


def _members(text: bytes) -> dict[str, object]:
    """Members of an object whose last one may be followed by a comma; none when it is damaged."""
    text = re.sub(rb",\s*\}\Z", b"}", text)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _groups(config: object) -> Groups:
    # "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]}]
    entries = config if isinstance(config, list) else []
    named = {
        str(entry["pg_name"]): whole_list(entry.get("ranks"))
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("pg_name"), str | int)
    }
    return {name: ranks for name, ranks in named.items() if ranks}


def _default_size(config: object) -> int | None:
    """Size of the group of all ranks; None where it is not described, or not by its ranks, too."""
    entries = config if isinstance(config, list) else []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("pg_desc") == "default_pg":
            size, ranks = _number(entry.get("pg_size")), whole_list(entry.get("ranks"))
            return size if size and ranks is not None and len(ranks) == size else None
    return None


def _descriptions(config: object) -> dict[str, str]:
    entries = config if isinstance(config, list) else []
    texts = {
        str(entry.get("pg_name")): described(entry.get("pg_desc"))
        for entry in entries
        if isinstance(entry, dict)
    }
    return {name: text for name, text in texts.items() if text}


def _gpus(devices: object) -> dict[str, str]:
    # "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, …}]
    entries = devices if isinstance(devices, list) else []
    return {
        str(entry.get("id")): entry["name"]
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }


def _number(value: object, limit: int = _LARGEST_RANK) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value < limit else None
