"""Sizes, times and names as people type them, and the sentences that refuse impossible ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.model.texts import NAME

LARGEST = 2**63 - 1
"""The largest size, in bytes, and the largest time, in nanoseconds: what a signed 64-bit integer holds."""

_NUMBER = r"([0-9]{1,30}(?:\.[0-9]{1,30})?)"
_SIZE = re.compile(_NUMBER + r" ?(?:([KMGTP]?)|([KMGTP])iB|B)", re.ASCII | re.IGNORECASE)
_DECIMAL_SIZE = re.compile(_NUMBER + r" ?([KMGTP])B", re.ASCII | re.IGNORECASE)
_RATE = re.compile(_NUMBER + r" ?([KMGT]?)(?:bit/s)?", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(_NUMBER + r" ?(us|ms|s|m|h|d)?")
_NAME = re.compile(NAME)
_SECONDS = {
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}


def shown(text: str) -> str:
    """``text`` for an error message: quoted, at most 60 characters, unable to drive a terminal."""
    return f"'{printable(text[:60])}{'…' if len(text) > 60 else ''}'"


def parse_size(text: str, *, what: str = "size") -> int:
    """Bytes for ``128M``, ``4k``, ``1.5G``, ``64MiB`` or ``4096``.

    K, M, G, T and P are powers of 1024, as in fio; ``KiB`` and so on mean the same. ``KB`` is refused: fio
    takes it for 1024 bytes and the SI for 1000. UsageError for that, for anything that is not a positive
    whole number of bytes, and above 2**63 - 1; ``what`` names the quantity in its sentence.
    """
    if decimal := _DECIMAL_SIZE.fullmatch(text.strip(" ")):
        number, prefix = decimal[1], decimal[2].upper()
        raise UsageError(
            f"{what}: {shown(text)} could mean powers of 1000 or of 1024",
            hint=f"write {number}{prefix} or {number}{prefix}iB for powers of 1024",
        )
    match = _SIZE.fullmatch(text.strip(" "))
    if match is None:
        raise UsageError(
            f"{what}: expected a number of bytes, found {shown(text)}",
            hint="try 4096, 256K, 128M or 1.5G, where K, M and G are powers of 1024",
        )
    prefix = (match[2] or match[3] or "").upper()
    size = Fraction(match[1]) * 1024 ** " KMGTP".index(prefix or " ")
    if size.denominator != 1:
        raise UsageError(
            f"{what}: {shown(text)} is not a whole number of bytes", hint="use a smaller unit, such as 1536K"
        )
    if not 0 < size <= LARGEST:
        raise UsageError(
            f"{what}: expected more than 0 and at most 2^63 - 1 bytes, found {shown(text)}",
            hint="try 128M",
        )
    return int(size)


def parse_rate_bit_s(text: str, *, what: str = "rate") -> int:
    """Bit/s for ``2.5G``, ``100M``, ``64kbit/s``: K, M, G and T are powers of 1000, as of links.

    UsageError for anything else, and for what is not a whole number of bit/s.
    """
    match = _RATE.fullmatch(text.strip(" "))
    rate = Fraction(match[1]) * 1000 ** " KMGT".index((match[2] or " ").upper()) if match else None
    if rate is None or rate.denominator != 1 or not 0 < rate <= LARGEST:
        raise UsageError(
            f"{what}: expected a number of bits per second, found {shown(text)}", hint="try 100M or 2.5G"
        )
    return int(rate)


def parse_duration_s(text: str, *, what: str = "time") -> float:
    """Seconds for ``1.5s``, ``250ms``, ``2m``, ``1h``, ``1d``, ``20us`` or ``90`` (seconds).

    UsageError for anything else, for zero, and above 2**63 - 1 nanoseconds (292 years).
    """
    match = _DURATION.fullmatch(text.strip(" "))
    if match is None:
        raise UsageError(
            f"{what}: expected a number of seconds or a number and its unit, found {shown(text)}",
            hint="try 1.5s, 250ms, 2m or 1h",
        )
    seconds = Fraction(match[1]) * _SECONDS[match[2] or "s"]
    if not 0 < seconds * 10**9 <= LARGEST:
        raise UsageError(
            f"{what}: expected more than 0 and at most 292 years, found {shown(text)}", hint="try 1.5s or 2m"
        )
    return float(seconds)


def parse_percent(text: str, *, what: str = "part") -> float:
    """The part for ``5%``: 0.05. UsageError for anything else, for 0 % and from 100 % on."""
    match = re.fullmatch(_NUMBER + r" ?%", text.strip(" "), re.ASCII)
    part = Fraction(match[1]) / 100 if match else None
    if part is None or not 0 < part < 1:
        raise UsageError(
            f"{what}: expected a percentage above 0% and below 100%, found {shown(text)}", hint="try 5%"
        )
    return float(part)


def as_part(value: float | str, *, what: str = "part") -> float:
    """The same for a program, which may also give a number from 0 to below 1. UsageError for others."""
    if isinstance(value, str):
        return parse_percent(value, what=what)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise UsageError(
            f"{what}: expected a part from 0 to below 1, found {shown(str(value))}", hint="try 0.05"
        )
    return value


def format_size(size_bytes: float) -> str:
    """``128 MiB``, ``1.5 GiB``, ``512 B``; four significant digits."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        # A value that would round up to 1024 of this unit is 1 of the next.
        if value < 1023.5:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} PiB"


def format_percent(part: float) -> str:
    """``0.1%`` for 0.001; four significant digits."""
    return f"{100 * part:.4g}%"


def format_rate(bit_s: float) -> str:
    """``2.5 Gbit/s``, ``100 Mbit/s``."""
    value = bit_s
    for unit in ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"):
        if value < 999.95:
            return f"{value:.4g} {unit}"
        value /= 1000
    return f"{value:.4g} Tbit/s"


def format_duration(seconds: float) -> str:
    """``250 us``, ``1.5 s``, ``2 min 5 s``, ``3 h 0 min``."""
    if seconds == 0:
        return "0 s"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def about(seconds: float) -> str:
    """``6 min``, ``40 s``: of an estimate."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(0.0, seconds):.0f} s"


def format_ns(ns: float) -> str:
    """A latency, with the unit that suits it."""
    for limit, unit in ((1e9, "s"), (1e6, "ms")):
        if ns >= limit:
            return f"{ns / limit:.3g} {unit}"
    return f"{ns / 1e3:.3g} µs"


def check_name(kind: str, text: str) -> str:
    """``text`` if it is a valid name for runs, links, workloads and so on; else UsageError.

    Names become parts of file names, job files and command lines. So they have 1 to 64 characters of a-z,
    0-9, ``.``, ``_`` and ``-``, and begin with a letter or digit.
    """
    if _NAME.fullmatch(text):
        return text
    raise UsageError(
        f"{kind} name: expected 1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit, "
        f"found {shown(text)}",
        hint=f"try {slug(text, fallback='my-name')}",
    )


def slug(text: str, *, fallback: str) -> str:
    """The nearest valid name to ``text``, or ``fallback`` if nothing is left of it."""
    words = re.sub(r"[^a-z0-9._-]+", "-", text.lower())
    return words.strip("-._")[:64] or fallback


def closest(text: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that ``text`` may be a typo of; None if none is near."""
    return next(iter(difflib.get_close_matches(text, sorted(known), n=1, cutoff=0.5)), None)


def unknown_name(kind: str, text: str, known: Iterable[str]) -> UsageError:
    """The error for a ``kind`` called ``text`` that is not in ``known``: the known names, and the closest
    one."""
    names = sorted(known)
    there = f"there are {', '.join(names)}" if names else "there are none at all"
    near = closest(text, names)
    return UsageError(
        f"there is no {kind} {shown(text)}", hint=f"did you mean {near}? {there}" if near else there
    )


def positive(settings: Mapping[str, str] | Mapping[str, str | None], name: str) -> int:
    """A whole number above 0; 0 for anything else."""
    return whole(settings, name) or 0


def whole(settings: Mapping[str, str] | Mapping[str, str | None], name: str) -> int | None:
    """A whole number; None for anything else."""
    text = settings.get(name) or ""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
