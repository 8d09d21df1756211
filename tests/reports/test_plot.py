"""The plot of a report: each part of it has units, and is drawn only where it has data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from collscope.reports.rendering.figure import COLOURS
from collscope.reports.report.plot import (
    Drawing,
    busbw_plot,
    classes_plot,
    draw_figure,
    recoverable_plot,
    share_plot,
    sizes_plot,
    write_plot,
)
from command import collscope
from matplotlib.colors import to_hex
from matplotlib.figure import SubFigure
from store_builder import StoreBuilder

from collscope.errors import InputError
from collscope.reports.rendering.drawing import PARTS
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


def alone(drawing: Drawing | None) -> SubFigure:
    """A part of the picture as the only one."""
    assert drawing is not None
    (part,) = draw_figure([drawing]).subfigs
    return part


@pytest.mark.parametrize(
    ("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_one_file_in_the_form_of_its_ending(
    report: Report, tmp_path: Path, ending: str, start: bytes
) -> None:
    path = tmp_path / f"x.{ending}"
    assert write_plot(report, path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_every_drawing_is_in_the_file(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert write_plot(report, path)
    text = path.read_text()
    for title in (
        "Classes of run main: area by share of collective time",
        "Bus bandwidth of run main",
        "Collective time by class",
        "Message sizes",
        "Time above the roof: seconds over all calls and devices",
    ):
        # Letters are paths; the text stands beside them as a comment.
        assert f"<!-- {title}" in text


def test_equal_reports_give_equal_svg(report: Report, tmp_path: Path) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    assert write_plot(report, one)
    assert write_plot(report, other)
    assert one.read_bytes() == other.read_bytes()


def test_bandwidth_has_a_panel_per_operation_with_its_roof(report: Report) -> None:
    figure = alone(busbw_plot(report))
    assert [axis.get_title() for axis in figure.axes] == ["AllReduce", "AllGather"]
    for axis in figure.axes:
        assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
        assert axis.get_ylabel() == "bus bandwidth (GB/s)"
        names = [text.get_text() for text in axis.get_legend().get_texts()]
        assert names == ["default", "tuned", "roof: mi300x reachable"]
        roof = axis.get_lines()[-1]
        assert max(roof.get_ydata()) == pytest.approx(336, rel=0.02)
    # 512 MiB: 35 us + S x 1.75 / 291 GB/s, of three samples the median
    time_us = 35 + 512 * MIB * 1.75 / 291e3
    assert figure.axes[0].get_lines()[0].get_ydata()[-1] == pytest.approx(
        512 * MIB * 1.75 / (time_us * 1e3)
    )


def _measured(labels: tuple[str, ...], powers: tuple[int, ...], asked: str | None) -> Report:
    """One operation of these sizes at 10 GB/s, by label."""
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv", dialect="replay_csv")
    for label in labels:
        for power in powers:
            shape = {"op": "AllReduce", "size_bytes": 2**power, "count": 2**power, "nranks": 8}
            store.measured(source, [2**power * 1.75 / 10e3], label=label, **shape)
    return store.report(system="mi300x", label=asked)


def test_a_named_label_is_drawn_alone() -> None:
    figure = alone(busbw_plot(_measured(("one", "two"), (10, 20), "one")))
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["one", "roof: mi300x reachable"]


def test_axes_hold_every_point_and_roof() -> None:
    # eight powers of ten in size, and two sizes side by side
    for powers in ((2, 29), (20, 21)):
        figure = alone(busbw_plot(_measured(("one",), powers, None)))
        axis = figure.axes[0]
        (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
        for line in axis.get_lines():
            assert left < min(line.get_xdata()) <= max(line.get_xdata()) < right
            assert bottom < min(line.get_ydata()) <= max(line.get_ydata()) < top
            assert len(line.get_xdata()) > 1 or line.get_marker() not in ("", "None")


def test_a_size_alone_is_no_curve() -> None:
    assert busbw_plot(_measured(("one",), (20,), None)) is None


def test_long_labels_are_letters_with_a_caption() -> None:
    long = "RCCL Test Data - 2 Nodes With TCP/IP for Inter Node Communications"
    figure = alone(busbw_plot(_measured(("short", long), (10, 20), None)))
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names[:2] == ["A", "B"]
    assert figure.get_supxlabel() == f"A: short\nB: {long}"


def test_many_operations_stand_in_three_columns() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv", dialect="replay_csv")
    ops = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll", "Gather")
    for op in ops:
        for size in (1 << 20, 1 << 21):
            store.measured(source, [10.0, 20.0], op=op, redop=None, size_bytes=size)
    figure = alone(busbw_plot(store.report()))
    drawing = busbw_plot(store.report())
    assert drawing is not None
    assert drawing.width > drawing.height
    assert [axis.get_title() for axis in figure.axes if axis.get_visible()] == list(ops)


def test_bars_stand_at_their_sizes_and_the_legend_beside_them(report: Report) -> None:
    figure = alone(sizes_plot(report))
    top = figure.axes[0]
    for bar in top.patches:
        middle = bar.get_x() + bar.get_width() / 2
        assert abs(middle - round(middle)) <= 0.4
        # two operations share each tick: one ends where the other begins
        edges = (bar.get_x(), bar.get_x() + bar.get_width())
        assert min(abs(edge - round(edge)) for edge in edges) == pytest.approx(0, abs=1e-9)
    figure.figure.canvas.draw()
    assert top.get_legend().get_window_extent().x0 >= top.get_window_extent().x1


def test_bars_of_the_share_add_up_to_the_whole(report: Report) -> None:
    figure = alone(share_plot(report))
    widths = sum(bar.get_width() for bar in figure.axes[0].patches)
    assert widths == pytest.approx(100)
    assert "%" in figure.axes[0].get_xlabel()


def test_histogram_holds_every_call(report: Report) -> None:
    figure = alone(sizes_plot(report))
    calls, data = figure.axes
    assert sum(bar.get_height() for bar in calls.patches) == report.header.calls
    assert sum(bar.get_height() for bar in data.patches) == pytest.approx(
        report.header.total_bytes / 1e9
    )


def test_heat_map_holds_every_recoverable_second(report: Report) -> None:
    figure = alone(recoverable_plot(report))
    axis = figure.axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "AllGather x8",
        "AllReduce x8",
    ]
    cells = axis.images[0].get_array()
    assert cells is not None
    every = sum(row.recoverable_s or 0 for row in report.judgement.classes)
    assert float(cells.sum()) == pytest.approx(every)


def test_nothing_is_drawn_without_data(tmp_path: Path) -> None:
    assert not write_plot(StoreBuilder().report(), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_that_nothing_was_drawn(samples: Path, tmp_path: Path) -> None:
    db, plot = tmp_path / "t.db", tmp_path / "x.png"
    profile = samples / "profiles" / "guide-top.txt"
    assert collscope("ingest", "profile", profile, "--db", db).code == 0
    outcome = collscope("report", "--db", db, "--plot", plot)
    assert outcome.code == 0
    assert "plot: nothing to draw" in outcome.err
    assert collscope("report", "--db", db, "--plot", tmp_path / "plots").code == 2


def test_host_memory_is_not_drawn_as_time_to_win() -> None:
    store = StoreBuilder()
    _, comm = store.group()
    store.calls(comm, store.collective(), 3)
    store.measured(store.source("r.csv", kind="csv"), [9000.0], backend="host")
    figure = alone(share_plot(store.report(system="h100")))
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["not judged"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.png").mkdir()
    with pytest.raises(InputError, match="--plot"):
        write_plot(job().report(), tmp_path / "x.png")


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
    (key, *_) = alone(classes_plot(report)).axes[0].get_legend().legend_handles
    bars = alone(sizes_plot(report)).axes[0].containers
    assert [bar.get_label() for bar in bars] == ["AllGather", "ReduceScatter"]
    assert to_hex(key.get_color()) == to_hex(bars[1].patches[0].get_facecolor())
    assert to_hex(bars[0].patches[0].get_facecolor()) != to_hex(key.get_color())


def test_the_legend_of_classes_hides_no_mark(report: Report) -> None:
    figure = alone(classes_plot(report))
    figure.figure.canvas.draw()
    (axis,) = figure.axes
    assert axis.get_legend().get_window_extent().x0 >= axis.get_window_extent().x1
    # What is no operation has no operation's colour.
    assert not {to_hex(colour) for colour, hatch in PARTS.values() if not hatch} & {
        to_hex(colour) for colour in COLOURS
    }
