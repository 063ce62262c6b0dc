"""What ``harness explain --format json`` prints, as types: schemas in docs/schemas are made from them."""

from __future__ import annotations

from typing import Any, TypedDict

from harness.analysis.interval import Interval
from harness.analysis.limit import Limit
from harness.explain.headroom import Headroom
from harness.explain.remedy import Change
from harness.explain.verdict import Confidence
from harness.explain.volumes import VolumeOverPath
from harness.model import Column, Setting


class PrintedTime(TypedDict):
    """The time of one I/O over the repeats, in ns: lowest, ``median`` and highest."""

    low: float
    median: float
    high: float


class PrintedChange(Change, frozen=True, kw_only=True):
    """The change that helps most: ``each_ns`` is the time per I/O after it, ``rate_mb_s`` the throughput in
    10^6 bytes per second, ``limited_by`` what then limits, ``how`` the calculation.

    ``time_ns``, ``least_ns`` and ``most_ns`` (in ``each_ns``), ``then`` (``limited_by``), ``mb_s``,
    ``least_mb_s`` and ``most_mb_s`` (in ``rate_mb_s``) are keys of earlier versions, and go with the next
    one.
    """

    rate_mb_s: Interval
    time_ns: float
    least_ns: float
    most_ns: float
    then: Limit
    mb_s: float
    least_mb_s: float
    most_mb_s: float


class PrintedHeadroom(Headroom, frozen=True, kw_only=True):
    """A protection whose cost the cell's limit hides.

    ``load_mb_s`` is the load at which a core would be full, ``cipher_mb_s`` the one at which cipher and check
    alone would fill it, both in 10^6 bytes per second of such I/Os; null if the core was not monitored or the
    cipher not measured.

    ``mb_s``, ``least_mb_s`` and ``most_mb_s`` (in ``load_mb_s``) are keys of earlier versions, and go with
    the next one.
    """

    mb_s: float | None
    least_mb_s: float | None
    most_mb_s: float | None


class PrintedVerdict(TypedDict):
    """A cell, and what limits it. What is unknown is null.

    ``setting`` and ``column`` are as in records; ``origin`` is the part of the setting that readers must
    know. ``encrypted`` is null without protection, and for another program's tunnel. ``holds`` is the share
    of Monte Carlo draws from the evidence that agree. ``either`` are two candidate limits, each with the
    share of the time that it explains. ``doubt`` is what makes the evidence doubtful. ``is_lab_limited``:
    the lab limits, not the emulated link. ``share`` is the share of the time that the limit explains.
    ``depth`` is the number of I/Os in flight. ``mb_s`` is the rate, in 10^6 bytes per second.
    ``goodput_mb_s`` is the most TCP payload that the link carries. ``stream_mb_s`` is the highest rate of
    one TCP stream over a real link, in the cell's direction: a lower bound of the goodput.
    ``one_at_a_time_mb_s`` is the most that one request at a time allows, at depth 1. ``time_ns`` is run
    time divided by the number of I/Os, ``whole_ns`` the time that one I/O is in flight. ``waterfall_ns``
    are its parts, and ``overlapped_ns`` what each of them takes longer than it shows, because others go on
    meanwhile. ``bounds_ns`` are each resource's lower bound of the time per I/O, at depths above 1.
    ``headroom``: the load up to which the limit hides the protection's cost; null if it does not.
    ``implementation_ns`` is what of one I/O alone device and path do not take. ``ipsec_itself_ns`` is how
    much longer the path takes with its framing. ``cipher_ns`` is the time of the stand-alone ciphers.
    ``missing`` says what is unknown, and how to find out. If ``is_disturbed``, other programs spoiled all
    of its repeats, and ``at_least_mb_s`` is a lower bound of its rate without them.
    """

    workload: str
    setting: Setting
    origin: str
    column: Column
    encrypted: bool | None
    limited_by: Limit
    confidence: Confidence
    holds: float | None
    either: dict[Limit, tuple[float, float]]
    doubt: str | None
    is_lab_limited: bool
    share: float | None
    sentence: str
    block_bytes: int | None
    depth: int | None
    repeats: int
    mb_s: float | None
    at_least_mb_s: float | None
    goodput_mb_s: float | None
    stream_mb_s: float | None
    one_at_a_time_mb_s: float | None
    time_ns: PrintedTime | None
    whole_ns: int | None
    waterfall_ns: dict[str, int]
    overlapped_ns: dict[str, int]
    bounds_ns: dict[Limit, int]
    change: PrintedChange | None
    headroom: PrintedHeadroom | None
    implementation_ns: Interval | None
    ipsec_itself_ns: float | None
    cipher_ns: Interval | None
    missing: list[str]
    is_disturbed: bool


class PrintedVerdicts(TypedDict):
    """All cells. ``corrections`` are errors of earlier versions' answers, ``tried`` what
    runs that tried forecasts found, and ``volumes`` calculated speeds of other disks over the columns."""

    cells: list[PrintedVerdict]
    corrections: list[str]
    tried: list[Any]
    volumes: list[VolumeOverPath]
