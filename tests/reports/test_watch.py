"""`collscope watch` beside ranks that record with the built recorder, by what they were told."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT
from recorder_player import GROUP, player

from collscope.reports.watch.answer import Watch, Watched
from collscope.reports.watch.follow import Followed
from collscope.reports.watch.text import render_watch
from collscope.roofline.chosen import make_roofs

SAMPLES = ROOT / "samples/recorders"


class Seen:
    """A folder and what was seen of it, at moments that the test chooses."""

    def __init__(self, folder: Path, system: str | None = None) -> None:
        self._followed = Followed(folder)
        self._watch = Watch(make_roofs(system, ()))

    def at(self, now_s: float) -> Watched:
        for process, recording, fresh in self._followed.poll():
            self._watch.take(process, recording.process(), fresh, now_s)
        return self._watch.moment(now_s)


def test_files_that_grow_are_read_on_and_late_ranks_named(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "h200")
    assert seen.at(0.0).processes == 0
    with player(tmp_path, 0) as first, player(tmp_path, 1) as second:
        first.ask(calls=5, took_ns=60_000)
        one = seen.at(1.0)
        # Rank 1 has not recorded: what rank 0 took holds its waiting.
        assert [(c.calls, c.timed, c.gpu_ns, c.no_bandwidth) for c in one.classes] == [
            (5, 5, 60_000, "ranks")
        ]
        second.ask(calls=5, took_ns=20_000)
        first.ask(calls=2, took_ns=60_000)
        second.ask(calls=2, took_ns=20_000)
        two = seen.at(3.0)
        first.ask(calls=1, took_ns=20_000)  # rank 0 stops once: 380 us beside rank 1's 280
        second.ask(calls=1, took_ns=400_000)
        three = seen.at(4.0)
    (row,) = two.classes
    assert (row.op, row.size_bytes, row.group, row.nranks) == ("AllReduce", 1 << 20, GROUP, 2)
    assert (row.calls, row.timed) == (7, 14)
    # 5 calls at 1 s, 9 more in 2 s. The transfer is rank 1's 20 us; 2 (n - 1) / n is 1.
    assert (two.calls, two.per_s) == (14, 4.5)
    assert row.busbw_gbps == pytest.approx((1 << 20) / 20e-6 / 1e9)
    assert row.ceiling_gbps is not None
    (late,) = two.late
    assert (late.world_rank, late.last, late.of, late.lateness_ns) == (1, 7, 7, 40_000)
    assert "Rank 1 is late: last in 7 of 7 calls" in render_watch(two, 120)
    assert [(late.world_rank, late.last, late.of) for late in three.late] == [(1, 7, 8)]


def test_rotated_files_are_counted_once_though_they_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLSCOPE_RECORDER_MAX_MB", "1")
    seen = Seen(tmp_path)
    with player(tmp_path, level="calls") as rank:
        for k in range(8):
            rank.ask(calls=1000)
            found = seen.at(float(k))
        names = [path.name for path in tmp_path.iterdir()]
    assert not [name for name in names if name.endswith(".0.collrec")]
    assert (found.classes[0].calls, found.lost, found.classes[0].untimed) == (8000, 0, "level")
    late = Seen(tmp_path).at(0.0)  # one who comes later
    assert 0 < late.classes[0].calls < 8000


def test_when_nothing_moves_the_missing_ranks_are_named(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    with (
        player(tmp_path, 0, 3) as first,
        player(tmp_path, 1, 3) as second,
        player(tmp_path, 2, 3) as third,
    ):
        for rank in (first, second, third):
            rank.ask(calls=4)
        first.ask(calls=1, op="AllGather")
        second.ask(calls=1, op="AllGather")
        assert seen.at(10.0).still_s is None
        still = seen.at(16.0)
        assert still.still_s == 6.0
        (missing,) = still.missing
        assert (missing.op, missing.number, missing.ranks, missing.made) == (
            "AllGather",
            1,
            (2,),
            2,
        )
        assert still.verdict is not None
        assert [who.rank for who in still.verdict.who] == [2]
        assert still.verdict.who[0].pid == third.process.pid
        text = render_watch(still, 80)
        assert "Missing in AllGather 1 of feedface, which 2 ranks made: rank 2." in text
        assert max(map(len, text.splitlines())) <= 80
        third.ask(calls=1, op="AllGather")
        assert seen.at(17.0).still_s is None
        for rank in (first, second, third):
            rank.end()
    assert (seen.at(60.0).ended, seen.at(60.0).still_s) == (3, None)


def test_a_rank_that_never_called_is_missing(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    with (
        player(tmp_path, 0, 3) as first,
        player(tmp_path, 1, 3) as second,
        player(tmp_path, 2, 3) as third,
    ):
        first.ask(calls=1)
        second.ask(calls=1)
        third.ask(calls=0)
        seen.at(0.0)
        still = seen.at(9.0)
    (missing,) = still.missing
    assert (missing.op, missing.number, missing.ranks) == ("AllReduce", 1, (2,))
    assert still.verdict is not None
    assert [who.rank for who in still.verdict.who] == [2]


def test_without_the_files_of_all_ranks_nobody_is_named(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    with player(tmp_path, 0) as rank:
        rank.ask(calls=4)
        seen.at(0.0)
        still = seen.at(9.0)
    assert (still.still_s, still.missing, still.verdict) == (9.0, (), None)
    assert "Missing ranks are not known" in render_watch(still, 200)


def test_a_newer_format_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    data = bytearray(next(SAMPLES.glob("*.collrec")).read_bytes())
    data[7] = 2
    (tmp_path / "node.1.2.0.collrec").write_bytes(data)
    assert "1 process not read" in render_watch(Seen(tmp_path).at(0.0), 200)


def test_it_fits_80_columns_and_says_how_much_it_hides() -> None:
    text = render_watch(Seen(SAMPLES, "h200").at(0.0), 80, most_rows=2)
    assert max(map(len, text.splitlines())) <= 80
    assert "(2 classes not shown)" in text


def test_once_and_without_a_terminal() -> None:
    done = collscope("watch", SAMPLES, "--once")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"AllReduce +4 MiB +feedface +2 +4 +8 +100 us", done.out)
    assert collscope("watch", SAMPLES / "nothing", "--once").code == 3


def test_each_look_is_printed_until_sigterm() -> None:
    words = [sys.executable, "-m", "collscope", "watch", str(SAMPLES), "--every", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        heads = 0
        while heads < 2:
            heads += process.stdout.readline().startswith("2 processes")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0


def test_a_terminal_is_refreshed_until_ctrl_c() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "collscope", "watch", str(SAMPLES), "--every", "0.1"]
    named = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env=named) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"2 processes") < 2:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # a terminal whose programs have ended
            pass
    assert process.returncode == 0
    assert b"\x1b[?25h" in shown.rpartition(b"2 processes")[2]  # the cursor is there again
    os.close(ours)
