"""Linear equations with a symmetric and positive definite matrix, by Cholesky's factor (Golub and Van Loan,
Matrix Computations, 4th edition, section 4.2). Rows of a matrix may end at the diagonal, as a factor's do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

Rows = Sequence[Sequence[float]]


def factored(matrix: Rows) -> list[list[float]]:
    """The lower triangular factor. What rounding leaves below 1e-12 on the diagonal counts as that."""
    factor: list[list[float]] = []
    for wanted in matrix:
        row: list[float] = []
        for value, other in zip(wanted, factor, strict=False):
            row.append((value - sum(map(mul, row, other))) / other[-1])
        factor.append([*row, math.sqrt(max(wanted[len(row)] - sum(map(mul, row, row)), 1e-12))])
    return factor


def forward(factor: Rows, values: Sequence[float]) -> list[float]:
    """The x with factor x = values."""
    found: list[float] = []
    for row, value in zip(factor, values, strict=True):
        found.append((value - sum(map(mul, found, row[:-1]))) / row[-1])
    return found


def backward(factor: Rows, values: Sequence[float]) -> list[float]:
    """The same by the transpose of the factor."""
    last = range(len(factor) - 1, -1, -1)
    found = forward([[factor[j][i] for j in last if j >= i] for i in last], values[::-1])
    return found[::-1]


def solved(matrix: Rows, values: Sequence[float]) -> list[float]:
    """The x with matrix x = values."""
    factor = factored(matrix)
    return backward(factor, forward(factor, values))
