"""Damages of Kineto traces. A file is a JSON document with `traceEvents`; times in microseconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
from damages import Damage, Damaged, Files, one, some, without_one

Event = dict[str, Any]
Docs = dict[str, dict[str, Any]]
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = ("cuda_runtime", "cuda_driver")


def _gpu(event: Event) -> bool:
    return event.get("cat") in _GPU


def _collective(event: Event) -> bool:
    return event.get("cat") == "kernel" and event["name"].startswith("nccl")


def _span(events: list[Event]) -> tuple[float, float]:
    timed = [e for e in events if _gpu(e)]
    return min(e["ts"] for e in timed), max(e["ts"] + e["dur"] for e in timed)


def contradictions(docs: Docs) -> Counter[str]:
    """What a careful reader finds by counting, without a threshold.

    A stream is a queue: its rows neither overlap nor start in another order than their launches.
    A launch's kernel and a kernel's launch share a correlation, and each kernel has one row. No
    kernel takes 0. Every rank of a group records the same calls, and has a kernel for each.
    """
    found: Counter[str] = Counter()
    calls: dict[str, list[tuple[Any, ...]]] = {}
    for name, doc in docs.items():
        streams: dict[Any, list[Event]] = defaultdict(list)
        launches: Counter[Any] = Counter()
        kernels: Counter[Any] = Counter()
        for e in doc["traceEvents"]:
            args = e.get("args", {})
            if _gpu(e):
                streams[args.get("device"), args.get("stream")].append(e)
                kernels[args.get("correlation")] += 1
                found["zero lengths"] += e["cat"] == "kernel" and e["dur"] == 0
            elif e.get("cat") in _LAUNCH and "aunch" in e["name"]:
                launches[args.get("correlation")] += 1
            elif e.get("name") == "record_param_comms":
                key = ("Collective name", "In msg nelems", "Out msg nelems", "dtype")
                calls.setdefault(name, []).append(tuple(args.get(k) for k in key))
        for rows in streams.values():
            rows.sort(key=lambda e: e["ts"])
            for a, b in pairwise(rows):
                # Times are written in thousandths of a microsecond.
                found["rows of a stream overlap"] += a["ts"] + a["dur"] > b["ts"] + 0.002
                found["order of launches"] += a["args"].get("correlation", 0) > b["args"].get(
                    "correlation", 0
                )
        found["launches without a kernel"] += len(set(launches) - set(kernels))
        found["kernels without a launch"] += sum(
            1
            for e in doc["traceEvents"]
            if e.get("cat") == "kernel" and e["args"].get("correlation") not in launches
        )
        found["one correlation twice"] += sum(n - 1 for n in kernels.values())
        nccl = sum(1 for e in doc["traceEvents"] if _collective(e))
        found["calls without a kernel"] += abs(len(calls.get(name, [])) - nccl)
    if calls:
        most = max(calls.values(), key=len)
        found["ranks record different calls"] += sum(c != most for c in calls.values())
        found["ranks record different calls"] += len(docs) - len(calls)
    return found


def _judged(before: Files, docs: Docs, undecided: str, why: str | None = None) -> Damaged:
    """The damage with its statement: by what contradictions grew, or by the given reason."""
    files = {name: msgspec.json.encode(doc) for name, doc in docs.items()}
    if why is not None:
        return Damaged(files, True, why)
    old, new = contradictions(_read(before)), contradictions(docs)
    grown = [f"{what} ({old[what]} -> {n})" for what, n in new.items() if n > old[what]]
    return Damaged(files, bool(grown), "; ".join(grown) or undecided)


def _read(files: Files) -> Docs:
    return {name: msgspec.json.decode(data) for name, data in files.items()}


def _events(
    change: Callable[[list[Event], Random, float], list[Event]], undecided: str, whole: bool = False
) -> Callable[[Files, Random, float], Damaged | None]:
    """A damage by a change of the events of one file, or of all of them."""

    def apply(files: Files, draw: Random, severity: float) -> Damaged | None:
        docs = _read(files)
        for name in sorted(files) if whole else some(files, draw):
            docs[name]["traceEvents"] = change(docs[name]["traceEvents"], draw, severity)
        return _judged(files, docs, undecided)

    return apply


def _each(test: Callable[[Event], bool], to: Callable[[Event, Random], Event | None]) -> Any:  # noqa: ANN401
    """A change of a part `severity` of the events that pass the test."""

    def change(events: list[Event], draw: Random, severity: float) -> list[Event]:
        out = []
        for e in events:
            new = to(e, draw) if test(e) and draw.random() < severity else e
            if new is not None:
                out.append(new)
        return out

    return change


def _longer(by: float) -> Callable[[Event, Random], Event]:
    return lambda e, _: {**e, "dur": e["dur"] * by}


def _moved(by: float) -> Callable[[Event, Random], Event]:
    return lambda e, _: {**e, "ts": e["ts"] + by}


def _gone(_e: Event, _draw: Random) -> None:
    return None


def _interval(test: Callable[[Event], bool], where: Callable[[Random, float], float]) -> Any:  # noqa: ANN401
    """Events of a part `severity` of the span are gone; `where` is its start as a part."""

    def change(events: list[Event], draw: Random, severity: float) -> list[Event]:
        low, high = _span(events)
        start = low + where(draw, severity) * (high - low)
        end = start + severity * (high - low)
        return [e for e in events if not (test(e) and start <= e["ts"] <= end)]

    return change


def _nth(events: list[Event], draw: Random, severity: float) -> list[Event]:
    n = max(2, round(1 / severity))
    off = draw.randrange(n)
    return [e for i, e in enumerate(events) if i % n != off]


def _jump(by_us: float) -> Any:  # noqa: ANN401
    def change(events: list[Event], draw: Random, _severity: float) -> list[Event]:
        low, high = _span(events)
        at = low + draw.uniform(0.2, 0.8) * (high - low)
        return [_moved(by_us)(e, draw) if _gpu(e) and e["ts"] > at else e for e in events]

    return change


def _jump_one(by_us: float) -> Any:  # noqa: ANN401
    # A collective cannot end on one rank before the last rank has come. After a jump of one
    # rank's GPU clock the ends of the same call lie apart by it, and before it they do not.
    def apply(files: Files, draw: Random, severity: float) -> Damaged | None:
        docs = _read(files)
        name = one(files, draw)
        docs[name]["traceEvents"] = _jump(by_us)(docs[name]["traceEvents"], draw, severity)
        return _judged(files, docs, "", "ends of calls of one rank move against the others'")

    return apply


def _digit(e: Event, draw: Random) -> Event:
    text = str(int(e["dur"]))
    if len(text) < 2:
        return e
    at = draw.randrange(len(text))
    return {**e, "dur": float((text[:at] + text[at + 1 :]) or 0)}


def _digit_of_time(e: Event, draw: Random) -> Event:
    text = str(int(e["ts"]))
    at = draw.randrange(3, len(text))
    return {**e, "ts": float(text[:at] + text[at + 1 :])}


def _doubled(events: list[Event], draw: Random, severity: float) -> list[Event]:
    return [e for e in events for _ in range(1 + (_gpu(e) and draw.random() < severity))]


def _all_alike(files: Files, _draw: Random, severity: float) -> Damaged:
    # Every time of every rank in another unit: nothing in the file names the unit.
    docs = _read(files)
    for doc in docs.values():
        first = min(e["ts"] for e in doc["traceEvents"] if "ts" in e)
        for e in doc["traceEvents"]:
            if "ts" in e:
                e["ts"] = first + (e["ts"] - first) * severity
            if "dur" in e:
                e["dur"] = e["dur"] * severity
    files = {name: msgspec.json.encode(doc) for name, doc in docs.items()}
    return Damaged(files, False, "all times of all ranks are scaled alike")


def _one_scaled(files: Files, draw: Random, severity: float) -> Damaged:
    # Ranks that wait for each other in every call cannot take times that differ by a factor.
    docs = _read(files)
    for name in draw.sample(sorted(files), max(1, len(files) // 2)):
        first = min(e["ts"] for e in docs[name]["traceEvents"] if "ts" in e)
        for e in docs[name]["traceEvents"]:
            if "ts" in e:
                e["ts"] = first + (e["ts"] - first) * severity
            if "dur" in e:
                e["dur"] = e["dur"] * severity
    return _judged(files, docs, "", "ranks of one group, which wait for each other, differ in pace")


def _durations_of_half(files: Files, draw: Random, severity: float) -> Damaged:
    docs = _read(files)
    for name in draw.sample(sorted(files), max(1, len(files) // 2)):
        for e in docs[name]["traceEvents"]:
            if _gpu(e):
                e["dur"] *= severity
    return _judged(files, docs, "no rows overlap")


def _clean_cut(files: Files, _draw: Random, severity: float) -> Damaged | None:
    # Everything after one call is gone from all ranks, as if the profiler had ended earlier.
    docs = _read(files)
    for doc in docs.values():
        records = sorted(
            e["ts"] for e in doc["traceEvents"] if e.get("name") == "record_param_comms"
        )
        if not records:
            return None
        at = records[int(len(records) * (1 - severity))]
        kept = {
            e["args"].get("correlation")
            for e in doc["traceEvents"]
            if e.get("cat") in _LAUNCH and e["ts"] < at and "args" in e
        }
        doc["traceEvents"] = [
            e
            for e in doc["traceEvents"]
            if (e["args"].get("correlation") in kept if _gpu(e) else e.get("ts", 0) < at)
        ]
    return _judged(files, docs, "all ranks are cut cleanly at one place")


def _cut_of_one(files: Files, draw: Random, severity: float) -> Damaged:
    docs = _read(files)
    name = one(files, draw)
    low, high = _span(docs[name]["traceEvents"])
    at = high - severity * (high - low)
    gone = {
        e["args"].get("correlation") for e in docs[name]["traceEvents"] if _gpu(e) and e["ts"] >= at
    }
    docs[name]["traceEvents"] = [
        e
        for e in docs[name]["traceEvents"]
        if not ("args" in e and e["args"].get("correlation") in gone and "correlation" in e["args"])
    ]
    return _judged(files, docs, "kernels and launches of no recorded call are gone")


def _pairs_gone(events: list[Event], draw: Random, severity: float) -> list[Event]:
    # Kernels that are no collectives, and their launches: what stays is whole in itself.
    gone = {
        e["args"].get("correlation")
        for e in events
        if _gpu(e) and not _collective(e) and draw.random() < severity
    }
    return [e for e in events if e.get("args", {}).get("correlation", -1) not in gone]


def _torn(files: Files, draw: Random, severity: float) -> Damaged:
    out = dict(files)
    for name in some(files, draw):
        out[name] = files[name][: int(len(files[name]) * (1 - severity))]
    return Damaged(out, True, "the JSON does not end")


def _hole(files: Files, draw: Random, severity: float) -> Damaged | None:
    out = dict(files)
    name = one(files, draw)
    data = files[name]
    size = int(len(data) * severity)
    at = draw.randrange(len(data) - size)
    out[name] = data[:at] + data[at + size :]
    try:
        docs = _read(out)
        contradictions(docs)
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        return Damaged(out, True, "the JSON is broken, or an event lacks what each has")
    return _judged(files, docs, "valid JSON without a contradiction")


def _file_twice(files: Files, draw: Random, severity: float) -> Damaged:
    # Once more under another name, with one blank more: not the same bytes.
    out = dict(files)
    name = one(files, draw)
    out[f"again-{name}"] = files[name] + b"\n" * max(1, int(severity * 10))
    return Damaged(out, True, "two files hold the same events of one rank at the same times")


def _concatenated(files: Files, draw: Random, _severity: float) -> Damaged:
    out = dict(files)
    for name in some(files, draw):
        out[name] = files[name] + b"\n" + files[name]
    return Damaged(out, True, "two documents in one file")


def _events_twice(files: Files, draw: Random, _severity: float) -> Damaged:
    docs = _read(files)
    for name in some(files, draw):
        docs[name]["traceEvents"] *= 2
    return _judged(files, docs, "")


def _counts_of_one(files: Files, draw: Random, severity: float) -> Damaged:
    docs = _read(files)
    name = one(files, draw)
    for e in docs[name]["traceEvents"]:
        if e.get("name") == "record_param_comms" and draw.random() < max(severity, 0.1):
            for key in ("In msg nelems", "Out msg nelems"):
                e["args"][key] = e["args"].get(key, 0) * 2
    return _judged(files, docs, "no call was changed")


def _as_other_rank(files: Files, draw: Random, _severity: float) -> Damaged | None:
    names = sorted(files)
    if len(names) < 2:
        return None
    docs = _read(files)
    a, b = draw.sample(names, 2)
    docs[a]["distributedInfo"]["rank"] = docs[b]["distributedInfo"]["rank"]
    return _judged(files, docs, "", "two files of one rank, none of another")


def _buffers(events: list[Event], draw: Random, severity: float) -> list[Event]:
    """GPU activity comes in buffers: some of 40 are lost, whole."""
    low, high = _span(events)
    lost = {i for i in range(40) if draw.random() < severity}
    return [
        e for e in events if not _gpu(e) or int((e["ts"] - low) / (high - low) * 40) not in lost
    ]


def _rounded(e: Event, _draw: Random) -> Event:
    return {**e, "ts": round(e["ts"], -3), "dur": round(e["dur"], -3)}


def _one_stream(events: list[Event], _draw: Random, _severity: float) -> list[Event]:
    return [{**e, "args": {**e["args"], "stream": 7}} if _gpu(e) else e for e in events]


def _correlations(events: list[Event], draw: Random, severity: float) -> list[Event]:
    """Kernels that took another's correlation."""
    chosen = [e for e in events if _gpu(e) and draw.random() < severity]
    numbers = [e["args"].get("correlation") for e in chosen]
    draw.shuffle(numbers)
    new = dict(zip(map(id, chosen), numbers, strict=True))
    return [
        {**e, "args": {**e["args"], "correlation": new[id(e)]}} if id(e) in new else e
        for e in events
    ]


_LEFT = "launches and kernels still fit each other, and the ranks' calls too"
_LENGTH = "a length that overlaps nothing is possible"

DAMAGES = (
    Damage("durations x100 of some kernels", _events(_each(_gpu, _longer(100)), _LENGTH)),
    Damage("durations x1000 of all kernels", _events(_each(_gpu, _longer(1000)), _LENGTH), (1.0,)),
    Damage("durations of half of the ranks", _durations_of_half, (10.0, 1000.0)),
    Damage("times of all ranks scaled", _all_alike, (0.001, 2.0, 1000.0)),
    Damage("times of half of the ranks scaled", _one_scaled, (0.5, 2.0, 1000.0)),
    Damage("kernels gone here and there", _events(_each(_gpu, _gone), _LEFT)),
    Damage("collectives' kernels gone", _events(_each(_collective, _gone), _LEFT)),
    Damage(
        "kernels of an interval gone",
        _events(_interval(_gpu, lambda d, s: d.uniform(0, 1 - s)), _LEFT),
    ),
    Damage("last kernels gone", _events(_interval(_gpu, lambda _, s: 1 - s), _LEFT)),
    Damage("first kernels gone", _events(_interval(_gpu, lambda _d, _s: 0.0), _LEFT)),
    Damage("every n-th event gone", _events(_nth, _LEFT), (0.02, 0.1, 0.5)),
    Damage(
        "runtime events gone",
        _events(_each(lambda e: e.get("cat") == "cuda_runtime", _gone), _LEFT),
        (0.1, 1.0),
    ),
    Damage(
        "driver events gone",
        _events(_each(lambda e: e.get("cat") == "cuda_driver", _gone), _LEFT),
        (0.1, 1.0),
    ),
    Damage(
        "launches gone", _events(_each(lambda e: e.get("cat") in _LAUNCH, _gone), _LEFT), (0.3, 1.0)
    ),
    Damage(
        "records of calls gone",
        _events(_each(lambda e: e.get("name") == "record_param_comms", _gone), _LEFT),
    ),
    Damage("kernels of length 0", _events(_each(_gpu, _longer(0)), _LEFT), (0.02, 0.2, 1.0)),
    Damage("kernels a second late", _events(_each(_gpu, _moved(1e6)), _LEFT), (0.005, 0.02, 0.1)),
    Damage("kernels a second early", _events(_each(_gpu, _moved(-1e6)), _LEFT), (0.005, 0.02)),
    Damage("clock of one rank jumps 2 ms", _jump_one(2e3), (1.0,)),
    Damage("clock of one rank jumps back 2 ms", _jump_one(-2e3), (1.0,)),
    Damage("clock of one rank jumps 1 s", _jump_one(1e6), (1.0,)),
    Damage(
        "clocks of all ranks jump",
        _events(_jump(2e3), "a pause of all ranks is possible", whole=True),
        (1.0,),
    ),
    Damage("events doubled", _events(_doubled, _LEFT), (0.05, 0.5, 1.0)),
    Damage("all events twice", _events_twice, (1.0,)),
    Damage("a file twice", _file_twice, (0.1,)),
    Damage("a file after itself", _concatenated, (1.0,)),
    Damage("end torn off", _torn, (0.0005, 0.05, 0.4)),
    Damage("bytes gone from the middle", _hole, (0.002, 0.05, 0.3)),
    Damage(
        "a rank's file gone", without_one("the group has more ranks than there are files"), (1.0,)
    ),
    Damage("a rank named as another", _as_other_rank, (1.0,)),
    Damage("counts of one rank", _counts_of_one, (0.1, 1.0)),
    Damage("durations lose a digit", _events(_each(_gpu, _digit), _LENGTH), (0.05, 0.5)),
    Damage("times lose a digit", _events(_each(_gpu, _digit_of_time), _LEFT), (0.005, 0.05)),
    Damage("all ranks cut at one call", _clean_cut, (0.2, 0.5)),
    Damage("one rank cut", _cut_of_one, (0.2, 0.5)),
    Damage("compute kernels gone with their launches", _events(_pairs_gone, _LEFT)),
    Damage("buffers of kernels gone", _events(_buffers, _LEFT), (0.05, 0.3), exam=True),
    Damage("times rounded to ms", _events(_each(_gpu, _rounded), _LEFT), (0.1, 1.0), exam=True),
    Damage("one stream", _events(_one_stream, _LEFT), (1.0,), exam=True),
    Damage("correlations exchanged", _events(_correlations, _LEFT), (0.1, 1.0), exam=True),
    Damage(
        "collectives x10", _events(_each(_collective, _longer(10)), _LENGTH), (0.1, 1.0), exam=True
    ),
    Damage("kernels 5 ms late", _events(_each(_gpu, _moved(5e3)), _LEFT), (0.01, 0.1), exam=True),
)
