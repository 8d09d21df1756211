"""The file of `--plot`: the page's figures one below the other, equal from run to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import collscope
from matplotlib.colors import to_hex
from store_builder import StoreBuilder

from collscope.errors import InputError
from collscope.reports.calls.page import sizes_figure
from collscope.reports.efficiency.page import bars_figure, classes_figure, curve_figures
from collscope.reports.rendering.drawing import COLOURS, PARTS, Drawing, Sheet
from collscope.reports.rendering.page import Figure
from collscope.reports.rendering.plot import write_plot
from collscope.reports.report.answer import Report

MIB = 1024**2


def job() -> StoreBuilder:
    """Two operations of several sizes on 8 ranks, measured with two labels, one class timed."""
    store = StoreBuilder()
    log = store.source()
    comm = store.comm([store.process(log, pid=pid) for pid in range(8)])
    replay = store.source("r.csv", kind="csv", dialect="replay_csv")
    for op, factor in (("AllReduce", 1.75), ("AllGather", 0.875)):
        for power in (0, 4, 10, 14, 18, 22, 26, 29):
            shape = {"op": op, "size_bytes": 2**power, "count": 2**power, "nranks": 8}
            kind = store.collective(**shape)
            calls = store.calls(comm, kind, 3 if power > 4 else 40, ranks_seen=8)
            for label, rate in (("default", 291.0), ("tuned", 320.0)):
                alone = 35 + 2**power * factor / (rate * 1e3)
                store.measured(replay, [alone, alone * 1.02, alone * 0.99], label=label, **shape)
            if power in (22, 29):
                transfer = round(1200 * (35 + 2**power * factor / 290e3))
                for rank in range(8):
                    store.kernel(
                        calls[0], log, transfer_ns=transfer, wait_ns=round(transfer * rank / 20)
                    )
    return store


@pytest.fixture(scope="module")
def report() -> Report:
    return job().report(top=None, system="mi300x")


def figures(report: Report) -> Sequence[Figure]:
    found = (
        classes_figure(report), bars_figure(report), *curve_figures(report), sizes_figure(report)
    )  # fmt: skip
    return [figure for figure in found if figure is not None]


def drawn(figure: Figure | None) -> Drawing:
    assert figure is not None
    return figure.make(Sheet(9.0))


@pytest.mark.parametrize(
    ("ending", "start"),
    [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")],
)
def test_one_file_in_the_form_of_its_ending_and_equal_the_next_time(
    report: Report, tmp_path: Path, ending: str, start: bytes
) -> None:
    one, other = tmp_path / f"one.{ending}", tmp_path / f"other.{ending}"
    write_plot(figures(report), one)
    write_plot(figures(report), other)
    assert one.read_bytes().startswith(start)
    assert one.read_bytes() == other.read_bytes()
    assert b"Date>" not in one.read_bytes()
    assert sorted(tmp_path.iterdir()) == [one, other]


def test_the_file_has_every_title_and_mark(report: Report, tmp_path: Path) -> None:
    write_plot(figures(report), tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    for figure in figures(report):
        # Letters are paths; the text stands beside them as a comment.
        assert f"<!-- {figure.title} -->" in text
        assert [mark for mark in figure.marks if f'id="{mark}"' not in text] == []
    for name in ("default, 8 ranks", "mi300x reachable, 8 ranks"):
        assert f"<!-- {name}" in text
    assert "click" not in text  # on paper there is none


def test_curves_have_their_roof(report: Report) -> None:
    figure, _ = curve_figures(report)
    (axis,) = drawn(figure).axes
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    lines = {str(line.get_label()): line.get_ydata() for line in axis.get_lines()}
    assert max(lines["mi300x reachable, 8 ranks"]) == pytest.approx(336, rel=0.02)
    # 512 MiB: 35 us + S x 1.75 / 291 GB/s, of three samples the median
    time_us = 35 + 512 * MIB * 1.75 / 291e3
    assert next(y for n, y in lines.items() if n.startswith("default, "))[-1] == pytest.approx(
        512 * MIB * 1.75 / (time_us * 1e3)
    )


def test_bars_of_the_share_add_up_to_the_whole(report: Report) -> None:
    widths = sum(bar.get_width() for bar in drawn(bars_figure(report)).axes[0].patches)
    assert widths == pytest.approx(100)


def test_histogram_holds_every_call(report: Report) -> None:
    calls, data = drawn(sizes_figure(report)).axes
    assert sum(bar.get_height() for bar in calls.patches) == report.header.calls
    assert sum(bar.get_height() for bar in data.patches) == pytest.approx(
        report.header.total_bytes / 2**20
    )


def test_the_command_says_that_nothing_was_drawn(samples: Path, tmp_path: Path) -> None:
    db, plot = tmp_path / "t.db", tmp_path / "x.png"
    profile = samples / "profiles" / "guide-top.txt"
    assert collscope("ingest", "profile", profile, "--db", db).code == 0
    outcome = collscope("report", "--db", db, "--plot", plot)
    assert outcome.code == 0
    assert "plot: nothing to draw" in outcome.err
    assert collscope("report", "--db", db, "--plot", tmp_path / "plots").code == 2


def test_a_file_that_cannot_be_written_is_named(report: Report, tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    with pytest.raises(InputError, match="--plot"):
        write_plot(figures(report), tmp_path / "x.png")


def test_only_plots_import_matplotlib() -> None:
    code = "import sys, collscope.reports; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_operation_has_one_colour_whatever_a_drawing_lacks() -> None:
    """AllGather has no time, so that the picture of classes lacks it; that of sizes has it."""
    store = StoreBuilder()
    _, comm = store.group()
    for op in ("AllGather", "ReduceScatter"):
        store.calls(comm, store.collective(op=op), 3)
    replay = store.source("r.csv", kind="csv", dialect="replay_csv")
    store.measured(replay, [10.0, 11.0], op="ReduceScatter")
    report = store.report()
    (axis,) = drawn(classes_figure(report)).axes
    key = next(line for line in axis.get_lines() if line.get_label() == "ReduceScatter")
    bars = drawn(sizes_figure(report)).axes[0].containers
    assert [bar.get_label() for bar in bars] == ["AllGather", "ReduceScatter"]
    assert to_hex(key.get_color()) == to_hex(bars[1].patches[0].get_facecolor())
    assert to_hex(bars[0].patches[0].get_facecolor()) != to_hex(key.get_color())


def test_what_is_no_operation_has_no_operations_colour() -> None:
    assert not {to_hex(colour) for colour, hatch in PARTS.values() if not hatch} & {
        to_hex(colour) for colour in COLOURS
    }
