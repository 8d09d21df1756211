"""`bench p2p`: pairs, plans, real measurements on the host backend, and what is told of them.

Numbers of constructed measurements: 1 MiB in 10.48576 us are 100 GB/s, in 20.97152 us 50 GB/s.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest
from command import collscope, rows
from inputs import ROOT
from msgspec.structs import replace

from collscope.bench.p2p import P2pRequest, P2pRun, Result, run_p2p
from collscope.bench.p2p_plan import (
    LATENCY_BYTES,
    ONE_WAY,
    PING_PONG,
    ROUND_TRIPS,
    TWO_WAY,
    Exchange,
    Pair,
    parse_pairs,
    prepare,
    sizes_by_pair,
)
from collscope.errors import UsageError
from collscope.model import CopyTime, Measurement, Op
from collscope.programs import installed_replayer, launchers
from collscope.replay.mpi import LaunchedRank
from collscope.replay.parse import parse_plan
from collscope.replay.results import relabel
from collscope.replay.session import Method, Session, Target
from collscope.replay.text import plan_text
from collscope.reports.p2p.answer import CopyPoint, P2p, build_p2p, copies_beside
from collscope.reports.p2p.page import p2p_extras
from collscope.reports.p2p.text import notice_notes, render_p2p
from collscope.reports.rendering.plot import write_plot
from collscope.store.connection import open_store
from collscope.store.copies import insert_copies
from collscope.store.sources import SourceRow, insert_source, run_id

MIB = 1 << 20
FAST_US, SLOW_US = 10.48576, 20.97152
ON_HOST = ("--backend", "host", "--budget", "0.002")

needs_replayer = pytest.mark.skipif(
    installed_replayer() is None or not launchers(), reason="no collscope-replayer or no mpiexec"
)


# Pairs and sizes


def test_all_is_every_ordered_pair() -> None:
    assert parse_pairs("all", 3) == ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
    assert parse_pairs(" 1:0, 0:1,1:0", 2) == ((1, 0), (0, 1))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--pairs", "0:2"), "--pairs: 0:2 has no such rank. With -n 2 the ranks are 0 to 1."),
        (("--pairs", "0:0"), "--pairs: 0:0 is one rank."),
        (("--pairs", "0-1"), "--pairs: '0-1' is not a pair. Write SRC:DST, as in 0:1,1:0, or all."),
        (("--pairs", ""), "--pairs: '' is not a pair."),
        (("--pairs", "0:-1"), "--pairs: '0:-1' is not a pair."),
        (("--pairs", "0:99999999999999999999"), "is not a pair"),
        (("--sizes", "4K,1022"), "--sizes: 1022 bytes are not a multiple of 4"),
        (("--sizes", "2"), "Use 4."),
        (("--sizes", "1G..1K"), "the first size is above the last"),
        (("--sizes", "big"), "size 'big': not a size"),
        (("--sizes", "0"), "nothing to send"),
        (("--sizes", "4K,2T"), "--sizes: 2 TiB is more than a plan can hold. Use 1 TiB at most."),
        (("--variant", "a:", "--variant", "a:X=1"), "variant 'a': named twice"),
        (("--variant", "a:", "--label", "b"), "each variant has its own label"),
        (("--env", "X"), "'X': not NAME=VALUE"),
        (("--plot", "pairs.jpg"), "--plot pairs.jpg: not .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_it_starts(
    options: tuple[str, ...], what: str, db_path: Path
) -> None:
    outcome = collscope("bench", "p2p", "-n", "2", *options, "--db", db_path)
    assert (outcome.code, outcome.out, db_path.exists()) == (2, "", False)
    assert what in outcome.err


def test_the_first_pair_has_the_sizes_of_the_curve() -> None:
    sizes = sizes_by_pair(parse_pairs("all", 8), None)
    curve = tuple(4096 * 4**i for i in range(10))  # 4 KiB to 1 GiB
    assert sizes[0, 1] == curve
    others = {some for pair, some in sizes.items() if pair != (0, 1)}
    assert others == {(1 << 16, 1 << 20, 1 << 24, 1 << 28)}
    assert others.pop() == tuple(s for s in curve if s in (1 << 16, 1 << 20, 1 << 24, 1 << 28))
    assert set(sizes_by_pair(parse_pairs("all", 2), None).values()) == {curve}
    asked = sizes_by_pair(parse_pairs("all", 8), "64K,4K,64K")
    assert set(asked.values()) == {(4096, 65536)}


# Plans


def test_each_pair_has_its_own_communicator_and_sizes_rise() -> None:
    sizes: dict[Pair, tuple[int, ...]] = {(2, 1): (8, 4096), (1, 2): (8,), (0, 2): (8,)}
    prepared = prepare(sizes, (ONE_WAY, TWO_WAY), nranks=4, latency=True)
    plan = prepared.parts[0].plan
    ranks = plan.comm_ranks()
    assert plan.nranks == 4
    assert sorted(ranks.values()) == [(0, 2), (1, 2)]
    sent = [
        (c.size_bytes, [(ranks[c.comms[0]][t.src_rank], ranks[c.comms[0]][t.dst_rank]) for t in on])
        for c in plan.classes
        for on in [c.transfers[0].items]
    ]
    assert sent == [
        (8, [(0, 2)]), (8, [(1, 2)]), (8, [(2, 1)]), (8, [(0, 2), (2, 0)]), (8, [(1, 2), (2, 1)]),
        (4096, [(2, 1)]), (4096, [(1, 2), (2, 1)]),
    ]  # fmt: skip
    assert all(len(c.comms) == 1 for c in plan.classes)  # nothing runs at the same time
    assert prepared.points == 7 + 2


def test_a_ping_pong_alternates_and_shares_no_class_with_the_bandwidths() -> None:
    prepared = prepare({(1, 0): (8,)}, (ONE_WAY,), nranks=2, latency=True)
    bandwidth, latency = prepared.parts
    there, back = latency.plan.classes
    assert [(c.transfers[0].items[0][:2], c.size_bytes) for c in (there, back)] == [
        ((0, 1), LATENCY_BYTES), ((1, 0), LATENCY_BYTES)
    ]  # fmt: skip
    assert [s.items for s in latency.plan.steps] == [
        ((there.id, 0),),
        ((back.id, 0),),
    ] * ROUND_TRIPS
    assert not set(bandwidth.suffix_of) & {there.id, back.id}
    assert (latency.suffix, bandwidth.suffix_of) == (" 0:1 ping-pong", {0: " 1:0 one-way"})
    for part in prepared.parts:
        assert parse_plan(plan_text(part.plan), "plan") == part.plan


def test_a_rank_of_a_launcher_is_refused(tmp_path: Path) -> None:
    session = Session(Method(), place=LaunchedRank(0, 2))
    with pytest.raises(UsageError, match="Run the command without a launcher"):
        run_p2p(P2pRequest(2), session, Target(tmp_path / "t.db", "main"))


# The label of a row


def test_relabelling_touches_the_named_classes_only(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    head = "# label: p2p\nop,class_id,label,message\n"
    path.write_text(head + 'SendRecv,0,p2p,"a, ""b"""\nSendRecv,7,p2p,\nSequence,,p2p,\nSendRecv,0')
    relabel(path, {0: " 0:1 one-way"})
    assert path.read_text() == (
        head + 'SendRecv,0,p2p 0:1 one-way,"a, ""b"""\nSendRecv,7,p2p,\nSequence,,p2p,\nSendRecv,0'
    )
    assert [p.name for p in tmp_path.iterdir()] == ["r.csv"]


# On the host


@needs_replayer
def test_every_pair_is_measured_in_each_direction(db_path: Path, tmp_path: Path) -> None:
    table = tmp_path / "p2p.csv"
    command = ("bench", "p2p", "-n", "3", "--sizes", "4K,64K", *ON_HOST, "--db", db_path)
    outcome = collscope(*command, "--csv", table, "--format", "json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    jsonschema.validate(found, json.loads((ROOT / "schemas" / "p2p.schema.json").read_text()))
    measured = {
        kind: [(r["src"], r["dst"], r["size_bytes"]) for r in found["rows"] if r["test"] == kind]
        for kind in (ONE_WAY, TWO_WAY, PING_PONG)
    }
    half = [(0, 1), (0, 2), (1, 2)]
    sizes = (4096, 65536)
    assert measured == {
        ONE_WAY: [(*pair, size) for size in sizes for pair in parse_pairs("all", 3)],
        TWO_WAY: [(*pair, size) for size in sizes for pair in half],
        PING_PONG: [(*pair, 8) for pair in half],
    }
    assert all(r["status"] == "ok" and r["n_wrong"] == 0 for r in found["rows"])
    assert all(r["time_ns"] > 0 and r["samples"] >= 1 for r in found["rows"])
    for r in found["rows"]:
        gbps = None if r["test"] == PING_PONG else r["size_bytes"] / r["time_ns"]
        assert r["algbw_gbps"] == (gbps and pytest.approx(gbps))
    # What is in the store is what the CSV has, each pair under its own label.
    query = "SELECT label, op, size_bytes, time_us_median FROM measurements ORDER BY 1, 2, 3"
    stored = rows(db_path, query)
    assert len(stored) == 6 * 2 + 3 * 2 + 3 * 3
    assert {row[0] for row in stored} == {
        f"p2p {a}:{b} {kind}"
        for kind, pairs in ((ONE_WAY, parse_pairs("all", 3)), (TWO_WAY, half), (PING_PONG, half))
        for a, b in pairs
    }
    other = tmp_path / "other.db"
    assert collscope("ingest", "csv", table, "--db", other).code == 0
    assert rows(other, query) == stored
    steps = [t for _, op, _, t in stored if op == "Sequence"]
    latencies = [r["time_ns"] / 1000 for r in found["rows"] if r["test"] == PING_PONG]
    assert [t / 200 for t in steps if isinstance(t, float)] == pytest.approx(latencies, rel=1e-4)


@needs_replayer
def test_variants_take_turns_in_one_command(db_path: Path, tmp_path: Path) -> None:
    plot = tmp_path / "pairs.svg"
    outcome = collscope(
        "bench", "p2p", "-n", "2", "--pairs", "1:0", "--sizes", "4K", *ON_HOST, "--db", db_path,
        "--variant", "base:", "--variant", "two:NCCL_MAX_CTAS=2", "--rounds", "2", "--plot", plot,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    query = "SELECT label, round, op FROM measurements ORDER BY measurement_id"
    kinds = [("1:0 one-way", 1), ("0:1 two-way", 1), ("0:1 ping-pong", 3)]
    assert [row[:2] for row in rows(db_path, query)] == [
        (f"{variant} {kind}", number)
        for number in (1, 2)
        for variant in ("base", "two")
        for kind, n in kinds
        for _ in range(n)
    ]
    assert "Pair 1:0, GB/s" in outcome.out
    assert "one-way base" in outcome.out
    assert "two-way two" in outcome.out
    assert "plot: nothing to draw: a plot needs two pairs" in outcome.err


@needs_replayer
def test_a_size_that_does_not_fit_keeps_the_rest(db_path: Path) -> None:
    command = ("bench", "p2p", "-n", "2", "--pairs", "0:1", "--no-latency", *ON_HOST)
    outcome = collscope(*command, "--sizes", "4K,512G", "--db", db_path)
    assert outcome.code == 6
    assert "one-way of 512 GiB: failed in 1 case: out of memory" in " ".join(outcome.out.split())
    assert "2 of 4 measurements failed" in outcome.err
    assert "--resume" not in outcome.err  # the command has no such option
    query = "SELECT size_bytes, status, time_us_median > 0 FROM measurements ORDER BY 1"
    assert rows(db_path, query) == [(4096, "ok", 1)] * 2 + [(512 << 30, "failed", None)] * 2


@needs_replayer
def test_nothing_measured_is_an_error(db_path: Path) -> None:
    none = ("--backend", "cuda", "--library", "/none/libnccl.so")
    outcome = collscope("bench", "p2p", "-n", "2", *none, "--db", db_path)
    assert (outcome.code, outcome.out) == (5, "")
    assert "Nothing was measured" in outcome.err


# The report


def _one_way(pair: Pair, us: float) -> Result:
    m = Measurement(
        Op.SEND_RECV, size_bytes=MIB, time_us_median=us, samples_us=(us,) * 5, n_wrong=0
    )
    return Result("p2p", Exchange(ONE_WAY, *pair), m)


def _changed(result: Result, **values: object) -> Result:
    return replace(result, measured=replace(result.measured, **values))  # type: ignore[arg-type]


def _ping_pong(pair: Pair, us: float) -> Result:
    m = Measurement(Op.SEQUENCE, count=200, time_us_median=us, samples_us=(us, us, us + 200))
    return Result("p2p", Exchange(PING_PONG, *pair), m)


def _told(
    results: Sequence[Result], points: int = 0, copies: Sequence[CopyPoint] = (), nranks: int = 3
) -> P2p:
    run = P2pRun(nranks, parse_pairs("all", nranks), ("p2p",), tuple(results), points)
    return build_p2p(run, copies)


def _three_ranks() -> list[Result]:
    """All pairs at 100 GB/s but for 2:0 at 50, and latencies of 10, 10 and 12 us."""
    pairs = parse_pairs("all", 3)
    found = [_one_way(pair, SLOW_US if pair == (2, 0) else FAST_US) for pair in pairs]
    times = {(0, 1): 2000.0, (0, 2): 2000.0, (1, 2): 2400.0}
    return found + [_ping_pong(pair, us) for pair, us in times.items()]


def test_the_figures_of_constructed_measurements() -> None:
    found = _told(_three_ranks())
    one, latency = found.spreads
    assert (one.test, one.pairs, one.size_bytes) == (ONE_WAY, 6, MIB)
    assert (one.algbw_gbps_min, one.algbw_gbps_median, one.algbw_gbps_max) == pytest.approx(
        (50.0, 100.0, 100.0)
    )
    assert (latency.time_min_ns, latency.time_median_ns, latency.time_max_ns) == (10e3, 10e3, 12e3)
    assert latency.algbw_gbps_max is None
    (slow,) = found.slow_pairs  # of latency there are three pairs: too few to say
    assert (slow.src, slow.dst, slow.noise) == (2, 0, 0.05)
    assert slow.ratio == pytest.approx(2.0)
    # samples 2000, 2000 and 2200 us over 200 steps
    assert [r.time_mad_ns for r in found.rows if r.test == PING_PONG] == [0.0] * 3


def test_a_noisy_pair_does_not_stand_out() -> None:
    # Median 30 % above the others; MAD of the samples 3 us = 22 %: 3 * 1.4826 * 0.22 = 98 %.
    samples = (10.63, 10.0, 13.63, 16.63, 17.0)
    noisy = _changed(_one_way((2, 0), 13.63), samples_us=samples)
    quiet = [_one_way(pair, FAST_US) for pair in parse_pairs("all", 3) if pair != (2, 0)]
    assert not _told([*quiet, noisy]).slow_pairs
    (slow,) = _told([*quiet, _one_way((2, 0), 13.63)]).slow_pairs
    assert slow.ratio == pytest.approx(13.63 / FAST_US)


def test_one_slow_gpu_of_four_is_found_though_half_of_the_pairs_are_slow() -> None:
    pairs = parse_pairs("all", 4)
    found = _told([_one_way(p, SLOW_US if 3 in p else FAST_US) for p in pairs], nranks=4)
    assert {(s.src, s.dst) for s in found.slow_pairs} == {p for p in pairs if 3 in p}
    assert "All these pairs include rank 3." in render_p2p(found, "text")


def test_rounds_count_alike_and_wrong_data_has_no_time() -> None:
    times = enumerate((10.0, 12.0, 30.0), 1)
    rounds = [_changed(_one_way((0, 1), us), round=number) for number, us in times]
    message = "element 0 is 1, expected 2"
    wrong = _changed(_one_way((1, 0), 5.0), status="wrong", n_wrong=3, message=message)
    # What a round that failed had measured so far is no time either.
    rounds.append(_changed(_one_way((0, 1), 1.0), round=4, status="timeout"))
    found = _told([*rounds, wrong], points=4)
    there, back = found.rows
    assert (there.time_ns, there.samples, there.time_mad_ns) == (12e3, 15, 2e3)
    assert (back.time_ns, back.algbw_gbps, back.n_wrong) == (None, None, 3)
    assert tuple(notice.text for notice in notice_notes(found)) == (
        "one-way of 1 MiB: timeout in 1 case",
        "one-way of 1 MiB: wrong in 1 case: element 0 is 1, expected 2",
        "2 pairs and sizes were not measured.",
    )


def test_the_text_has_matrices_with_sources_down() -> None:
    text = render_p2p(_told(_three_ranks()), "text")
    cells = [line.split() for line in text.splitlines()]
    at = cells.index(["One-way,", "GB/s,", "1", "MiB"])
    assert cells[at + 2 : at + 7] == [
        ["from", "\\", "to", "0", "1", "2"],
        ["---------", "---", "---", "---"],
        ["0", "-", "100", "100"],
        ["1", "100", "-", "100"],
        ["2", "50", "100", "-"],
    ]
    at = cells.index(["Latency,", "us,", "8", "B"])
    assert cells[at + 4 : at + 7] == [["0", "-", "10", "10"], ["1", "10", "-", "12"],
                                      ["2", "10", "12", "-"]]  # fmt: skip
    assert "Pair 2:0 stands out: 2.00 times the median time" in text


def test_copies_stand_beside_the_curve() -> None:
    found = _told(_three_ranks(), copies=[CopyPoint(MIB, 125.0), CopyPoint(4 * MIB, 300.0)])
    lines = [line.split() for line in render_p2p(found, "text").splitlines()]
    assert ["1", "MiB", "10.49", "100", "125", "80.00"] in lines


def test_copies_of_the_pair_s_gpus_are_taken_from_the_store(db_path: Path) -> None:
    # device 0 to 1 measured twice: the median of 100 and 120; through the host, between other GPUs
    # or of another kind they are none
    def copy(src: int, dst: int, time_us: float, **more: object) -> CopyTime:
        gbps = MIB / time_us / 1e3
        made = CopyTime("peer_async", MIB, None, None, src, dst, time_us_median=time_us)
        made = replace(made, bandwidth_gbps=gbps, device="NVIDIA H200", access="peer")
        return replace(made, **more)  # type: ignore[arg-type]

    copies = [
        copy(0, 1, 10.48576), copy(0, 1, 8.738133), copy(1, 0, 1.0), copy(0, 1, 1.0, access="none"),
        copy(0, 1, 1.0, direction="both"), copy(0, 1, 1.0, kind="peer_sync"),
        copy(0, 1, 1.0, device="NVIDIA H100"), copy(0, 1, 1.0, status="failed"),
    ]  # fmt: skip
    with closing(open_store(db_path)) as connection, connection:
        run = run_id(connection, "main")
        source = insert_source(
            connection, run, SourceRow("copies.csv", "0" * 64, "copies", "memcpy_csv")
        )
        insert_copies(connection, run, source, copies, "memcpy")

    def beside(**values: object) -> tuple[CopyPoint, ...]:
        gpu = {"device": "NVIDIA H200", "backend": "cuda", "nnodes": 1, **values}
        results = [_changed(_one_way((0, 1), FAST_US), **gpu)]
        return copies_beside(P2pRun(2, ((0, 1),), ("p2p",), tuple(results), 1), db_path)

    (point,) = beside()
    assert point.size_bytes == MIB
    assert point.algbw_gbps == pytest.approx(110.0)
    assert beside(nnodes=2) == beside(backend="host") == beside(device="other") == ()


def test_the_other_forms() -> None:
    found = _told(_three_ranks())
    assert "| from \\\\ to | 0 | 1 | 2 |" in render_p2p(found, "md")
    table = list(csv.DictReader(io.StringIO(render_p2p(found, "csv"))))
    assert [(r["test"], r["src"], r["dst"], float(r["time_us"])) for r in table][-1] == (
        PING_PONG, "1", "2", 12.0
    )  # fmt: skip
    with pytest.raises(UsageError, match="format 'xml'"):
        render_p2p(found, "xml")


def test_equal_plots_are_equal_and_nothing_is_no_plot(tmp_path: Path) -> None:
    found = _told(_three_ranks(), copies=[CopyPoint(MIB, 125.0)])
    for name in ("a.svg", "b.svg"):
        write_plot(p2p_extras(found).figures(), tmp_path / name)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    assert p2p_extras(_told([])).figures() == ()
