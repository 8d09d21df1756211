"""A report states each fact once, or with the same number: over the reports of every traced job.

What a number must be is computed here from the views of single kernels and ranks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import collscope
from inputs import SHARED

import collscope as library
from collscope.library import Store

JOBS = ("ringll", "default", "loader", "slowgpu", "base")
LONG = 60  # characters of a sentence that is repeated for no reason


@pytest.fixture(scope="module", params=JOBS)
def job(
    request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Store, str]:
    """A traced job in a store of its own, and its report as text."""
    db = tmp_path_factory.mktemp("agrees") / "job.db"
    source = samples / "traces" / request.param
    if not source.exists():
        source = SHARED / "recordings" / "h200x2-causes" / request.param
    if not source.exists():
        pytest.skip(f"no {source}")
    assert collscope("ingest", "auto", source, "--db", db, "-q").code == 0
    shown = collscope("report", "--db", db)
    assert shown.code == 0
    return library.open(db), " ".join(shown.out.split())


def _one(store: Store, query: str) -> tuple[float, ...]:
    (row,) = store.sql(query).rows
    return row


def _numbers(pattern: str, text: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


def test_waiting_has_one_percentage(job: tuple[Store, str]) -> None:
    store, text = job
    columns = "TOTAL(wait_ns), TOTAL(unknown_ns), TOTAL(duration_ns)"
    wait, unknown, kernels = _one(store, f"SELECT {columns} FROM rank_times")
    low, high = (f"{100 * ns / kernels:.1f}" for ns in (wait, wait + unknown))
    share = f"{low} %" if low == high else f"{low} to {high} %"
    least = f"at least {low} %" if low != high else share
    assert f"Waiting for the last rank takes {least} of the kernel time" in text
    more = [f"{100 * unknown / kernels:.1f}"] if low != high else []
    assert re.findall(r"Another ([\d.]+) % may be waiting or transfer", text) == more
    assert _numbers(r" wait +[\d.]+ ([\d.]+) kernel time before", text) == [float(low)]
    found = [f.title for f in store.report().findings if f.code == "waiting_dominates"]
    assert found in ([], [f"waiting takes {share} of the time in collective kernels"])


def test_the_parts_are_those_of_the_traced_kernels(job: tuple[Store, str]) -> None:
    store, text = job
    (kernels,) = _one(store, "SELECT TOTAL(duration_ns) / 1e6 FROM rank_times")
    (whole,) = _numbers(r"collective time ([\d.]+) 100.0", text)
    assert whole == pytest.approx(kernels, rel=1e-3)


def test_the_gain_of_a_step_is_the_sum_of_the_savings_over_the_step(job: tuple[Store, str]) -> None:
    store, text = job
    report = store.report()
    (mean_ns,) = _one(store, "SELECT AVG(duration_ns) FROM steps")
    (uplift,) = report.judgement.uplifts
    saved = sum(row.step_saving_ns or 0.0 for row in report.judgement.classes)
    assert uplift.saved == pytest.approx(saved / mean_ns, rel=0.02)
    stated = _numbers(r"would be ([\d.]+) % shorter \(", text)
    # the first lines, the section, and the finding on slow collectives where there is one
    assert len(stated) == 2 + any(f.code == "slow_collectives" for f in report.findings)
    assert len(set(stated)) == 1
    assert stated[0] == pytest.approx(100 * saved / mean_ns, rel=0.06)


def test_each_call_is_counted_alike(job: tuple[Store, str]) -> None:
    store, _ = job
    report = store.report()
    timed = {row.class_id: row.seen_calls for row in report.classes if row.kernel_ns}
    assert timed == {row.class_id: row.calls for row in report.timeline.classes}
    ranks = {rank.rank: rank.calls for rank in report.timeline.ranks}
    sources = dict(store.sql("SELECT path, rank FROM traces JOIN sources USING (source_id)").rows)
    for share in report.shares:
        assert share.collective_calls - share.warm_up_calls == ranks[sources[share.source]]


def test_no_sentence_stands_twice(job: tuple[Store, str]) -> None:
    _, text = job
    sentences = [part for part in re.split(r"(?<=[.:]) ", text) if len(part) > LONG]
    assert not {part for part in sentences if sentences.count(part) > 1}


def test_a_message_is_whole_without_a_terminal(job: tuple[Store, str]) -> None:
    store, text = job
    for (message,) in store.sql("SELECT DISTINCT message FROM diagnostics").rows:
        words = message.split()
        assert all(word in text for word in words) or "ingest the job's logs too" in message


def test_verdict_and_tables_judge_by_one_system(job: tuple[Store, str]) -> None:
    store, text = job
    assert store.report().judgement.roof == "h200 reachable"  # the traced GPUs are H200
    assert "Reachable speeds: those of system h200 (the model of the traced GPUs" in text
    assert "ingest the job's logs too" not in text
