"""Groups that nothing names, of ranks on hosts whose clocks differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard
from msgspec.structs import replace
from readers import parse
from trace_builder import US, Job, steady_job

from collscope.model.trace import TraceColumns, TraceFile
from collscope.timeline.analyse import Timeline, analyse

MS = 1_000_000
HOUR = 3_600_000 * MS
WORLD = (0, 1, 2, 3)


def _told(traces: list[TraceFile], *groups: tuple[int, ...]) -> list[TraceFile]:
    """The traces with the groups that their headers tell."""
    return [
        replace(trace, groups=tuple(g for g in groups if trace.rank in g), host=None)
        for trace in traces
    ]


def _members(timeline: Timeline) -> list[tuple[int, ...]]:
    return [g.members for g in timeline.calls.groups]


def _waits(timeline: Timeline) -> int:
    return int(timeline.times.wait[timeline.times.wait >= 0].sum())


def _shifted(trace: TraceFile, by: int, drift: float) -> TraceFile:
    c = trace.columns
    first = int(c.start_ns.min())

    def moved(times: np.ndarray) -> np.ndarray:
        late = by + np.rint((times - first) * drift).astype(np.int64)
        return np.where(times >= 0, times + late, -1)

    columns = replace(
        c, start_ns=moved(c.start_ns), end_ns=moved(c.end_ns), launch_ns=moved(c.launch_ns)
    )
    return replace(trace, columns=columns)


def _recorded(folder: Path, rank: int | None = None) -> list[TraceFile]:
    """Traces of CUDA activities alone."""
    reader = zstandard.ZstdDecompressor()
    return [
        trace
        for path in sorted(folder.glob(f"light.rank{'*' if rank is None else rank}.json.zst"))
        for trace in parse([reader.stream_reader(path.read_bytes()).read()], path.name)
    ]


def _without(trace: TraceFile, share: float, seed: int) -> TraceFile:
    """The trace without some of its collectives."""
    c = trace.columns
    lost = np.random.default_rng(seed).random(len(c)) < share
    kept = ~(lost & (c.collective >= 0))
    columns = {name: getattr(c, name)[kept] for name in c.__struct_fields__}
    return replace(trace, columns=TraceColumns(**columns), calls=None)


@pytest.mark.parametrize(
    ("by", "drift"), [(20 * US, 0.0), (100 * US, 0.0), (-50 * MS, 5e-5), (HOUR, 0.0)]
)
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_recordings_on_two_clocks_tell_what_they_tell_on_one(
    recorded_jobs: Path, job: str, by: int, drift: float
) -> None:
    """Ranks 2 and 3 as on a second host: the waits are those of the recording as it is."""
    traces = _recorded(recorded_jobs / "plain" / "default" / job)
    assert [trace.groups for trace in traces] == [(WORLD,)] * 4
    as_recorded = analyse(traces)
    moved = analyse([_shifted(t, by, drift) if t.rank in (2, 3) else t for t in traces])
    assert _members(moved) == _members(as_recorded) == [WORLD]
    assert moved.calls.nranks.tolist() == as_recorded.calls.nranks.tolist()
    assert _waits(moved) == pytest.approx(_waits(as_recorded), rel=0.01)


def test_pairs_across_two_hosts_and_pairs_within_them() -> None:
    """Tensor parallel within the hosts, data parallel across: four groups, and none of them all."""
    job = Job(4, jitter_ns=500)
    pairs = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    for _ in range(40):
        for stream, groups in enumerate(pairs):
            for pair in groups:
                for r in pair:
                    job.compute(r, job.random.randint(40, 400) * US)
                job.collective(pair, 60 * US, comm=5 + stream)
    job.forget_groups()
    traces = _told(job.traces({2: 7 * MS, 3: 7 * MS}), *pairs[0], *pairs[1], WORLD)
    timeline = analyse(traces)
    assert sorted(_members(timeline)) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    truth = sum(r.wait or 0 for rows in job.rows.values() for r in rows)
    assert _waits(timeline) == pytest.approx(truth, rel=0.02)


def _two_pairs(calls: int) -> Job:
    """Ranks 0 and 1, and 2 and 3, each pair for itself."""
    job = Job(4, seed=3)
    for _ in range(calls):
        for pair in ((0, 1), (2, 3)):
            for r in pair:
                job.compute(r, job.random.randint(50, 2000) * US)
            job.collective(pair, 60 * US)
    job.forget_groups()
    return job


def test_calls_that_contradict_the_told_group_do_not_make_it() -> None:
    """Only the world is told, but two pairs of ranks never meet: how long they wait for others
    is not known."""
    traces = _told(_two_pairs(40).traces({2: 7 * MS, 3: 7 * MS}), WORLD)
    timeline = analyse(traces)
    assert _members(timeline) == [(0, 1), (2, 3)]
    assert set(timeline.calls.nranks.tolist()) == {4}
    assert not timeline.times.known.any()


def test_pairs_that_do_not_meet_are_pairs_where_nothing_tells_more() -> None:
    timeline = analyse(_told(_two_pairs(40).traces({2: 7 * MS, 3: 7 * MS})))
    assert _members(timeline) == [(0, 1), (2, 3)]
    assert timeline.times.known.all()


def test_too_few_calls_for_the_clocks_leave_the_waits_unknown() -> None:
    """With six calls nothing tells whether two pairs on two clocks are one group."""
    job = steady_job(4, 6, late=2)
    job.forget_groups()
    timeline = analyse(_told(job.traces({2: 7 * MS, 3: 7 * MS}), WORLD, (0, 1), (2, 3)))
    assert _members(timeline) == [(0, 1), (2, 3)]
    assert not timeline.times.known.any()


def test_parts_of_the_only_told_group_are_joined(recorded_jobs: Path) -> None:
    """A tenth of the collectives' records is lost, so that ranks meet some others too seldom."""
    whole = _recorded(recorded_jobs / "scheduled" / "default" / "ddp")
    found = []
    for seed in range(4):
        lossy = [_without(t, 0.1, 10 * seed + (t.rank or 0)) for t in whole]
        found.append(_members(analyse(lossy)))
    assert found == [[WORLD]] * 4


def test_ranks_of_two_starts_have_no_call_in_common(recorded_jobs: Path) -> None:
    """Not even where they have few: what their other calls tell counts for these, too."""
    first = _recorded(recorded_jobs / "scheduled" / "default" / "fsdp", 0)
    second = _recorded(recorded_jobs / "plain" / "default" / "fsdp", 1)
    calls = analyse([*first, *second]).calls
    assert set(calls.seen.tolist()) == {1}
    assert set(calls.nranks.tolist()) <= {-1, 4}
