"""How right predictions were: the stored table of ``bench/predictions.py``, and what it does not cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from tabulate import tabulate

from harness.explain.predicted import Ends, NetworkPath
from harness.model import Job
from harness.model.lines import counted
from harness.model.units import format_percent, format_size
from harness.parse.files import TomlFile, read_text
from harness.parse.jobfile import described
from harness.parse.profiles import data_folder

FILE = ("profiles", "predictions.toml")


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cells that one thing ``limits``, or ``all`` of them. Errors and widths are fractions of the
    measurement; ``median_error`` and ``p90_error`` are over the cells. ``half_width`` is the median
    interval's, ``covered`` the share of cells inside their 90 % interval. ``bounds_error`` is the
    median error of the link's bounds alone, of the ``bounds_cells`` that have any (None: no cell)."""

    limits: str
    cells: Annotated[int, msgspec.Meta(ge=0)]
    median_error: float
    p90_error: float
    half_width: float
    covered: float
    bounds_error: float | None = None
    bounds_cells: int = 0


class Score(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The validation of predictions.

    ``measured`` describes the measurements, ``cpu_costs`` names the CPU costs of the predictions. It covers
    these ``links``, ``protections`` and ``transports``, up to ``deepest`` I/Os in flight and blocks of
    ``largest_block_bytes``. ``worst`` are the cells with the largest errors, ``kinds`` all cells by what
    limits.
    """

    measured: str = ""
    cpu_costs: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    protections: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    deepest: int = 0
    largest_block_bytes: int = 0
    worst: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()


def load() -> Score:
    """The stored score."""
    path = data_folder().joinpath(*FILE)
    return TomlFile("score", path, read_text(path, "score")).load(Score)


HEADINGS = (
    "what limits",
    "cells",
    "median error",
    "90th percentile",
    "half width",
    "inside 90 % interval",
    "bounds alone",
)


def text(found: Score) -> str:
    """The table, what it is of, and the worst cells."""
    table = [
        [
            each.limits,
            str(each.cells),
            format_percent(each.median_error),
            format_percent(each.p90_error),
            format_percent(each.half_width),
            format_percent(each.covered),
            "n/a"
            if each.bounds_error is None
            else f"{format_percent(each.bounds_error)} of {each.bounds_cells}",
        ]
        for each in found.kinds
    ]
    lines = tabulate(table, HEADINGS, disable_numparse=True)
    return "\n".join([lines, "", found.measured, *(f"worst: {each}" for each in found.worst)])


def outside(found: Score, ends: Ends, network_paths: Sequence[NetworkPath], jobs: Sequence[Job]) -> list[str]:
    """What of a prediction nobody has ever measured, as a sentence; none if all was."""
    parts = [*_outside(found, ends, network_paths, jobs)]
    if not parts:
        return []
    return [f"outside the validated range (harness predict --score): {'; '.join(parts)}."]


def _outside(
    found: Score, ends: Ends, network_paths: Sequence[NetworkPath], jobs: Sequence[Job]
) -> Iterator[str]:
    asked = {
        "machine": ([each.name for each in (ends.target, ends.initiator) if each], found.cpu_costs),
        "link": (
            [network_path.column.link for network_path in network_paths if not network_path.column.is_local],
            found.links,
        ),
        "protection": (
            [name for network_path in network_paths for name in network_path.column.protection],
            found.protections,
        ),
        "transport": (
            [
                network_path.column.transport
                for network_path in network_paths
                if network_path.column.transport
            ],
            found.transports,
        ),
    }
    for what, (names, known) in asked.items():
        if new := list(dict.fromkeys(name for name in names if name not in known)):
            yield f"{counted(len(new), what)} ({', '.join(new)})"
    workloads = [described(job) for job in jobs]
    if (deepest := max((each.in_flight or 0 for each in workloads), default=0)) > found.deepest:
        yield f"{deepest} I/Os in flight"
    if (largest := max((each.block_bytes or 0 for each in workloads), default=0)) > found.largest_block_bytes:
        yield f"blocks of {format_size(largest)}"
