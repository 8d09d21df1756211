"""The library: a store, its views as tables, and the questions that are asked of it.

`import collscope` loads none of this; `collscope.open` does (docs/python.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from collscope.errors import MissingToolError, UsageError
from collscope.reports.rendering.notebook import shown

# Nothing heavy at the top: whoever asks one question loads what it needs.
if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import polars as pl

    from collscope.ingest.result import Ingested
    from collscope.reports.check.answer import Check
    from collscope.reports.compare.answer import Comparison
    from collscope.reports.explain.answer import Explained
    from collscope.reports.predict.answer import PredictionReport
    from collscope.reports.rendering.page import Figure
    from collscope.reports.report.answer import Report
    from collscope.store.query import Parameters


_SHOWN = 50  # rows of a table in a notebook
_PRINTED = 20  # at a prompt


class Table(msgspec.Struct, frozen=True):
    """Rows of a view or a query; a value that no source holds is None.

    Iteration gives each row as a dict, by column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __getitem__(self, place: int | slice | str) -> Any:  # noqa: ANN401 - depends on `place`
        """A row as a dict, by its number; rows as a table, by a slice; a column, by its name.

        raises  IndexError, KeyError for what the table does not have
        """
        if isinstance(place, slice):
            return Table(self.columns, self.rows[place])
        if isinstance(place, int):
            return dict(zip(self.columns, self.rows[place], strict=True))
        if place not in self.columns:
            raise KeyError(f"{place}: not one of the columns {', '.join(self.columns)}")
        at = self.columns.index(place)
        return [row[at] for row in self.rows]

    def __repr__(self) -> str:
        """The first rows as text."""
        from collscope.reports.rendering.rows import render_rows  # noqa: PLC0415

        shown = str(render_rows(self.columns, self.rows[:_PRINTED], "text"))
        left = len(self.rows) - _PRINTED
        return f"{shown}\n… {left} more rows" if left > 0 else shown

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows by column."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def _repr_html_(self) -> str:
        """The first rows as an HTML table, for notebooks."""
        from collscope.reports.rendering.page import table_html  # noqa: PLC0415

        return table_html(self.columns, self.rows[:_SHOWN], len(self.rows))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream: what polars, pandas, pyarrow and duckdb read.

        A column of whole numbers is int64, one of numbers float64, of bytes binary, of only
        None null; any other is a string.

        requested_schema  as in the Arrow PyCapsule interface: a wish, which is not granted
        source            https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
        """
        from collscope.reports.rendering.arrow import arrow_stream  # noqa: PLC0415

        return arrow_stream(self.columns, self.rows)

    def to_polars(self) -> pl.DataFrame:
        """A polars data frame; None is null.

        raises  MissingToolError without polars
        """
        return cast("pl.DataFrame", _module("polars").DataFrame(self))

    def to_pandas(self) -> pd.DataFrame:
        """A pandas data frame with types that have a missing value: integers stay integers.

        raises  MissingToolError without pandas
        """
        pandas = _module("pandas")
        return pandas.DataFrame(self.rows, columns=list(self.columns)).convert_dtypes()


def _module(name: str) -> Any:  # noqa: ANN401 - a module of any kind
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingToolError(f"{name}: not installed. Run 'pip install {name}'.") from error


class Store(msgspec.Struct, frozen=True):
    """A store, given by its path. Every method opens the store, answers and closes it.

    Each answer shows one state of the store. All errors are `CollscopeError`s: InputError where the
    store is missing or cannot be read, or lacks a run or a label.
    """

    path: Path

    def __post_init__(self) -> None:
        """A path may be given as text."""
        msgspec.structs.force_setattr(self, "path", Path(self.path))

    def __enter__(self) -> Store:
        """The store itself; nothing is open between two calls."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left to close."""

    def ingest(
        self, *paths: str | PathLike[str] | Sequence[str | PathLike[str]], run: str = "main"
    ) -> tuple[Ingested, ...]:
        """Read logs, profiles, traces, tables and CSVs into a run, as `collscope ingest auto`.

        paths   files, folders or globs, or lists of them; a file that the run holds is kept
        returns what became of each input: its `status`, `counts` and `diagnostics`
        raises  InputError when none of the paths is usable
        """
        from collscope.ingest.commands import ingest_auto  # noqa: PLC0415

        given = [p for path in paths for p in (path if isinstance(path, list | tuple) else [path])]
        found = ingest_auto([str(path) for path in given], self.path, run)
        return tuple(found)

    def runs(self) -> list[str]:
        """Labels of the runs."""
        return [row[0] for row in self.sql("SELECT DISTINCT run FROM sources ORDER BY run").rows]

    def labels(self) -> list[str]:
        """Labels of the measurements."""
        query = "SELECT DISTINCT label FROM measurements WHERE label IS NOT NULL ORDER BY 1"
        return [row[0] for row in self.sql(query).rows]

    def unmatched(self) -> dict[str, str]:
        """Runs whose calls are not matched, each with the reason; questions about them raise."""
        from collscope.ingest.match import reading, unmatched  # noqa: PLC0415

        with reading(self.path) as connection:
            return unmatched(connection)

    def calls(self, run: str | None = None) -> Table:
        """The view `calls` of schemas/views.md, of one run or of all."""
        return self.view("calls", run)

    def classes(self, run: str | None = None) -> Table:
        """The view `classes`, of one run or of all."""
        return self.view("classes", run)

    def communicators(self, run: str | None = None) -> Table:
        """The view `communicators`, of one run or of all."""
        return self.view("communicators", run)

    def measurements(self, run: str | None = None) -> Table:
        """The view `measurements`, of one run or of all; look at `status` before a time."""
        return self.view("measurements", run)

    def kernels(self, run: str | None = None) -> Table:
        """The view `kernels`, of one run or of all."""
        return self.view("kernels", run)

    def view(self, name: str, run: str | None = None) -> Table:
        """A view of schemas/views.md, of one run or of all.

        raises  UsageError for a view that does not exist
        """
        from collscope.ingest.match import reading, require_run  # noqa: PLC0415

        with reading(self.path) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT LIKE '\\_%'"
            views = [row[0] for row in connection.execute(f"{query} ESCAPE '\\' ORDER BY name")]
            if name not in views:
                raise UsageError(f"view '{name}': not in the store. Views: {', '.join(views)}.")
            if run is not None:
                require_run(connection, self.path, run)
            where, values = ("", ()) if run is None else (" WHERE run = ?", (run,))
            cursor = connection.execute(f"SELECT * FROM {name}{where}", values)
            return _table([column[0] for column in cursor.description], cursor.fetchall())

    def sql(
        self, query: str, parameters: Parameters = (), *, timeout_s: float | None = None
    ) -> Table:
        """Answer of a read-only query over the views.

        parameters  for `?` or `:name` in the query
        timeout_s   seconds after which the query is stopped; None: never
        raises      UsageError for a query that is wrong, that would write, or that takes longer
        """
        from collscope.ingest.match import reading  # noqa: PLC0415
        from collscope.store.query import select  # noqa: PLC0415

        with reading(self.path) as connection:
            columns, rows = select(connection, query, parameters, timeout_s)
            return _table(columns, list(rows))

    def stream(
        self, query: str, parameters: Parameters = (), *, timeout_s: float | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a query one by one: only the last one read is held in memory.

        parameters, timeout_s, raises  as in `sql`
        """
        from collscope.ingest.match import reading  # noqa: PLC0415
        from collscope.store.query import select  # noqa: PLC0415

        with reading(self.path) as connection:
            yield from select(connection, query, parameters, timeout_s)[1]

    def report(
        self,
        run: str = "main",
        *,
        system: str | None = None,
        label: str | None = None,
        step_ms: float | None = None,
    ) -> Report:
        """What collectives cost a run, with every class; `collscope.render` turns it into text.

        system  machine whose ceilings the classes are compared with, as `report --system`
        label   of the measurements to judge; None: those of the most recent source
        step_ms  a step without the profiler, ms: the costs of causes of long steps refer to it
        raises  InputError for an unknown system or label, NoVerdictError when `system` is "fit"
                and nothing can be fitted
        """
        from collscope.ingest.match import reading, require_run  # noqa: PLC0415
        from collscope.reports.report.build import build_report  # noqa: PLC0415
        from collscope.units import require_step_ms  # noqa: PLC0415

        with reading(self.path) as connection:
            require_run(connection, self.path, run)
            found = build_report(
                connection, run, top=None, system=system, label=label,
                step_ms=require_step_ms(step_ms),
            )  # fmt: skip

        def figures() -> Sequence[Figure]:
            from collscope.reports.report.page import report_extras  # noqa: PLC0415

            with reading(self.path) as connection:
                return report_extras(found, connection).figures()

        return shown(found, render, figures)

    def predict(
        self,
        run: str = "main",
        *,
        label: str | None = None,
        before: str | None = None,
        system: str | None = None,
        step_ms: float | None = None,
    ) -> PredictionReport:
        """Step time of a traced run with other times of its collectives, as `collscope predict`.

        label    of the new times: measurements, or another traced run (`--with`)
        before   label of the recorded setting, measured as `label` was (`--from`)
        system   whose reachable speeds give the new times, instead of `label`
        step_ms  step time without the profiler, ms; None: only the ratio of the times is known
        returns  times of a step in ns, with their range `low_ns` to `high_ns`
        raises   UsageError unless either `label` or `system` is given, and for an impossible step
                 time; InputError for an unknown label or system, or a run without traces;
                 NoVerdictError when no class has a new time, or the traces hold no step
        """
        from collscope.reports.predict.answer import PredictionRequest, predict_run  # noqa: PLC0415
        from collscope.units import require_step_ms  # noqa: PLC0415

        request = PredictionRequest(run, label, before, system, require_step_ms(step_ms))
        found = predict_run(self.path, request)

        def figures() -> Sequence[Figure]:
            from collscope.reports.predict.page import prediction_extras  # noqa: PLC0415

            return prediction_extras(found).figures()

        return shown(found, render, figures)

    def compare(
        self,
        *names: str,
        run: str | None = None,
        weights: str | None = None,
        system: str | None = None,
    ) -> Comparison:
        """Labels, replay CSVs or traced runs against the first of them, as `collscope compare`.

        run      only measurements of this run
        weights  run whose calls weight the classes
        system   machine whose limits the values are compared with
        returns  `totals` and the `cells` of each class, one for each name in turn; for traced runs
                 `traced`, with the parts of a step
        raises   UsageError unless two different names are given; InputError for an unknown name,
                 run or system, or names without a class in common; NoVerdictError for a label
                 without a right result
        """
        from collscope.reports.compare.from_names import compare_labels  # noqa: PLC0415
        from collscope.reports.compare.sides import Runs  # noqa: PLC0415

        found = compare_labels(self.path, names, Runs(run, weights), system)

        def figures() -> Sequence[Figure]:
            from collscope.reports.compare.page import compare_extras  # noqa: PLC0415

            return compare_extras(found).figures()

        return shown(found, render, figures)

    def explain(self, first: str, second: str) -> Explained:
        """Why a step of one traced run takes longer than of another: `collscope compare --explain`.

        returns  parts, ns a step, which sum to the difference together with `remainder_ns`
        raises   UsageError for twice the same run; InputError for runs that are not traced or have
                 different ranks; NoVerdictError where one has no steps, or they may be two jobs
        """
        from collscope.reports.explain.answer import explain_runs  # noqa: PLC0415

        return shown(explain_runs(self.path, (first, second)), render, tuple)

    def check(
        self,
        baseline: str,
        current: str,
        *,
        control: str | None = None,
        run: str | None = None,
        weights: str | None = None,
        system: str | None = None,
    ) -> Check:
        """Did `current` regress? Labels of the store, or replay CSVs, as `collscope check`.

        control  the baseline, measured once more: its differences raise the thresholds
        run      only measurements of this run
        weights  run whose calls weight the classes
        system   machine whose limits the values are compared with
        raises   InputError for an unknown label, run or system
        """
        from collscope.reports.check.from_names import Names, check_labels  # noqa: PLC0415
        from collscope.reports.compare.sides import Runs  # noqa: PLC0415

        names = Names(baseline, current, control)
        found = check_labels(self.path, names, Runs(run, weights), system)

        def figures() -> Sequence[Figure]:
            from collscope.reports.check.page import check_extras  # noqa: PLC0415

            return check_extras(found).figures()

        return shown(found, render, figures)


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    return Table(tuple(columns), tuple(rows))


def render(
    answer: Report | PredictionReport | Comparison | Explained | Check, format: str = "text"
) -> str:
    """An answer of a `Store` as the command prints it.

    format  text, md, csv, json or html; of a verdict junit and github instead of csv
    raises  UsageError for another format
    """
    from collscope.writing import visible  # noqa: PLC0415

    return visible(_rendered(answer, format), commands=format == "github")


def _rendered(answer: Report | PredictionReport | Comparison | Explained | Check, form: str) -> str:
    # What an answer needs is loaded already; each import here is of a kind that is still possible.
    from collscope.reports.report.answer import Report  # noqa: PLC0415

    if isinstance(answer, Report):
        from collscope.reports.report.formats import render as render_report  # noqa: PLC0415

        return render_report(answer, form)
    from collscope.reports.check.answer import Check  # noqa: PLC0415
    from collscope.reports.check.text import render_check  # noqa: PLC0415
    from collscope.reports.compare.answer import Comparison  # noqa: PLC0415
    from collscope.reports.compare.text import render_compare  # noqa: PLC0415

    if isinstance(answer, Check):
        return render_check(answer, form)
    if isinstance(answer, Comparison):
        return render_compare(answer, form)
    from collscope.reports.explain.text import render_explained  # noqa: PLC0415
    from collscope.reports.predict.answer import PredictionReport  # noqa: PLC0415
    from collscope.reports.predict.text import render_prediction  # noqa: PLC0415

    if isinstance(answer, PredictionReport):
        return render_prediction(answer, form)
    return render_explained(answer, form)
