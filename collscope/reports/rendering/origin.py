"""Where a row of a table comes from: the query that gives it by `collscope sql`."""

from __future__ import annotations

import msgspec

Value = str | int | None


class Origin(msgspec.Struct, frozen=True):
    """Rows of a view in which columns have these values.

    also  what else holds of the rows, in SQL
    """

    view: str
    values: dict[str, Value]
    also: str = ""


def origin(view: str, **values: Value) -> Origin:
    """Rows of a view in which columns have these values."""
    return Origin(view, values)


def query(run: str, rows: Origin) -> str:
    """Query for the rows of a run.

    >>> query("it's", origin("calls", class_id=3, redop=None))
    "SELECT * FROM calls WHERE run = 'it''s' AND class_id = 3 AND redop IS NULL"
    """
    found = [f"SELECT * FROM {rows.view} WHERE run = {_literal(run)}"]
    for column, value in rows.values.items():
        found.append(f"{column} IS NULL" if value is None else f"{column} = {_literal(value)}")
    return " AND ".join([*found, *filter(None, [rows.also])])


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
