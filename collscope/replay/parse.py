"""A plan read from its text, schemas/plan.md, strictly (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from collscope.errors import InputError
from collscope.model import Datatype, Op
from collscope.replay.patterns import transfer_bytes
from collscope.replay.plan import (
    ONLY_TRANSFERS,
    REDOPS,
    REPLAYED,
    SEQUENCE,
    SHAPES,
    UNIQUE,
    Plan,
    PlanClass,
    PlanComm,
    PlanStep,
    PlanTransfer,
    PlanTransfers,
    itemsize,
)
from collscope.replay.text import VERSION

T = TypeVar("T")

_LARGEST = 2**63 - 1
_MOST_LISTED = 1 << 22  # ranks and ids that all ranges of a plan stand for: 40 bytes each
_OPS = {op.value: op for op in REPLAYED}
_DATATYPES = {d.value: d for d in Datatype if d is not Datatype.UNKNOWN}
_REDOPS = {r.value: r for r in REDOPS}
_KEYS = {
    "op", "datatype", "redop", "count", "root", "in_place", "calls", "comms", "shape", "size_bytes",
}  # fmt: skip
_TRANSFER = re.compile(r"(\d+)>(\d+):(\d+)")
_ITEM = re.compile(r"(\d+)@(\d+)")


def parse_plan(text: str, name: str = "plan") -> Plan:
    """The plan of a text in the format of schemas/plan.md.

    name    of the file, for error messages
    raises  InputError naming the line, for anything that the format does not say
    """
    reader = _Reader(name)
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.partition("#")[0].split()
        if words:
            reader.statement(number, words)
    return reader.finish()


class _Reader:
    """A plan under construction; what a statement refers to must stand before it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 0
        self.version: int | None = None
        self.listed = 0  # ranks and ids of all ranges so far
        self.values: dict[str, int] = {}
        self.mode: str | None = None
        self.comms: dict[int, PlanComm] = {}
        self.classes: dict[int, PlanClass] = {}
        self.line_of: dict[int, int] = {}
        self.transfers: dict[int, dict[int, list[PlanTransfer]]] = {}
        self.steps: list[PlanStep] = []
        self.known_steps: dict[tuple[str, ...], PlanStep] = {}
        self.statements: dict[str, Callable[[list[str]], None]] = {
            "mode": self._mode,
            "nranks": lambda words: self._value("nranks", words),
            "scaled_from": lambda words: self._value("scaled_from", words),
            "comm": self._comm,
            "class": self._class,
            "transfers": self._transfers,
            "step": self._step,
        }

    def fail(self, what: str, do: str = "See schemas/plan.md.") -> InputError:
        return InputError(f"{self.name}: line {self.line}: {what}. {do}")

    def statement(self, line: int, words: list[str]) -> None:
        self.line = line
        if self.version is None:
            self._version(words)
        elif words[0] in self.statements:
            self.statements[words[0]](words[1:])
        else:
            raise self.fail(f"unknown statement '{words[0]}'")

    def _version(self, words: list[str]) -> None:
        if words[0] != "collscope-plan" or len(words) != 2:
            raise self.fail("not a replay plan", f"Begin it with 'collscope-plan {VERSION}'.")
        self.version = self.number(words[1])
        if self.version != VERSION:
            raise self.fail(
                f"plan of version {self.version}, this release reads {VERSION}",
                "Write the plan again with this release.",
            )

    def number(self, text: str, least: int = 0) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,19}", text) else -1
        if not least <= value <= _LARGEST:
            raise self.fail(f"'{text}' is not a whole number from {least} on")
        return value

    def numbers(self, text: str) -> tuple[int, ...]:
        """`0-3` or `0,2,5-7`, each at most once."""
        found: list[int] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            low = self.number(first)
            high = self.number(last) if dash else low
            if high < low:
                raise self.fail(f"'{part}' is not a range of ranks or ids")
            self.listed += high - low + 1
            if self.listed > _MOST_LISTED:
                raise self.fail(f"'{part}': more than {_MOST_LISTED:,} ranks and ids in all")
            found += range(low, high + 1)
        if len(set(found)) < len(found):
            raise self.fail(f"'{text}' names a rank or id twice")
        return tuple(found)

    def _mode(self, words: list[str]) -> None:
        if self.mode is not None or words not in ([UNIQUE], [SEQUENCE]):
            raise self.fail("mode must be 'unique' or 'sequence', once")
        self.mode = words[0]

    def _value(self, name: str, words: list[str]) -> None:
        if name in self.values or len(words) != 1:
            raise self.fail(f"{name} takes one number, once")
        self.values[name] = self.number(words[0], 1)

    def _comm(self, words: list[str]) -> None:
        # comm 1 0,2
        if len(words) != 2:
            raise self.fail("comm takes an id and ranks")
        key, ranks = self.number(words[0]), self.numbers(words[1])
        if key in self.comms:
            raise self.fail(f"communicator {key} is defined twice")
        if "nranks" not in self.values or max(ranks) >= self.values["nranks"]:
            raise self.fail("ranks must be below nranks, which must come first")
        self.comms[key] = PlanComm(key, ranks)

    def _class(self, words: list[str]) -> None:
        if self.mode is None:
            raise self.fail(
                "class comes before mode", "Put 'mode unique' or 'mode sequence' first."
            )
        # class 2 op=AllToAllv datatype=Float32 shape=alltoallv size_bytes=8192 calls=2 comms=0
        pairs = [word.partition("=") for word in words[1:]]
        values = {key: value for key, _, value in pairs}
        if not words or len(values) < len(pairs) or not set(values) <= _KEYS:
            raise self.fail("class takes an id and known KEY=VALUE, each once")
        key = self.number(words[0])
        if key in self.classes:
            raise self.fail(f"class {key} is defined twice")
        planned = self._planned(key, values)
        self._check(planned)
        self.classes[key] = planned
        self.line_of[key] = self.line

    def _planned(self, key: int, values: dict[str, str]) -> PlanClass:
        op = self._choice(_OPS, "op", values.get("op"))
        datatype = self._choice(_DATATYPES, "datatype", values.get("datatype"))
        shape = values.get("shape")
        if shape is not None:
            self._choice({s: s for s in SHAPES}, "shape", shape)
        if op.reduces:
            redop = self._choice(_REDOPS, "redop", values.get("redop"))
        elif "redop" in values:
            raise self.fail(f"{op.value} takes no redop")
        else:
            redop = None
        place = values.get("in_place", "0")
        if place not in ("0", "1"):
            raise self.fail("in_place must be 0 or 1")
        return PlanClass(
            key, op, datatype, self.numbers(values.get("comms", "")), redop,
            self.number(values["count"], 1) if "count" in values else None,
            self._root(op, values),
            place == "1",
            self.number(values.get("calls", "1"), 1),
            shape,
            self.number(values["size_bytes"]) if "size_bytes" in values else None,
        )  # fmt: skip

    def _root(self, op: Op, values: dict[str, str]) -> int | None:
        if "root" in values and op.rooted:
            return self.number(values["root"])
        if "root" in values or (op.rooted and "shape" not in values):
            raise self.fail(f"{op.value} {'needs a' if op.rooted else 'takes no'} root")
        return None

    def _choice(self, known: dict[str, T], key: str, text: str | None) -> T:
        if text is None or text not in known:
            raise self.fail(f"{key}={text or ''} is none of {', '.join(known)}")
        return known[text]

    def _check(self, planned: PlanClass) -> None:
        if not set(planned.comms) <= self.comms.keys():
            raise self.fail("comms must name communicators that are defined above")
        sizes = {len(self.comms[c].ranks) for c in planned.comms}
        if len(sizes) > 1:
            raise self.fail("the communicators of a class must have one size")
        if planned.root is not None and planned.root >= min(sizes):
            raise self.fail("root must be a rank of the communicator")
        if planned.shape is None and planned.count is None:
            raise self.fail("a class needs a count, or a shape with transfers")
        if planned.shape is None and planned.op in ONLY_TRANSFERS:
            raise self.fail(f"{planned.op.value} needs a shape and transfers")
        if planned.shape is None and planned.size_bytes is not None:
            self._check_size(planned, replace(planned, size_bytes=None).size(min(sizes)), "count")
        ranks = [r for c in planned.comms for r in self.comms[c].ranks]
        if self.mode != SEQUENCE and len(set(ranks)) < len(ranks):
            raise self.fail("the communicators of a class must be disjoint in mode unique")

    def _check_size(self, planned: PlanClass, derived: int, source: str) -> None:
        if planned.size_bytes not in (None, derived):
            raise self.fail(
                f"class {planned.id} has size_bytes={planned.size_bytes}, but its {source} give"
                f"{'s' if source == 'count' else ''} {derived}",
                "Correct one of them, or leave size_bytes out.",
            )

    def _transfers(self, words: list[str]) -> None:
        # transfers 2 0 0>1:1024 1>2:2048 2>3:16
        if len(words) < 3:
            raise self.fail("transfers takes a class, a communicator and SRC>DST:COUNT")
        planned = self.classes.get(self.number(words[0]))
        comm = self.number(words[1])
        if planned is None or planned.shape is None or comm not in planned.comms:
            raise self.fail("transfers must be of a class with a shape, on one of its comms")
        items = self.transfers.setdefault(planned.id, {}).setdefault(comm, [])
        for word in words[2:]:
            match = _TRANSFER.fullmatch(word)
            if match is None:
                raise self.fail(f"'{word}' is not SRC>DST:COUNT")
            item = PlanTransfer(self.number(match[1]), self.number(match[2]), self.number(match[3]))
            if max(item[:2]) >= len(self.comms[comm].ranks):
                raise self.fail(f"'{word}' names a rank that the communicator lacks")
            items.append(item)

    def _step(self, words: list[str]) -> None:
        # step 0@1 3@2
        step = self.known_steps.get(tuple(words))
        if step is None:
            step = self._new_step(words)
            self.known_steps[tuple(words)] = step
        self.steps.append(step)

    def _new_step(self, words: list[str]) -> PlanStep:
        if self.mode != SEQUENCE or not words:
            raise self.fail("step takes CLASS@COMM, in mode sequence only")
        items = []
        for word in words:
            match = _ITEM.fullmatch(word)
            key, comm = (self.number(match[1]), self.number(match[2])) if match else (-1, -1)
            if key not in self.classes or comm not in self.classes[key].comms:
                raise self.fail(f"'{word}' is not a class on one of its communicators")
            items.append((key, comm))
        return PlanStep(tuple(items))

    def finish(self) -> Plan:
        if self.version is None or self.mode is None or "nranks" not in self.values:
            self.line += 1
            raise self.fail("the plan ends without its version, mode and nranks")
        if not (self.steps if self.mode == SEQUENCE else self.classes):
            raise self.fail("the plan has nothing to run", "Choose other calls when planning.")
        if self.values.get("scaled_from", _LARGEST) < self.values["nranks"]:
            raise self.fail("scaled_from is less than nranks, but counts the ranks of the job")
        classes = tuple(self._with_transfers(c) for c in self.classes.values())
        return Plan(
            self.mode, self.values["nranks"], tuple(self.comms.values()), classes,
            tuple(self.steps), self.values.get("scaled_from"),
        )  # fmt: skip

    def _with_transfers(self, planned: PlanClass) -> PlanClass:
        if planned.shape is None:
            return planned
        found = self.transfers.get(planned.id, {})
        missing = [c for c in planned.comms if c not in found]
        self.line = self.line_of[planned.id]
        if missing:
            raise self.fail(f"class {planned.id} has no transfers on communicator {missing[0]}")
        lists = tuple(PlanTransfers(c, tuple(found[c])) for c in planned.comms)
        nranks, size = len(self.comms[planned.comms[0]].ranks), itemsize(planned.datatype)
        derived = max(transfer_bytes(planned.op, nranks, t.items, size) for t in lists)
        self._check_size(planned, derived, "transfers")
        return replace(planned, transfers=lists, size_bytes=derived)
