"""What ``table`` and ``compare`` print with ``--format json``, as types: docs/schemas is made from them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from harness.analysis.ratios import Judgement
from harness.analysis.stats import Difference
from harness.model import Column, Setting, Status
from harness.model.probing import View
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

    ``setting`` and ``column`` are as in records, except ciphers: null unless they are generic. ``encrypted``
    says whether the protection encrypts; null without protection, and for another program's tunnel.
    ``direction`` is null if no repeat is ok. ``status`` is ok if at least one repeat is, else the gravest.
    ``n`` is the number of samples behind the value, out of ``repeats`` measurements. ``value``, ``low`` and
    ``high`` are in ``unit``, unrounded: the median, and its 95 % interval or the farthest samples; null if no
    sample counts, and ``low`` and ``high`` also if one does. ``metric`` is the chosen metric.
    ``ratio_to_local`` and ``ratio_to_unprotected`` are ratios of the values; null for the baseline itself.
    ``difference_from_unprotected`` is null without such a baseline, or with one round. ``disturbed`` is the
    largest share that other programs took of a repeat behind the value; null if unknown. ``is_disturbed``:
    the share is too large to use the value. ``is_lab_limited``: the lab limits, not the emulated link.
    ``proof`` adds up the fields of Proof over the repeats behind the value; null without a network. ``runs``
    are run ids. ``reasons`` say why repeats do not count. ``warnings`` are those of all repeats, each once.
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
    ratio_to_unprotected: float | None
    difference_from_unprotected: Difference | None
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
    """The matrix. ``reference`` exists with ``--reference``."""

    cells: list[PrintedCell]
    reference: NotRequired[PrintedReference]


class PrintedRow(TypedDict):
    """A path, cell or published set-up of a view, with the names that its view has. ``bytes`` and ``method``
    tell rows of one path apart.

    ``published`` says whether others measured it. ``disturbed`` is the largest part that other programs took
    of one of its measurements; null if it is unknown. ``values`` are by name, each with its unit at the end
    of its name: a figure, a status in words where there is none, or null. ``values`` of link:
    tcp_received_mbit_s, tcp_retransmits, tcp_cpu_percent, udp_received_mbit_s, udp_jitter_ms,
    udp_lost_percent, ping_mean_ms, ping_lost_percent. ``values`` of pppoe: tcp_sent_mbit_s,
    tcp_received_mbit_s, tcp_retransmits, tcp_cpu_percent, udp_sent_mbit_s, udp_jitter_ms, udp_lost,
    udp_datagrams, udp_lost_percent, ping_min_ms, ping_mean_ms, ping_max_ms, ping_mdev_ms, ping_lost_percent.
    ``values`` of openflow: tcp_received_mbit_s, udp_received_mbit_s, udp_jitter_ms, udp_lost, udp_datagrams,
    udp_lost_percent, udp_out_of_order, ping_mean_ms. ``values`` of pps: at_once (processes), lost_percent,
    replies_per_s, packets_per_s, counted_per_s. ``values`` of udp-latency: reopened_mean_us, kept_mean_us,
    reopened_p50_us, kept_p50_us, kept_p99_us. ``values`` of scale: initiators, total_mb_s, of_one_percent,
    slowest_of_fastest_percent, jain (Jain's index), p99_median_us, p99_worst_us, protection_total_percent,
    protection_p99_percent. ``values`` of counters: repeats, others_took (the part that other programs took, 0
    to 1), round_trip_p50_ns, round_trip_p99_ns, round_trips_lost_percent, busiest_core and all_cores (busy
    parts, 0 to 1), drops, errors.
    """

    link: NotRequired[str]
    ipsec: NotRequired[str]
    protection: NotRequired[str]
    transport: NotRequired[str]
    column: NotRequired[str]
    workload: NotRequired[str]
    testbed: NotRequired[str]
    bytes: NotRequired[str]
    method: NotRequired[str]
    published: bool
    disturbed: float | None
    values: dict[str, float | str | None]


class PrintedView(TypedDict):
    """A view instead of the matrix. ``footnotes`` are numbered from 1."""

    view: View
    title: str
    rows: list[PrintedRow]
    footnotes: list[str]
    notes: list[str]


class PrintedSide(TypedDict):
    """A side of a comparison: ``runs`` are run ids."""

    runs: list[str]


class PrintedComparedCell(TypedDict):
    """A cell that both sides have.

    ``setting``, ``column``, ``encrypted`` and ``direction`` are as in a table. ``n_a`` and ``n_b`` are the
    samples of each side. ``a`` and ``b`` are their medians in ``unit``; null without a sample. ``verdict`` is
    B's compared with A. ``reason`` says why it is inconclusive; null for other verdicts. ``is_disturbed``:
    there is no ratio because other programs disturbed all repeats of a side. ``ratio`` is B over A, ``low``
    and ``high`` its 95 % interval; null without a ratio, or with too few repeats for an interval. ``p`` is
    the p-value of the difference, ``p_adjusted`` the same adjusted for all cells (Benjamini-Hochberg).
    ``warm_up`` repeats were left out at the beginning of each side. ``inflation``: so many repeats count as
    one, because each resembles the one before (1: they are independent). ``more`` is what the variation from
    run to run adds: with endless repeats, the interval would still be from ratio / e^more to ratio * e^more.
    """

    workload: str
    direction: Direction | None
    setting: Setting
    column: Column
    encrypted: bool | None
    n_a: int
    n_b: int
    a: float | None
    b: float | None
    verdict: Judgement
    reason: str | None
    is_disturbed: bool
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    warm_up: int | None
    inflation: float | None
    more: float | None
    p_adjusted: float | None


class PrintedComparison(TypedDict):
    """Two sets of results. ``margin`` is how far from 1 the interval of an equivalent cell may reach, as a
    fraction. ``tally`` is how many cells have each verdict. ``missing`` says why cells could not be judged,
    and what to do."""

    a: PrintedSide
    b: PrintedSide
    metric: Metric
    unit: str
    margin: float
    tally: dict[Judgement, int]
    cells: list[PrintedComparedCell]
    missing: list[str]
    notes: list[str]
