"""Reports as one HTML file, opened from disk in a real browser with the network off."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import ANY

import msgspec
import numpy as np
import pytest
from command import collscope
from inputs import ROOT
from msgspec.structs import replace

from collscope.reports.efficiency.page import classes_figure, drawn_classes
from collscope.reports.p2p.answer import P2p, PairRow
from collscope.reports.p2p.page import p2p_extras
from collscope.reports.rendering.layout import NUMBER, TEXT, Item, Section, table
from collscope.reports.rendering.page import Extras, Fact, Strip, to_html
from collscope.reports.report.page import report_extras
from collscope.reports.tune.text import render_tuning
from collscope.reports.waiting import strip as timeline
from collscope.reports.waiting.strip import make_strip
from collscope.tuning.records import Tuning

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSER = next((p for p in map(shutil.which, ("chromium", "google-chrome", "chrome")) if p), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium: apt-get install chromium to run the tests of pages"
)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
HOSTILE = (
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "{{ 7 * 7 }} {% raw %}",
    "'; DROP TABLE runs; --",
    "\x1b]0;title\x07\x1b[2J",
    "abc\u202edcba\u2066",
    "$\\bad{x$",
    "x" * 100_000,
)


_FIGURE_ROWS = """title => {
    const one = Array.from(document.querySelectorAll('figure')).find(
        f => f.querySelector('h2, h3').textContent === title);
    return Array.from(one.querySelectorAll('tbody tr'), r =>
        Array.from(r.cells, c => c.textContent));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield started
        started.close()


class Opened:
    """A page in the browser, with what it wrote to the console."""

    def __init__(self, browser: Browser, path: Path, **options: object) -> None:
        self.context = browser.new_context(offline=True, **options)  # type: ignore[arg-type]
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda m: self.problems.append(m.text))
        self.page.on("pageerror", lambda e: self.problems.append(str(e)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> dict[str, Path]:
    """Pages of the samples: of logs with a replay, and of traces; and their JSON."""
    folder = tmp_path_factory.mktemp("pages")
    db = folder / "t.db"
    for words in (
        ("log", samples / "nccl" / "mixed"),
        ("csv", samples / "replay" / "h200x4-mixed.csv", "--label", "h200x4"),
        ("csv", samples / "replay" / "h200x4-sweep.csv", "--label", "sweep", "--run", "sweep"),
        ("trace", samples / "traces" / "default", "--run", "traced"),
    ):
        assert collscope("ingest", *words, "--db", db).code == 0
    found = {}
    for run in ("main", "traced", "sweep"):
        for form in ("html", "json"):
            found[f"{run}.{form}"] = folder / f"{run}.{form}"
            done = collscope(
                "report", "--db", db, "--run", run, "--system", "h200", "--format", form, "-o",
                found[f"{run}.{form}"],
            )  # fmt: skip
            assert done.code == 0
    return found


# --- without a browser -----------------------------------------------------------------------


def test_a_page_is_one_file_that_asks_nothing_of_the_network(pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        if name.endswith("html"):
            text = path.read_text(encoding="utf-8")
            assert "default-src 'none'" in text
            assert not re.search(r'(?:src|href)="(?!#|data:)', text)
            assert not re.search(r"@import|url\((?!data:|#)", text)
            assert len(text) < 3_000_000


def test_nothing_of_the_input_becomes_markup() -> None:
    row = table([("name", TEXT), ("n", NUMBER)], [(text, 1) for text in HOSTILE])
    sections = [
        Section("", tuple(HOSTILE)),
        *(Section(text[:200], (Item(text, (text,)), row)) for text in HOSTILE),
    ]
    text = to_html(HOSTILE[0], sections, Extras(tuple(Fact(t, t, t) for t in HOSTILE)))
    assert text.count("<script") == 2  # the data and the page's own
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{{ 7 * 7 }}" in text


def test_every_command_with_a_format_has_a_page(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    for label in ("old", "new"):
        collscope("ingest", "csv", samples / "replay" / "h200x4-mixed.csv", "--label", label,
                  "--run", label, "--db", db)  # fmt: skip
    for words in (
        ("compare", "old", "new", "--db", db),
        ("check", "--baseline", "old", "--current", "new", "--db", db),
        ("roofline", "--system", "h200"),
        ("sql", "SELECT 1 AS a", "--db", db),
    ):
        out = collscope(*words, "--format", "html").out
        assert out.startswith("<!doctype html>"), words
        assert "<table>" in out


@pytest.fixture(scope="module")
def predicted(
    tmp_path_factory: pytest.TempPathFactory, samples: Path
) -> tuple[Path, dict[str, Any]]:
    """The page of a prediction, and its JSON."""
    folder = tmp_path_factory.mktemp("predicted")
    db, page = folder / "t.db", folder / "predict.html"
    assert collscope("ingest", "trace", samples / "traces" / "ringll", "--db", db).code == 0
    words = ("predict", "--system", "h200", "--db", db, "--format")
    assert collscope(*words, "html", "-o", page).code == 0
    return page, json.loads(collscope(*words, "json").out)


# --- in the browser --------------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("run", ["main", "traced", "sweep"])
def test_pages_open_sort_filter_and_switch(
    pages: dict[str, Path], browser: Browser, run: str
) -> None:
    opened = Opened(browser, pages[f"{run}.html"])
    page = opened.page
    document = json.loads(pages[f"{run}.json"].read_text(encoding="utf-8"))
    # the numbers of the page are those of the JSON
    rows = page.eval_on_selector_all(
        "#efficiency-and-gain > .table tbody tr",
        "rows => rows.map(r => Array.from(r.cells, c => c.textContent))",
    )
    judged = {str(c["class_id"]): c for c in document["judgement"]["classes"]}
    shown = [r for r in rows if r[0] in judged and len(r) > 8]
    assert shown
    for cells in shown:
        busbw = judged[cells[0]]["busbw_gbps"]
        assert busbw is None or f"{busbw:.4g}" in cells or f"{busbw:.0f}" in cells
    # sort: twice the same head gives the rows in the opposite order
    head = page.locator("#efficiency-and-gain > .table thead button.sort").first
    head.click()
    first = page.locator("#efficiency-and-gain > .table tbody tr td").first.inner_text()
    head.click()
    assert page.locator("#efficiency-and-gain > .table tbody tr td").first.inner_text() != first
    # filter
    box = page.locator("#efficiency-and-gain > .table .filter").first
    box.fill("no such row")
    assert (
        page.locator("#efficiency-and-gain > .table .count").first.inner_text().startswith("0 of")
    )
    box.fill("")
    # dark and back
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")
    page.click("#theme")
    page.emulate_media(media="print")  # paper is white, dark or not
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.locator("nav").is_hidden()
    assert opened.problems == []
    opened.close()


@needs_browser
def test_a_mark_tells_and_filters(pages: dict[str, Path], browser: Browser) -> None:
    opened = Opened(browser, pages["main.html"])
    page = opened.page
    mark = page.locator(".wide [data-mark=class-10] :is(path, use)").first
    mark.dispatch_event("pointermove", {"clientX": 5, "clientY": 5, "bubbles": True})
    assert "SendRecv of 8 MiB on 4 ranks" in page.locator("#tip").inner_text()
    page.locator(".wide [data-mark=class-10]").dispatch_event("click")
    for title in ("#efficiency-and-gain", "#classes"):
        count = page.locator(f"{title} > .table .count").first.inner_text()
        assert count == "1 of 14 rows"
    assert page.locator("#chip").inner_text().startswith("Tables show class 10 only.")
    page.click("#chip button")
    assert page.locator("#chip").is_hidden()
    assert page.locator("#classes > .table .count").first.inner_text() == "14 of 14 rows"
    # nothing that lies above a mark takes its clicks
    last = page.locator(".wide [data-mark^=class-]").last
    last.click()
    assert page.locator("#chip").is_visible()
    last.click()
    assert page.locator("#chip").is_hidden()
    # the keyboard reads the marks of a drawing, and filters by them
    page.locator(".wide [data-mark=class-10]").evaluate("mark => mark.closest('.drawing').focus()")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text().startswith("class ")
    page.keyboard.press("Enter")
    assert page.locator("#chip").is_visible()
    assert opened.problems == []
    opened.close()


@needs_browser
def test_series_are_switched_off(pages: dict[str, Path], browser: Browser) -> None:
    opened = Opened(browser, pages["sweep.html"])
    box = opened.page.locator(".keys input").first
    mark = opened.page.locator(f"[data-mark='{box.get_attribute('data-switch')}']")
    assert mark.count() == 2  # on wide and on narrow screens
    assert mark.first.is_visible()
    assert not mark.last.is_visible()
    box.uncheck()
    assert not mark.first.is_visible()
    box.check()
    assert mark.first.is_visible()
    opened.close()


@needs_browser
def test_the_timeline_zooms_moves_and_tells_its_window(
    pages: dict[str, Path], browser: Browser
) -> None:
    opened = Opened(browser, pages["traced.html"])
    page = opened.page
    page.wait_for_function("document.querySelector('canvas').dataset.frame !== undefined")
    strip = page.locator("figure.strip")
    before = strip.locator(".window").inner_text()
    kernels = "rows => rows.map(r => Number(r.cells[1].textContent)).reduce((a, b) => a + b)"
    whole = page.eval_on_selector_all("figure.strip tbody tr", kernels)
    assert whole == 72  # 18 collectives of 4 ranks
    strip.locator("[data-do=in]").click()
    strip.locator("[data-do=in]").click()
    page.wait_for_function(
        "text => document.querySelector('figure.strip .window').textContent !== text", arg=before
    )
    page.wait_for_function(
        "() => Array.from(document.querySelectorAll('figure.strip tbody tr'), r =>"
        " Number(r.cells[1].textContent)).reduce((a, b) => a + b) < 72"
    )
    strip.locator("canvas").press("Home")
    page.wait_for_function(
        "text => document.querySelector('figure.strip .window').textContent === text", arg=before
    )
    assert opened.problems == []
    opened.close()


@needs_browser
def test_hostile_text_is_inert(browser: Browser, tmp_path: Path) -> None:
    row = table([("name", TEXT)], [(text,) for text in HOSTILE])
    strip = Strip(HOSTILE[0], HOSTILE[1], {
        "unit": 1, "span": 1, "ranks": [HOSTILE[2]], "classes": [HOSTILE[3]], "offsets": [0, 0],
        "first": [0], **dict.fromkeys(("step", "length", "wait", "class", "call"), EMPTY),
    }, row)  # fmt: skip
    sections = [Section("", tuple(HOSTILE)), Section("Rows", (Item(HOSTILE[1], HOSTILE), row))]
    path = tmp_path / "hostile.html"
    facts = tuple(Fact(t, t, t, "Rows") for t in HOSTILE)
    path.write_text(to_html(HOSTILE[2], sections, Extras(facts, {"Rows": (strip,)})), "utf-8")
    opened = Opened(browser, path)
    assert opened.page.evaluate("window.hit") is None
    assert opened.page.title() == HOSTILE[2]
    assert HOSTILE[0] in opened.page.locator("section.answer").inner_text()
    assert opened.problems == []
    opened.close()


EMPTY = "H4sIAAAAAAAC/wMAAAAAAAAAAAA="  # gzip of nothing


@pytest.fixture(scope="module")
def all_pages(
    pages: dict[str, Path], predicted: tuple[Path, Any], samples: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:  # fmt: skip
    """A page of each kind but that of pairs."""
    folder = tmp_path_factory.mktemp("all")
    db = folder / "t.db"
    for label in ("old", "new"):
        collscope("ingest", "csv", samples / "replay" / "h200x4-mixed.csv", "--label", label,
                  "--run", label, "--db", db)  # fmt: skip
    found = {kind: folder / f"{kind}.html" for kind in ("compare", "check", "roofline")}
    for kind, words in (
        ("compare", ("old", "new", "--db", db)),
        ("check", ("--baseline", "old", "--current", "new", "--db", db)),
        ("roofline", ("--system", "h200")),
    ):
        assert collscope(kind, *words, "--format", "html", "-o", found[kind]).code == 0
    found["tune"] = folder / "tune.html"
    found["tune"].write_text(render_tuning(_tuning("new"), "html", folder), "utf-8")
    reports = {kind: pages[f"{kind}.html"] for kind in ("main", "traced")}
    return found | reports | {"predict": predicted[0]}


@needs_browser
@pytest.mark.parametrize(
    "kind", ["main", "traced", "compare", "check", "roofline", "tune", "predict"]
)
def test_an_accessibility_check_finds_nothing_but_minor_things(
    all_pages: dict[str, Path], browser: Browser, kind: str
) -> None:
    from axe_core_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        # the check is a script of its own, which the page's policy would refuse
        opened = Opened(browser, all_pages[kind], color_scheme=scheme, bypass_csp=True)
        found = Axe().run(opened.page)
        worse = [
            (v["id"], v["nodes"][0]["html"][:200])
            for v in found["violations"] if v["impact"] != "minor"
        ]  # fmt: skip
        assert worse == []
        opened.close()


@needs_browser
def test_a_narrow_screen_scrolls_nowhere_but_inside(
    pages: dict[str, Path], browser: Browser
) -> None:
    for run in ("main", "traced", "sweep"):
        opened = Opened(browser, pages[f"{run}.html"], viewport={"width": 390, "height": 800})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
        # drawings have a form of their own, whole and with letters that can be read
        cut = "all => all.filter(d => d.scrollWidth > d.clientWidth).length"
        assert opened.page.eval_on_selector_all(".drawing", cut) == 0
        heights = opened.page.eval_on_selector_all(
            ".drawing text", """all => all.map(t => t.getBoundingClientRect())
                .map(box => Math.min(box.width, box.height) * (box.width > 0))
                .filter((least, i) => least > 0 && all[i].textContent.length > 3)""",
        )  # fmt: skip
        assert min(heights) > 11
        opened.close()


def collscope_rows(db: Path, query: str) -> list[dict[str, Any]]:
    found = json.loads(collscope("sql", query, "--db", db, "--format", "json").out)["rows"]
    return cast("list[dict[str, Any]]", found)


def test_exposed_time_is_split_into_waiting_and_classes(pages: dict[str, Path]) -> None:
    import sqlite3

    from collscope.reports.report.build import build_report

    db = pages["traced.html"].parent / "t.db"
    sums: dict[tuple[int, int | None], float] = defaultdict(float)
    for k in collscope_rows(
        db,
        "SELECT k.*, c.class_id FROM kernels k JOIN call_times c USING (run, call_id)"
        " WHERE run = 'traced'",
    ):
        # beyond the transfer only waiting can be exposed
        wait = max(0, k["exposed_ns"] - k["transfer_ns"]) if k["transfer_ns"] else 0
        sums[k["rank"], None] += wait / 1e6
        sums[k["rank"], k["class_id"]] += (k["exposed_ns"] - wait) / 1e6
    connection = sqlite3.connect(db)
    extras = report_extras(build_report(connection, "traced"), connection)
    drawing = next(d for d in extras.drawings[""] if d.title == "Time of each rank")
    titles = [column.title for column in drawing.table.columns]
    whole = {r["rank"]: r for r in collscope_rows(db, "SELECT * FROM rank_times")}
    for row in drawing.table.rows:
        cells = dict(zip(titles, map(float, row), strict=True))
        rank = int(cells.pop("rank"))
        assert cells.pop("traced ms") == pytest.approx(sum(cells.values()), rel=1e-3)
        exposed = {title: ms for title, ms in cells.items() if title.startswith("exposed")}
        assert sum(exposed.values()) == pytest.approx(whole[rank]["exposed_ns"] / 1e6, rel=1e-3)
        waits = exposed["exposed: waiting for the last rank ms"]
        assert waits == pytest.approx(sums[rank, None], rel=1e-3)
        for title, ms in exposed.items():
            if "#" in title:
                of = sums[rank, int(title.split("#")[1].split()[0])]
                assert ms == pytest.approx(of, rel=1e-3)


def test_no_rank_is_blamed_where_none_stands_out(samples: Path, tmp_path: Path) -> None:
    import sqlite3

    from collscope.reports.report.build import build_report

    db = tmp_path / "t.db"
    collscope("ingest", "trace", samples / "traces" / "ringll", "--db", db)
    connection = sqlite3.connect(db)
    facts = report_extras(build_report(connection, "main"), connection).facts
    (late,) = (f for f in facts if f.label == "Who is late")
    assert late.value == "no single rank"
    assert late.note.startswith("most often rank 2: last in 9 of 17 calls")
    assert collscope_rows(db, "SELECT SUM(straggler) AS n FROM rank_times") == [{"n": 0}]


@needs_browser
def test_one_step_of_two_ranks_marks_the_cause(tmp_path: Path, browser: Browser) -> None:
    # 24 more products of 0.172 ms on rank 1 (benchmarks/gpu/job_causes.py, more_work)
    with tarfile.open(ROOT / "benchmarks/recordings/causes/tp-more_work.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    db, page = tmp_path / "t.db", tmp_path / "t.html"
    assert collscope("ingest", "trace", "--db", db, *sorted(tmp_path.glob("light.*"))).code == 0
    assert collscope("report", "--db", db, "--format", "html", "-o", page).code == 0
    opened = Opened(browser, page)
    cards = opened.page.locator("main, body").first.inner_text()
    assert "Rank 1 has extra work (certain)" in cards
    assert "Who is late" not in cards  # the card above shows the rank and why
    zero, one = opened.page.evaluate(_FIGURE_ROWS, "One step of 2 ranks")
    assert (zero[0], one[0], float(zero[-1])) == ("0", "1", 0)
    assert float(one[-1]) == pytest.approx(24 * 0.172, rel=0.1)
    assert float(zero[4]) > float(one[4])  # rank 0 waits for rank 1
    red = opened.page.locator("svg.wide [data-mark='lane-1-cause']")
    assert red.count() >= 1
    assert opened.page.locator("svg.wide [data-mark='lane-0-cause']").count() == 0
    assert opened.problems == []
    opened.close()


@needs_browser
def test_who_waits_for_whom_adds_up(pages: dict[str, Path], browser: Browser) -> None:
    db = pages["traced.html"].parent / "t.db"
    calls = {
        row["call_id"]: row["last_rank"]
        for row in collscope_rows(db, "SELECT * FROM call_times WHERE run = 'traced'")
        if not row["warm_up"] and row["last_rank"] is not None
    }
    sums: dict[tuple[int, int], float] = defaultdict(float)
    for row in collscope_rows(db, "SELECT * FROM kernels WHERE run = 'traced'"):
        if row["call_id"] in calls and row["wait_ns"] is not None:
            sums[row["rank"], calls[row["call_id"]]] += row["wait_ns"] / 1e3
    opened = Opened(browser, pages["traced.html"])
    shown = opened.page.evaluate(_FIGURE_ROWS, "Which rank waits for which")
    assert len(shown) == 4
    lasts = sorted({last for _, last in sums})
    for rank, cells in enumerate(shown):
        assert cells == [f"rank {rank}", *(f"{sums[rank, last]:.4g}" for last in lasts)]
    # the pointer reads the cell of the first row and the last column
    heat = opened.page.locator("[data-mark=heat-map]:visible").first
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 3)
    told = f"rank 0, for {lasts[-1]}: {sums[0, lasts[-1]]:.4g} us"
    assert opened.page.locator("#tip").inner_text() == told
    opened.close()


@needs_browser
def test_a_comparison_draws_its_ratios_and_every_curve(
    browser: Browser, samples: Path, tmp_path: Path
) -> None:
    db = tmp_path / "t.db"
    for label in ("old", "new"):
        collscope("ingest", "csv", samples / "replay" / "h200x4-sweep.csv", "--label", label,
                  "--run", label, "--db", db)  # fmt: skip
    words = ("compare", "old", "new", "--db", db, "--format")
    path = tmp_path / "compare.html"
    collscope(*words, "html", "-o", path)
    document = json.loads(collscope(*words, "json").out)
    opened = Opened(browser, path)
    page = opened.page
    ratios = page.evaluate(_FIGURE_ROWS, "Speed-up by message size")
    assert len(ratios) == len(document["classes"])
    assert {row[3] for row in ratios} == {"1"}
    titles = page.eval_on_selector_all(
        "figure figcaption :is(h2, h3)", "all => all.map(h => h.textContent)"
    )
    curve = page.evaluate(_FIGURE_ROWS, titles[1])
    first = document["classes"][0]
    assert f"{first['cells'][0]['busbw_gbps']:.4g}" in {row[1] for row in curve}
    # marks of one size do not cover each other
    boxes = [
        page.locator(f".wide [data-mark=ratio-{i}]").bounding_box()
        for i, row in enumerate(ratios) if row[2] == ratios[0][2]
    ]  # fmt: skip
    assert len({box["x"] for box in boxes if box}) == len(boxes) > 1
    assert opened.problems == []
    opened.close()


def test_drawings_and_facts_are_made_of_the_report(samples: Path, tmp_path: Path) -> None:
    import sqlite3

    from collscope.reports.report.build import build_report

    db = tmp_path / "t.db"
    collscope("ingest", "trace", samples / "traces" / "default", "--db", db)
    connection = sqlite3.connect(db)
    report = build_report(connection, "main", system="h200")
    extras = report_extras(report, connection)
    facts = {f.label: f for f in extras.facts}
    share = facts["Share of the traced time in collectives"]
    (part,) = connection.execute(
        "SELECT 100.0 * SUM(collective_ns) / SUM(span_ns) FROM rank_times"
    ).fetchone()
    assert share.value == f"{part:.1f} %"
    late = facts["Who is late"]
    (row,) = collscope_rows(db, late.query + " AND straggler")
    assert late.value == f"rank {row['rank']}" == "rank 2"
    assert late.note == (
        f"last in {row['late_last']} of {row['late_of']} calls; if it arrived with the "
        "second-last rank, the other ranks would wait "
        f"{row['caused_wait_ns'] / 1e6:.3g} ms less, a small cost"
    )
    drawing = classes_figure(report)
    assert drawing is not None
    # 8 KiB has the first of its 3 calls left out, 1.4 % of the time and a hundredth of the others'
    # rates: it lies outside of the axes.
    inside = [c for c in report.judgement.classes if c.size_bytes != 8192]
    assert drawing.marks.keys() == {f"class-{c.class_id}" for c in inside}


def test_the_picture_of_classes_follows_those_with_the_time(samples: Path, tmp_path: Path) -> None:
    import sqlite3

    from collscope.reports.report.build import build_report

    db = tmp_path / "t.db"
    collscope("ingest", "trace", samples / "traces" / "default", "--db", db)
    report = build_report(sqlite3.connect(db), "main", system="h200")
    row = next(r for r in report.judgement.classes if r.busbw_gbps)
    # 97 % of the time at 8 to 64 MiB and 100 to 300 GB/s; the rest 8 times beyond and more
    told = ((8 << 20, 100.0, 0.60), (64 << 20, 300.0, 0.37), (1 << 20, 12.5, 0.01),
            (256, 0.05, 0.01), (512 << 20, 2401.0, 0.01))  # fmt: skip
    rows = tuple(
        replace(row, class_id=n, size_bytes=size, busbw_gbps=rate, time_share=share)
        for n, (size, rate, share) in enumerate(told)
    )
    inside, outside = drawn_classes(rows)
    assert [r.class_id for r in inside] == [0, 1, 2]
    assert [r.class_id for r in outside] == [3, 4]
    judgement = replace(report.judgement, classes=rows)
    drawing = classes_figure(replace(report, judgement=judgement))
    assert drawing is not None
    assert "Outside of the axes, with 2.0 % of the time: " in drawing.text
    assert f"{row.op} 256 B at 0.05 GB/s" in drawing.text
    assert len(drawing.table.rows) == 5
    # without times nothing is outside
    untimed = [replace(r, time_share=None) for r in rows]
    assert drawn_classes(untimed) == (untimed, ())


@needs_browser
def test_a_row_is_shown_as_sql(pages: dict[str, Path], browser: Browser) -> None:
    opened = Opened(browser, pages["main.html"])
    opened.page.locator("#efficiency-and-gain > .table button.sql").first.click()
    query = opened.page.locator("dialog pre").inner_text()
    assert query == "SELECT * FROM classes WHERE run = 'main' AND class_id = 9"
    assert opened.problems == []
    opened.close()


@needs_browser
def test_the_rows_shown_are_copied_as_csv(pages: dict[str, Path], browser: Browser) -> None:
    opened = Opened(browser, pages["main.html"])
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    table = opened.page.locator("#message-sizes > .table").first
    table.locator(".filter").fill("mib")  # of these the last bin has no calls, so no query
    table.locator(".copy").click()
    opened.page.wait_for_selector("#message-sizes button:text('Copied')")
    copied = opened.page.evaluate("navigator.clipboard.readText()").splitlines()
    rows = [[cell.strip() for cell in row] for row in csv.reader(copied)]
    # the column of SQL, which some of these rows have, is no data
    assert rows[0] == ["Perftools bin", "calls", "% calls", "total MiB", "calls per operation"]
    assert {len(row) for row in rows} == {5}
    shown = table.locator("tbody tr:not([hidden])")
    assert len(rows) == 1 + shown.count() < 1 + table.locator("tbody tr").count()
    assert rows[1][0] == shown.first.locator("td").first.inner_text()
    assert opened.problems == []
    opened.close()


def test_every_query_of_a_page_gives_rows_of_the_store(pages: dict[str, Path]) -> None:
    from html import unescape

    import collscope as library

    store = library.open(pages["main.html"].parent / "t.db")
    views = set()
    for run in ("main", "traced", "sweep"):
        page = pages[f"{run}.html"].read_text(encoding="utf-8")
        queries = {unescape(text) for text in re.findall(r'data-sql="([^"]*)"', page)}
        for query in queries:
            assert len(list(store.sql(query))) > 0, query
            views.add(query.split()[3])
    assert views >= {
        "calls", "call_times", "classes", "communicators", "diagnostics", "facts",
        "kernel_totals", "links", "measurements", "rank_times", "rank_waits", "settings", "sources",
    }  # fmt: skip


def test_tables_and_reports_show_themselves_in_a_notebook(samples: Path, tmp_path: Path) -> None:
    import collscope as library

    store = library.open(tmp_path / "t.db")
    store.ingest(samples / "nccl" / "mixed")
    table_shown = store.sql("SELECT '<b>' AS a, NULL AS b")._repr_html_()
    assert "<td>&lt;b&gt;</td><td>-</td>" in table_shown
    shown = store.report()._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html')
    assert "<script" not in shown


def test_record_writes_a_page_too(tmp_path: Path, samples: Path) -> None:
    log = samples / "nccl" / "mixed" / "rank0.log"
    page = tmp_path / "job.html"
    done = collscope(
        "record", "--out", tmp_path / "files", "--html", page, "--db", tmp_path / "t.db", "--",
        "sh", "-c", f'cp {log} "$(dirname "$NCCL_DEBUG_FILE")/log.host.1"',
    )  # fmt: skip
    assert done.code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def _tuning(name: str) -> Tuning:
    """Of the recording h200x4 tune/NCCL_PROTO.txt: NCCL_PROTO=LL taken back; intervals made."""
    times = {3: (732.9, 328.5, 328.8, 67108864), 4: (199.4, 107.2, 106.0, 33554432)}
    return msgspec.convert(
        {
            "outcome": "tuned", "why": "confirmed", "kind": "environment", "library": "nccl 2.28.9",
            "device": "NVIDIA H200", "nranks": 4, "seed": 1, "present": [],
            "present_told": True, "traced_blocks": None, "kept": [],
            "job": {"time_ns": 6.3688e6, "basis": "a step of 6.3688 ms (--step-ms)"},
            "classes": [
                {"class_id": i, "plan_id": i, "op": "AllReduce", "datatype": "Bfloat16",
                 "size_bytes": size, "nranks": 4, "nnodes": 1, "calls": 1, "roof_ns": None,
                 "weight_ns": now, "kept": True, "setting": "default", "present_ns": 1e3 * now,
                 "default_ns": 1e3 * default, "tuned_ns": 1e3 * tuned, "noise_floor": 0.02}
                for i, (now, default, tuned, size) in times.items()
            ],
            "settings": [], "environment": [], "unset": ["NCCL_PROTO"], "rows": [],
            "gain": {"collective": 0.498, "collective_low": 0.493, "collective_high": 0.503,
                     "step": 0.0971, "step_low": 0.0961, "step_high": 0.0981, "saved_ns": 618.3e3,
                     "rounds": 3},
            "tried": [
                {"class_id": i, "setting": setting, "rounds": 3, "time_ns": 1e3 * us,
                 "saved": 1 - us / times[i][0], "low": low, "high": high, "accepted": us < 600}
                for i, setting, us, low, high in (
                    (3, "present", 732.9, None, None), (3, "default", 328.5, 0.54, 0.56),
                    (3, name, 733.0, -0.2, 0.19), (4, "present", 199.4, None, None),
                    (4, "default", 107.2, 0.45, 0.47),
                )
            ],
            "launches": 21, "took_ns": 65e9, "estimated_ns": 70e9, "time_limit_ns": 70e9,
            "files": [], "notices": [],
        },
        Tuning,
    )  # fmt: skip


@needs_browser
def test_a_tune_shows_every_setting_and_the_step(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "tune.html"
    path.write_text(render_tuning(_tuning(HOSTILE[1]), "html", tmp_path), "utf-8")
    opened = Opened(browser, path)
    page = opened.page
    # 6.3688 ms less 9.71 %, 9.81 % and 9.61 %
    assert page.evaluate(_FIGURE_ROWS, "The job's time, present and tuned")[1] == [
        "tuned", "5.75", "5.744", "5.757",
    ]  # fmt: skip
    tried = page.evaluate(_FIGURE_ROWS, "Settings tried on each class")
    assert [row[1] for row in tried] == ["default", "present", HOSTILE[1], "default", "present"]
    assert tried[0][3:] == ["328.5", "0.448", "0.440", "0.460", "chosen"]
    assert tried[2][4:] == ["1.000", "0.810", "1.200", "-"]
    times = page.evaluate(_FIGURE_ROWS, "Time of one call of each class")
    assert times[0] == ["AllReduce 64 MiB x4", "732.9", "328.5", "328.8", "-", "default"]
    page.locator(".wide [data-mark=tried-3-default]").hover()
    assert "default: 328.5 us, 0.448" in page.locator("#tip").inner_text()
    assert page.evaluate("window.hit") is None
    assert opened.problems == []
    opened.close()


@needs_browser
def test_a_prediction_is_drawn_as_its_json_tells_it(
    predicted: tuple[Path, dict[str, Any]], browser: Browser
) -> None:
    path, document = predicted
    opened = Opened(browser, path)
    page = opened.page
    step = {row[0]: row[1:] for row in page.evaluate(_FIGURE_ROWS, "The step before and after")}
    for kind in {b["kind"] for b in document["bound_before"]}:
        before, after = (
            sum(b["ns"] for b in document[f"bound_{side}"] if b["kind"] == kind) / 1e6
            for side in ("before", "after")
        )
        assert step[kind] == [f"{before:.4g}", f"{after:.4g}"]
    low, new, high = (document[f"{name}_ns"] / 1e6 for name in ("low", "new", "high"))
    assert step["the step"][1] == f"{new:.4g}"
    assert step["low end of the range"][1] == f"{low:.4g}"
    assert step["high end of the range"][1] == f"{high:.4g}"
    facts = page.locator(".facts").inner_text()
    assert f"{new:.2f} ms" in facts
    assert f"{low:.2f} to {high:.2f} ms" in facts
    # a bar is as long as its part of the step, and tells it
    widths = [
        page.locator(f".wide [data-mark=bound-0-{side}]").bounding_box()["width"]  # type: ignore[index]
        for side in (0, 1)
    ]
    compute = [float(cell) for cell in step["compute"]]
    assert widths[0] / widths[1] == pytest.approx(compute[0] / compute[1], rel=0.01)
    page.locator(".wide [data-mark=bound-0-0]").hover()
    assert f"compute, current\n{compute[0]:.3f}" in page.locator("#tip").inner_text()
    classes = page.evaluate(_FIGURE_ROWS, "Time of one call, before and after")
    assert [row[1:3] for row in classes] == [
        [f"{c['old_ns'] / 1e3:.4g}", f"{c['new_ns'] / 1e3:.4g}"]
        for c in sorted(
            document["changed"],
            key=lambda c: -abs(c["new_ns"] - c["old_ns"]) * c["calls"],
        )
    ]
    assert opened.problems == []
    opened.close()


def test_a_timeline_beyond_its_limit_leaves_out_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    kernels = np.stack(
        [
            np.repeat([0, 1], 5_000), rng.integers(0, 10**9, 10_000),
            np.arange(10_000) + 1, np.full(10_000, -1), np.zeros(10_000), np.arange(10_000),
        ], 1,
    ).astype(np.int64)  # fmt: skip
    whole = make_strip(kernels, {})
    assert whole.text.startswith("10000 kernels of 2 ranks")
    assert "left out" not in whole.text
    monkeypatch.setattr(timeline, "_MOST_BYTES", 50_000)
    cut = make_strip(kernels, {})
    shown = int(cut.text.split()[0])
    assert f"The {10_000 - shown} shortest kernels are left out" in cut.text
    packed = [part for part in cut.document.values() if isinstance(part, str)]
    assert 30_000 < sum(map(len, packed)) <= 50_000
    # the longest: all of rank 1 first, since its kernels are longer than those of rank 0
    assert sum(int(row[1]) for row in cut.table.rows) == shown
    assert cut.table.rows[-1] == ("rank 1", str(min(shown, 5_000)), "0.000", "0.000", ANY)


def test_no_common_clock_is_claimed_for_kernels_of_logs(samples: Path, tmp_path: Path) -> None:
    import sqlite3

    from collscope.reports.report.build import build_report

    db = tmp_path / "t.db"
    collscope("ingest", "log", samples / "rccl" / "guide-coll-klke.log", "--db", db)
    connection = sqlite3.connect(db)
    (timed,) = collscope_rows(db, "SELECT COUNT(*) AS n FROM kernels WHERE call_id IS NOT NULL")
    assert timed["n"] > 0
    drawings = report_extras(build_report(connection, "main"), connection).drawings or {}
    assert not any(isinstance(d, Strip) for found in drawings.values() for d in found)


def _pair(test: str, src: int, dst: int, size: int, us: float) -> PairRow:
    rate = None if test == "ping-pong" else size / us / 1e3
    return PairRow("p2p", test, src, dst, size, 1e3 * us, 100.0, rate, 21, 0, "ok", None)


def test_pairs_are_mapped_at_the_size_that_most_of_them_have() -> None:
    rows = [_pair("one-way", a, b, 1 << 20, 10 + a + 3 * b) for a in range(3) for b in range(3)
            if a != b]  # fmt: skip
    rows += [_pair("one-way", 0, 1, size, 40.0) for size in (4096, 65536, 1 << 30)]
    rows += [_pair("ping-pong", a, b, 8, 5.0 + a + b) for a, b in ((0, 1), (0, 2), (1, 2))]
    found = P2p(3, "cuda", "H200", "nccl", ("p2p",), 0, 1, tuple(rows), (), (), (), ())
    curve, one_way, latency = (p2p_extras(found).drawings or {})[""]
    assert curve.title == "Bandwidth over message size, rank 0 and rank 1"
    assert [row[1] for row in curve.table.rows] == ["4 KiB", "64 KiB", "1 MiB", "1 GiB"]
    assert one_way.title == "One-way bandwidth of pairs, 1 MiB"
    # 1 MiB from rank 0 to rank 1 in 13 us, back in 11
    assert one_way.table.rows[0] == ("rank 0", "-", f"{1048.576 / 13:.4g}", f"{1048.576 / 16:.4g}")
    assert one_way.table.rows[1][1] == f"{1048.576 / 11:.4g}"
    # of a round trip there is one time for both directions
    assert [row[1:] for row in latency.table.rows] == [
        ("-", "6", "7"), ("6", "-", "8"), ("7", "8", "-"),
    ]  # fmt: skip


def test_an_operation_has_one_colour_in_all_drawings(samples: Path, tmp_path: Path) -> None:
    db, page = tmp_path / "t.db", tmp_path / "r.html"
    collscope("ingest", "trace", samples / "traces" / "ringll", "--db", db)
    collscope("report", "--db", db, "--system", "h200", "--format", "html", "-o", page)
    keys = re.findall(r'style="color:(#\w+)">.</span> ([^<]+)</li>', page.read_text("utf-8"))
    colours: dict[str, set[str]] = {"AllReduce": set(), "AllGather": set(), "ReduceScatter": set()}
    for colour, label in keys:
        for op, own in colours.items():
            if op in label:
                own.add(colour)
    assert {len(own) for own in colours.values()} == {1}
    assert len(set.union(*colours.values())) == 3
    assert sum("AllReduce" in label for _, label in keys) > 2
