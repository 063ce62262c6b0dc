"""What ``harness explain --format json`` prints, as types: schemas in docs/schemas are made from them."""

from __future__ import annotations

from typing import TypedDict

from harness.explain.forecasts import Tried
from harness.explain.headroom import Headroom
from harness.explain.limits import Limit
from harness.explain.remedy import Change
from harness.explain.span import Span
from harness.explain.third_party import Judged
from harness.explain.verdict import Confidence
from harness.explain.volumes import VolumeOverPath
from harness.model import Column, Setting


class PrintedTime(TypedDict):
    """The time of one I/O, in ns: of its repeats the least, the ``median`` and the most."""

    low: float
    median: float
    high: float


class PrintedChange(Change, frozen=True, kw_only=True):
    """What would help most, and the time per I/O after it: most likely, and from and to which.

    ``then`` is what limits after it, ``how`` from what that was computed. ``mb_s``, ``least_mb_s`` and
    ``most_mb_s`` are the rates with it, in 10^6 bytes per second.
    """

    mb_s: float | None
    least_mb_s: float | None
    most_mb_s: float | None


class PrintedVerdict(TypedDict):
    """A cell, and what limits it. What is unknown is null.

    ``setting`` and ``column`` are as in records; ``origin`` is what of the setting must be said.
    ``encrypted`` is null without protection, and of a program's tunnel. ``holds`` is the part of the draws
    from the evidence that agree. ``either`` are two limits of which it is one, each with the part of the
    time that it explains. ``doubt`` is what makes the evidence doubtful. ``is_lab_limited``: the lab limits,
    and not the link that it imitates. ``share`` is the part of the time that the limit explains. ``depth``
    is the number of I/Os in flight. ``mb_s`` is the rate, in 10^6 bytes per second. ``goodput_mb_s`` is the
    most TCP payload that the link carries. ``stream_mb_s`` is the most that one TCP stream reached over a
    real one, in the cell's direction: a lower bound of that. ``one_at_a_time_mb_s`` is the most that one
    request at a time allows, at depth 1. ``time_ns`` is run time divided by the number of I/Os, ``whole_ns``
    the time that one I/O is in flight. ``waterfall_ns`` are its parts. ``bounds_ns`` are the least times per
    I/O that each resource allows, at depths above 1. ``headroom``: what limits hides what the protection
    costs, up to which load; null if it does not. ``implementation_ns`` is the time beyond the digital
    twin's. ``ipsec_itself_ns`` is how much longer the twin takes with IPsec. ``cipher_ns`` is the time of
    the stand-alone ciphers. ``missing`` says what is unknown, and what would tell. If ``is_disturbed``,
    other programs spoiled all of its repeats, and it moves ``at_least_mb_s`` without them.
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
    bounds_ns: dict[str, int]
    change: PrintedChange | None
    headroom: Headroom | None
    implementation_ns: Span | None
    ipsec_itself_ns: float | None
    cipher_ns: Span | None
    missing: list[str]
    is_disturbed: bool


class PrintedVerdicts(TypedDict):
    """Each cell, in ``corrections`` what earlier versions said wrongly, in ``tried`` the forecasts that
    were tried, and in ``volumes`` what disks would give over the columns: computed."""

    cells: list[PrintedVerdict]
    corrections: list[str]
    tried: list[Tried]
    volumes: list[VolumeOverPath]


class PrintedFigures(TypedDict):
    """The answer on each figure of a file, in its order."""

    figures: list[Judged]
