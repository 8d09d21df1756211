"""A matrix as coloured cells, with its values as numbers and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec
import numpy as np

from collscope.reports.rendering.drawing import LETTER, PLAIN, TOP, Drawing, Sheet
from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.page import Figure
from collscope.units import figure

_SHORT_NAME = 5  # characters of a column's name that needs no room to turn
_MOST_NUMBERS = 400  # cells of a matrix with a number each
_CELL, _CELL_NUMBER = 0.62, 0.4  # inches of a cell, and the least with a number in it
_COLUMN_NAME = 0.2  # inches that the name of a column needs


class Matrix(msgspec.Struct, frozen=True):
    """Values by row and column, None where there is none, and their unit.

    corner  what rows and columns are, in the table's head
    """

    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    unit: str


def heat_figure(title: str, text: str, matrix: Matrix) -> Figure:
    """A matrix as coloured cells with its values; a missing value stays empty."""
    found = table(
        [(matrix.corner, TEXT), *((f"{c} {matrix.unit}", NUMBER) for c in matrix.columns)],
        ([name, *line] for name, line in zip(matrix.rows, matrix.values, strict=True)),
    )
    cells = [
        [f"{row}, {column}: " + ("none" if v is None else f"{figure(v, 4)} {matrix.unit}")
         for column, v in zip(matrix.columns, values, strict=True)]
        for row, values in zip(matrix.rows, matrix.values, strict=True)
    ]  # fmt: skip
    return Figure(title, text, lambda sheet: _heat_map(matrix, sheet), found, {}, cells=cells)


def _heat_map(matrix: Matrix, sheet: Sheet) -> Drawing:
    rows, columns = matrix.rows, matrix.columns
    grid = np.array([[np.nan if v is None else v for v in r] for r in matrix.values], dtype=float)
    longest = max(map(len, columns))
    turn = 0 if longest <= _SHORT_NAME else 90 if sheet.narrow else 45
    across, down = ({0: 0.0, 45: 0.75, 90: 0.3}[turn], {0: 0.0, 45: 0.75, 90: 1.0}[turn])
    left = max(0.25 + LETTER * max(map(len, rows)), across * LETTER * longest)
    bottom, bar = 0.35 + down * LETTER * longest, 0.95
    cell = min(_CELL, (sheet.width - left - bar) / len(columns))
    width, height = left + cell * len(columns) + bar, TOP + 0.34 * len(rows) + bottom
    drawing = sheet.figure(width, height)
    tall = bottom / height, 0.34 * len(rows) / height
    axis = drawing.add_axes((left / width, tall[0], cell * len(columns) / width, tall[1]))
    shown = axis.imshow(
        np.ma.masked_invalid(grid), cmap="viridis", aspect="auto", interpolation="none",
        extent=(0, len(columns), len(rows), 0), gid="heat-map",
    )  # fmt: skip
    places = range(0, len(columns), ceil(_COLUMN_NAME / cell))
    axis.set_xticks([i + 0.5 for i in places], [columns[i] for i in places], rotation=turn,
                    ha="right" if turn == 45 else "center")  # fmt: skip
    axis.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axis.grid(visible=False)
    scale = drawing.add_axes((1 - (bar - 0.15) / width, tall[0], 0.15 / width, tall[1]))
    drawing.colorbar(shown, cax=scale, label=matrix.unit, format=PLAIN)
    if grid.size <= _MOST_NUMBERS and cell >= _CELL_NUMBER:
        middle = np.nanmean([np.nanmin(grid), np.nanmax(grid)])
        for i, j in np.argwhere(~np.isnan(grid)):
            colour = "black" if grid[i, j] > middle else "white"
            axis.text(j + 0.5, i + 0.5, figure(grid[i, j]), ha="center", va="center",
                      fontsize=9, color=colour)  # fmt: skip
    return drawing
