"""What ``harness table --format json`` prints, as types: docs/schemas/table.json is made from them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from harness.analysis.stats import Difference
from harness.model import Column, Setting, Status
from harness.results.metrics import Direction, Metric


class PublishedFigure(TypedDict):
    """A figure of the reference. ``name`` is its column's: the link, and ``+`` the proposal, or ``+on`` where
    the source names no algorithm. ``value`` is in ``unit``."""

    workload: str
    name: str
    value: float | None
    unit: str


class PrintedCell(TypedDict):
    """A cell that has a record.

    ``setting`` and ``column`` are as in records, but for ciphers, which are null if they are not portable.
    ``encrypted`` says whether the protection encrypts; null without any, and of a program's tunnel.
    ``direction`` is null if no repeat is ok. ``status`` is ok if at least one repeat is, else the gravest.
    ``n`` is the number of samples behind the value, out of ``repeats`` measurements. ``value``, ``low`` and
    ``high`` are in ``unit``, unrounded: the median, and its 95 % interval or the farthest samples; null if no
    sample counts, and ``low`` and ``high`` also if one does.
    ``metric`` is what was chosen. ``ratio_to_local`` and ``ratio_to_no_ipsec`` are ratios of the values; null
    for the baseline itself. ``difference_from_no_ipsec`` is null without such a baseline, or with one block.
    ``disturbed`` is the largest part that other programs took of one of the repeats behind the value; null if
    it is unknown. ``is_disturbed``: that is too much for the value to be used. ``is_lab_limited``: the lab
    limits, and not the link that it imitates. ``proof`` adds up the fields of Proof over the repeats behind
    the value; null without a network. ``runs`` are run ids. ``reasons`` say why repeats do not count.
    ``warnings`` are those of all repeats, each once.
    """

    workload: str
    setting: Setting
    column: Column
    encrypted: bool | None
    direction: Direction | None
    status: Status
    n: int
    repeats: int
    value: float | None
    low: float | None
    high: float | None
    unit: str
    metric: Metric
    ratio_to_local: float | None
    ratio_to_no_ipsec: float | None
    difference_from_no_ipsec: Difference | None
    disturbed: float | None
    is_disturbed: bool
    is_lab_limited: bool
    proof: dict[str, int | None] | None
    runs: list[str]
    reasons: list[str]
    warnings: list[str]


class PrintedReference(TypedDict):
    """What was published. ``source`` says where."""

    name: str
    title: str
    source: str
    cells: list[PublishedFigure]


class PrintedTable(TypedDict):
    """The matrix. ``reference`` is there with ``--reference``."""

    cells: list[PrintedCell]
    reference: NotRequired[PrintedReference]
