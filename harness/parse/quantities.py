"""Numbers as people write them, each the interval of what it can be: its printed digits, a range, "about",
"under", a part of one core, idle cores, a percentile.

Times are in seconds, sizes in bytes. A text that is not understood is ``Unused``; what is ambiguous, or no
such quantity, is another UsageError.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from typing import Any

from harness.analysis.interval import Interval, exact
from harness.model.errors import UsageError
from harness.model.units import parse_size, shown


class Unused(UsageError):
    """A value or a key that nothing is known of: the answer can do without."""


ABOUT = 0.05
"""How far off a figure is at least that somebody calls "about" so much."""

_NUMBER = r"([0-9][0-9.,]*(?:e[-+]?[0-9]+)?)"
_ONE = re.compile(rf"{_NUMBER}\s*(.*)", re.IGNORECASE)
_RANGE = re.compile(
    rf"{_NUMBER}\s*((?!e[-+]?[0-9])[^0-9]*?)\s*(?:-|[\u2013\u2014]|\.\.|\bto\b)\s*([0-9].*)", re.IGNORECASE
)
_ABOUT = re.compile(
    r"(?:~|≈|(?:about|around|approx(?:\.|imately)?|roughly|circa|ca\.?|nearly|almost)\b\.?)\s*", re.I
)
_UNDER = re.compile(r"(?:<=?|≤|(?:under|below|less than|at most|up to|max\.?)(?=[\s0-9]))\s*", re.IGNORECASE)
PER = r"(?:ps|/s(?:ec(?:ond)?)?|\s*per\s*(?:second|sec|s))?"
IOPS = re.compile(r"([kKM]?)\s*(?:iops|ios?/s(?:ec)?|io/s)", re.IGNORECASE)
PPS = re.compile(rf"([kKMG]?)\s*(?:pps|p/s|(?:packets|frames){PER})", re.IGNORECASE)
CORE = r"of (?:one|a|1) (?:core|cpu)"
POWERS = " kmgt"
_SIZE = re.compile(r"([kmgt]?)(i?)(?:b(?:ytes?)?)?", re.IGNORECASE)
_TIMES = {
    "ns": 1e-9,
    "us": 1e-6,
    "usec": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60,
    "min": 60,
    "h": 3600,
}
SMALLEST, LARGEST = 1e-18, 1e18


def not_understood(what: str, expected: str, found: str, hint: str) -> UsageError:
    return Unused(f"{what}: expected {expected}, found {shown(found)}", hint=hint)


def number(text: str, what: str, scale: Callable[[str], float]) -> tuple[Interval, str]:
    """What the number that ``text`` begins with can be, times the ``scale`` of the unit that follows, and
    that unit. Unused where there is no number, UsageError for one that is ambiguous, not above 0 or not
    finite, or that is so near to either that no quotient is a number."""
    text = re.sub(r"\s*\([^()]*\)$", "", text.strip())
    near, below = _ABOUT.match(text), _UNDER.match(text)
    text = text[(near or below).end() :] if (near or below) else text  # type: ignore[union-attr]
    if between := _RANGE.fullmatch(text):
        (high, unit), first = number(between[3], what, scale), between[2]
        for each in (first or unit, first + unit[1:], first + unit):
            with contextlib.suppress(UsageError):
                low = number(f"{between[1]} {each}", what, scale)[0]
                ends = sorted((low.mid, high.mid))
                return Interval(ends[0], sum(ends) / 2, ends[1]), unit
    found = _ONE.fullmatch(text)
    digits, unit = (found[1].rstrip(".,"), found[2].strip()) if found else ("", "")
    if IOPS.fullmatch(unit) or PPS.fullmatch(unit):
        digits = digits.replace(",", "")  # none is done by parts
    if re.fullmatch(r"[0-9]{1,3},[0-9]{3}", digits):
        raise UsageError(
            f"{what}: {shown(text)} could mean {digits.replace(',', '')} or {digits.replace(',', '.')}",
            hint="write a decimal point, or leave the comma out",
        )
    digits = digits.replace(",", ".").lower()
    hint = 'try "1.8 Gbit/s", "110 MB/s", "0.2 ms" or "95 %"'
    value = float(digits) if re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", digits) else math.nan
    if not SMALLEST <= value <= LARGEST:
        is_word = found is None and re.match(r"-|nan|inf", text, re.IGNORECASE) is None
        kind = Unused if is_word else UsageError
        expected = "a number above 0 with its unit"
        raise kind(f"{what}: expected {expected}, found {shown(text)}", hint=hint)
    mantissa, _, exponent = digits.partition("e")
    half = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / 2
    half = min(value, max(half, ABOUT * value) if near else half)
    can_be = Interval(0.0, value, value) if below else Interval(value - half, value, value + half)
    return can_be.times(scale(unit)), unit


def one_line(value: Any, what: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # TOML's hexadecimal integers have no limit, and Python writes none of more than 4300 digits.
    if not isinstance(value, str) and (not is_number or abs(value) > LARGEST):
        kind = "a number" if is_number else type(value).__name__
        raise UsageError(f"{what}: expected a text or a number below 1e18, found {kind}", hint="use quotes")
    text = str(value)
    if len(text) > 2000 or not text.isprintable():
        raise UsageError(
            f"{what}: expected one line of visible characters, found {shown(text)}", hint="shorten it"
        )
    return text


def part(value: object, what: str) -> Interval:
    """``100 %``, 100 or ``1.0``: a part of one core, or of all. A number up to 1 is a part. ``85 % idle``."""
    text = one_line(value, what).strip()
    if text.lower() in {"idle", "full"}:
        return exact(0.05 if text.lower() == "idle" else 1.0)
    bare, idle = re.subn(r"\s*\b(idle|id)\b", "", text, flags=re.IGNORECASE)
    if zero := re.fullmatch(r"0*\.?0*\s*%?", bare):
        return exact(1.0 if idle and zero else 0.0)

    def scale(unit: str) -> float:
        if not re.fullmatch(rf"(%|percent)?( ?{CORE})?( busy| used| load)?", unit, re.IGNORECASE):
            raise not_understood(what, "a percentage", text, 'try "95 %"')
        return 0.01 if unit else 1.0

    found, unit = number(bare, what, scale)
    found = found.times(0.01) if not unit and found.mid > 1 else found
    if found.mid > 1000:
        raise not_understood(what, "a percentage", text, 'try "95 %"')
    return found.falling(lambda load: max(0.0, 1 - load)) if idle else found


def duration(value: object, what: str) -> Interval:
    """Seconds for ``0.2 ms``, ``150us``, ``1 s``."""
    text = one_line(value, what).replace("µ", "u").replace("μ", "u")

    def scale(unit: str) -> float:
        if unit not in _TIMES:
            raise not_understood(what, "a time with its unit", text, 'try "0.2 ms"')
        return _TIMES[unit]

    return number(text, what, scale)[0]


def latency(value: object, what: str) -> Interval:
    """The same of an I/O. Of a percentile (``2 ms p99``) the mean is at least the part that takes longer
    (Markov's inequality)."""
    text = re.sub("[()]", " ", one_line(value, what))
    named = r"\bp\.?([0-9]{2}(?:\.?[0-9]+)?)\b|\b([0-9]{2}(?:\.[0-9]+)?)(?:th|st|nd|rd)\b"
    found = re.search(named, text)
    words = r"\b(?:median|percentile|mean|average|avg|latency)\b"
    bare = re.sub(f"{named}|{words}", " ", text).strip(" :=@,")
    reported = duration(bare, what)
    if found is None and "median" not in text:
        return reported
    slower = 1 - float(f"0.{(found[1] or found[2]).replace('.', '')}") if found else 0.5
    return Interval(slower * reported.low, reported.mid, math.inf)


def count(value: object, what: str) -> int:
    """A whole number from 1, also as ``QD32``, ``-P 8`` or ``8 parallel streams``."""
    ends = r"^\s*(qd|x|-P)\s*|\s*(x|(parallel )?(streams?|connections?|flows?|jobs?|cores?|threads?))\s*$"
    text = re.sub(ends, "", one_line(value, what), flags=re.IGNORECASE)
    if not re.fullmatch(r"[0-9]{1,7}", text) or not int(text):
        kind = UsageError if re.fullmatch(r"[-0-9.]+", text) else Unused
        raise kind(f"{what}: expected a whole number from 1, found {shown(str(value))}", hint="try 1 or 32")
    return int(text)


def size(value: object, what: str) -> int:
    """Bytes for ``4k``, ``128 KB``, ``64KiB``, ``1M``: K is 1024, as in fio."""
    text = one_line(value, what).strip()
    if not re.search("[0-9]", text):
        raise not_understood(what, "a number of bytes", text, "try 4k")
    found = re.fullmatch(rf"(?:\bqd\s*)?([0-9][0-9.]*)\s*{_SIZE.pattern}", text, re.IGNORECASE)
    return parse_size(f"{found[1]}{found[2]}" if found else text, what=what)


def sizes(value: object, what: str) -> Interval:
    """What may be so many bytes: of ``64 KB`` powers of 1000 and of 1024."""
    text = one_line(value, what)

    def scale(unit: str) -> float:
        if (found := _SIZE.fullmatch(unit)) is None:
            raise not_understood(what, "a number of bytes", text, "try 64K")
        return float(1024.0 ** POWERS.index(found[1].lower() or " "))

    found, unit = number(text, what, scale)
    powers = POWERS.index(unit[:1].lower() if re.fullmatch("[kmgt]b(ytes?)?", unit, re.I) else " ")
    return Interval(found.low / 1.024**powers, found.mid, found.high)


def mtu(value: object, what: str) -> int:
    """Bytes. UsageError below 68, which RFC 791 has every machine forward whole, and above 64 KiB."""
    found = 9000 if str(value)[:5].lower() == "jumbo" else size(value, what)
    if not 68 <= found <= 65536:
        raise UsageError(f"{what}: expected 68 to 65536 bytes (RFC 791), found {found}", hint="try 1500")
    return found
