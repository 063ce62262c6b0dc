"""What ``harness table --format json`` prints, as types: docs/schemas/table.json is made from them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from harness.analysis.stats import Difference
from harness.model import Family, Status
from harness.results.metrics import Direction, Metric


class Place(TypedDict):
    """``ipsec`` is the proposal, or ``off``; ``on`` where a published figure's source names no algorithm."""

    workload: str
    link: str
    ipsec: str


class PublishedFigure(Place):
    """A figure of the reference. ``value`` is in ``unit``."""

    value: float | None
    unit: str


class PrintedCell(Place):
    """A cell that has a record.

    ``transport`` is how the target's storage becomes a disk of the initiator; null for ``local``.
    ``protection`` is what protects the link, from the outside in. ``encrypted`` says whether it encrypts;
    null without any. ``ip`` is the link's version of IP; null for ``local``. ``direction`` is null if no
    repeat is ok. ``status`` is ok if at least one repeat is, else the gravest. ``n`` is the number of samples
    behind the value, out of ``repeats`` measurements. ``value``, ``low`` and ``high`` are in ``unit``,
    unrounded: the median, and its 95 % interval or the farthest samples; null if no sample counts.
    ``metric`` is what was chosen. ``ratio_to_local`` and ``ratio_to_no_ipsec`` are ratios of the values; null
    for the baseline itself. ``difference_from_no_ipsec`` is null without such a baseline, or with one block.
    ``disturbed`` is the largest part that other programs took of one of the repeats behind the value; null if
    it is unknown. ``is_disturbed``: that is too much for the value to be used. ``is_labs_own``: the lab
    limits, and not the link that it imitates. ``proof`` adds up the fields of Proof over the repeats behind
    the value; null without a network. ``kernel`` is ``own``, with the release and key of another than the
    default one, or empty. ``disk`` is the modelled disk, or empty. ``ciphers`` is ``portable``, or empty.
    ``source`` is the program that measured. ``runs`` are run ids. ``reasons`` say why repeats do not count.
    ``warnings`` are those of all repeats, each once.
    """

    transport: str | None
    protection: tuple[str, ...]
    ipsec_mode: str | None
    encrypted: bool | None
    initiators: int
    ip: Family | None
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
    is_labs_own: bool
    proof: dict[str, int | None] | None
    testbed: str
    clock: str
    kernel: str
    disk: str
    ciphers: str
    source: str
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
