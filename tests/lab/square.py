"""Some cells of a matrix for CI: each row and each column has one at least. All of them are for `-m long`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")
Column = TypeVar("Column")


def square(rows: Sequence[Row], columns: Sequence[Column]) -> list[tuple[Row, Column]]:
    """As in a Latin square: with each row the next column, and both from the front again when they end."""
    most = max(len(rows), len(columns))
    return [(rows[index % len(rows)], columns[index % len(columns)]) for index in range(most)]
