"""Parsers of the rarer lines of an NCCL or RCCL log: plain values in, records out."""

from __future__ import annotations

from collscope.parsers.nccl_log.facts import (
    parse_error,
    parse_net,
    parse_structure,
    parse_warning,
)
from collscope.parsers.nccl_log.lifecycle import parse_init, parse_misc, parse_topology
from collscope.parsers.nccl_log.links import parse_link
from collscope.parsers.nccl_log.messages import NO_PROCESS, MessageKind, parse_messages
from collscope.parsers.nccl_log.settings import parse_built_for, parse_setting, parse_version

__all__ = [
    "NO_PROCESS",
    "MessageKind",
    "parse_built_for",
    "parse_error",
    "parse_init",
    "parse_link",
    "parse_messages",
    "parse_misc",
    "parse_net",
    "parse_setting",
    "parse_structure",
    "parse_topology",
    "parse_version",
    "parse_warning",
]
