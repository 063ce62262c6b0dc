"""Numbers as people write them, each the interval of what it can be: its printed digits, a range, "about",
"under", a part of one core, idle cores, a percentile.

Times are in seconds, sizes in bytes, throughputs per second. A text that is not understood is ``Unused``;
what is ambiguous, or no such quantity, is another UsageError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from harness.analysis.interval import Interval, exact
from harness.model.errors import UsageError
from harness.model.units import parse_size, shown


class Unused(UsageError):
    """A value or a key that nothing is known of: the answer can do without."""


ABOUT = 0.05
"""How far off a figure is at least that somebody calls "about" so much."""

SMALLEST, LARGEST = 1e-18, 1e18

IOS, PACKETS = "ios", "packets"
"""What is counted, not bytes."""

_QUALIFIED = re.compile(
    r"(?:(~|≈|(?:about|around|approx(?:\.|imately)?|roughly|circa|ca\.?|nearly|almost)\b\.?)"
    r"|(<=?|≤|(?:under|below|less than|at most|up to|max\.?)(?=[\s0-9])))?\s*(.*)",
    re.IGNORECASE,
)
_NUMBER = r"([0-9][0-9.,]*(?:e[-+]?[0-9]+)?)"
_ONE = re.compile(rf"{_NUMBER}\s*(.*)", re.IGNORECASE)
_RANGE = re.compile(
    rf"{_NUMBER}\s*((?!e[-+]?[0-9])[^0-9]*?)\s*(?:-|[\u2013\u2014]|\.\.|\bto\b)\s*([0-9].*)", re.IGNORECASE
)
_PER = r"(?:ps|/s(?:ec(?:ond)?)?|\s*per\s*(?:second|sec|s))?"
_THROUGHPUT = re.compile(
    r"([kKMGTmgt]?|(?i:kilo|mega|giga|tera))(i?)\s*(?:"
    rf"(?P<ios>(?i:iops|ios?/s(?:ec)?))|(?P<packets>(?i:pps|p/s|(?:packets|frames){_PER}))"
    rf"|(?P<bytes>(?:B|(?i:bytes?)){_PER})|(?P<bits>(?:b|(?i:bits?)){_PER}))"
)
_POWERS = " kmgt"
_SIZE = re.compile(r"[kmgt]?(?:ib)?|b", re.IGNORECASE)
_TIMES = {"ns": 1e-9, "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1, "sec": 1, "min": 60}
CORE = r"of (?:one|a|1) (?:core|cpu)"
_OF_FULL = re.compile(rf"(%|percent)?( ?{CORE})?( busy| used| load)?", re.IGNORECASE)


class Dimension(NamedTuple):
    """A kind of quantity: its words and an example for a message, and how much a unit is of it; None where
    that is no unit of it."""

    words: str
    example: str
    factor: Callable[[str], float | None]


def counted(unit: str) -> str:
    """``IOS`` or ``PACKETS`` of a unit per second; "" for bytes and bits."""
    found = _THROUGHPUT.fullmatch(unit)
    return found.lastgroup if found and found.lastgroup in (IOS, PACKETS) else ""


def _per_second(unit: str) -> float | None:
    if (found := _THROUGHPUT.fullmatch(unit)) is None:
        return None
    if re.match(r"[kmgt]b(?!it|ps)", unit):
        either = f"{unit[0].upper()}B/s for bytes, {unit[0].upper()}bit/s for bits"
        raise UsageError(f"{shown(unit)} could mean bits or bytes", hint=f"write {either}")
    power = _POWERS.index(found[1][:1].lower() or " ")
    return float((1024.0 if found[2] else 1000.0) ** power / (8 if found["bits"] else 1))


THROUGHPUT = Dimension(
    "a number with a unit such as MB/s, MiB/s, Mbit/s, Gbit/s, IOPS or pps", '"110 MB/s"', _per_second
)
PART = Dimension(
    "a percentage", '"95 %"', lambda unit: (0.01 if unit else 1.0) if _OF_FULL.fullmatch(unit) else None
)
TIME = Dimension("a time with its unit", '"0.2 ms"', lambda unit: _TIMES.get(re.sub("[µμ]", "u", unit)))
SIZE = Dimension(
    "a number of bytes", "64K", lambda unit: parse_size(f"1{unit}") if _SIZE.fullmatch(unit) else None
)


def number(text: str, kind: Dimension) -> tuple[Interval, str]:
    """What the number that ``text`` begins with can be, times the unit that follows, and that unit. Unused
    where there is no number or no such unit, UsageError for a number that is ambiguous, not above 0 or not
    finite, or that is so near to either that no quotient is a number."""
    about, below, bare = _QUALIFIED.findall(re.sub(r"\s*\([^()]*\)$", "", text.strip()))[0]
    if between := _RANGE.fullmatch(bare):
        (end, unit), own = number(between[3], kind), between[2]
        # 21k-22k IOPS: the first has its prefix alone.
        own = next((each for each in (own or unit, own + unit[1:]) if kind.factor(each)), own)
        low, high = sorted((number(f"{between[1]} {own}", kind)[0].mid, end.mid))
        return Interval(low, (low + high) / 2, high), unit
    found = _ONE.fullmatch(bare)
    digits, unit = (found[1].rstrip(".,"), found[2].strip()) if found else ("", "")
    if counted(unit):
        digits = digits.replace(",", "")  # none is done by parts
    if re.fullmatch(r"[0-9]{1,3},[0-9]{3}", digits):
        both = f"{digits.replace(',', '')} or {digits.replace(',', '.')}"
        raise UsageError(
            f"{shown(text)} could mean {both}", hint="write a decimal point, or leave the comma out"
        )
    digits = digits.replace(",", ".").lower()
    value = float(digits) if re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", digits) else math.nan
    hint = f"try {kind.example}"
    if not SMALLEST <= value <= LARGEST:
        is_word = found is None and re.match(r"-|nan|inf", bare, re.IGNORECASE) is None
        refused = Unused if is_word else UsageError
        raise refused(f"expected a number above 0 with its unit, found {shown(text)}", hint=hint)
    if (factor := kind.factor(unit)) is None:
        raise Unused(f"expected {kind.words}, found {shown(text)}", hint=hint)
    mantissa, _, exponent = digits.partition("e")
    half = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) / 2
    half = min(value, max(half, ABOUT * value) if about else half)
    can_be = Interval(0.0, value, value) if below else Interval(value - half, value, value + half)
    return can_be.times(factor), unit


def part(text: str) -> Interval:
    """``100 %``, 100 or ``1.0``: a part of one core, or of all. A number up to 1 is a part. ``85 % idle``."""
    text = {"idle": "5 %", "full": "100 %"}.get(text.strip().lower(), text.strip())
    bare, idle = re.subn(r"\s*\b(idle|id)\b", "", text, flags=re.IGNORECASE)
    if re.fullmatch(r"0[0.]*\s*%?", bare):
        return exact(1.0 if idle else 0.0)
    found, unit = number(bare, PART)
    found = found.times(0.01) if not unit and found.mid > 1 else found
    return found.falling(lambda load: max(0.0, 1 - load)) if idle else found


def duration(text: str) -> Interval:
    """Seconds for ``0.2 ms``, ``150us``, ``1 s``."""
    return number(text, TIME)[0]


def latency(text: str) -> Interval:
    """The same of an I/O. Of a percentile (``2 ms p99``) the mean is at least the part that takes longer
    (Markov's inequality)."""
    text = re.sub(r"\bmedian\b", "p50", re.sub("[()]", " ", text))
    named = r"\bp\.?([0-9]{2}(?:\.?[0-9]+)?)\b|\b([0-9]{2}(?:\.[0-9]+)?)th\b"
    bare = re.sub(rf"{named}|\b(?:percentile|mean|average|avg|latency)\b", " ", text).strip(" :=@,")
    reported, found = duration(bare), re.search(named, text)
    if found is None:
        return reported
    slower = 1 - float(f"0.{(found[1] or found[2]).replace('.', '')}")
    return Interval(slower * reported.low, reported.mid, math.inf)


def count(text: str) -> int:
    """A whole number from 1, also as ``QD32``, ``-P 8`` or ``8 parallel streams``."""
    ends = r"^\s*(qd|x|-P)\s*|\s*(x|(parallel )?(streams?|connections?|flows?|jobs?|cores?|threads?))\s*$"
    bare = re.sub(ends, "", text, flags=re.IGNORECASE)
    if not re.fullmatch(r"[0-9]{1,7}", bare) or not int(bare):
        refused = UsageError if re.fullmatch(r"[-0-9.]+", bare) else Unused
        raise refused(f"expected a whole number from 1, found {shown(text)}", hint="try 1 or 32")
    return int(bare)


def size(text: str) -> int:
    """Bytes for ``4k``, ``128 KB``, ``64KiB``, ``1M``: K is 1024, as in fio."""
    if not re.search("[0-9]", text):
        raise Unused(f"expected {SIZE.words}, found {shown(text)}", hint="try 4k")
    return parse_size(re.sub(r"i?b(?:ytes?)?$", "", text.strip(), flags=re.IGNORECASE))


def sizes(text: str) -> Interval:
    """What may be so many bytes: of ``64 KB`` powers of 1000 and of 1024."""
    power = 0
    if found := re.search(r"([kmgt])b(ytes?)?\s*$", text, re.IGNORECASE):
        text, power = text[: found.end(1)], _POWERS.index(found[1].lower())
    can_be = number(text, SIZE)[0]
    return Interval(can_be.low / 1.024**power, can_be.mid, can_be.high)


def mtu(text: str) -> int:
    """Bytes. UsageError below 68, which RFC 791 has every machine forward whole, and above 64 KiB."""
    found = 9000 if text[:5].lower() == "jumbo" else size(text)
    if not 68 <= found <= 65536:
        raise UsageError(f"expected 68 to 65536 bytes (RFC 791), found {found}", hint="try 1500")
    return found
