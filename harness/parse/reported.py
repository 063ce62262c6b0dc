"""Figures that somebody else measured, and what they reported of the machine: ten lines of TOML, any usual
unit.

All keys may be missing. A file has one figure, or several as ``[[figure]]``, which share the keys above.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.model.errors import UsageError
from harness.model.units import closest, parse_duration_s, parse_rate_bit_s, parse_size, shown
from harness.parse.files import TomlFile, read_text

KIND = "figures"


class Amount(msgspec.Struct, frozen=True):
    """A throughput: bytes per second of data, or with ``is_io`` I/Os per second. ``step`` is one step of the
    last digit that was printed."""

    value: float
    step: float = 0.0
    is_io: bool = False


class ReportedLink(msgspec.Struct, frozen=True):
    """``rate_bit_s`` is None where the words have none; ``is_radio``: both directions share the air, and the
    rate is the radio's; ``is_memory``: it is none, but a path within one machine."""

    words: str
    rate_bit_s: float | None = None
    is_radio: bool = False
    is_memory: bool = False


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """One figure as reported; times in seconds, sizes in bytes.

    Loads are parts of one core (``busiest_core``; above 1 it is so many full ones) or of all (``processor``),
    at the end that sends or asks, and at the ``target``, which receives or serves. Other figures of the same
    machines: ``unprotected``, ``local`` (the disk by itself), ``network`` (TCP by itself), ``in_parallel``
    (streams, tunnels or requests at once, in sum) and ``cipher`` (the algorithm on one core, no packets).
    """

    title: str = ""
    source: str = ""
    machine: str = ""
    note: str = ""
    link: ReportedLink | None = None
    mtu: int | None = None
    protection: str = ""
    algorithm: str = ""
    offload: str = ""
    transport: str = ""
    workload: str = ""
    disk: str = ""
    throughput: Amount | None = None
    iops: Amount | None = None
    unprotected: Amount | None = None
    local: Amount | None = None
    network: Amount | None = None
    in_parallel: Amount | None = None
    cipher: Amount | None = None
    round_trip: float | None = None
    latency: float | None = None
    window: int | None = None
    block: int | None = None
    depth: int | None = None
    jobs: int | None = None
    streams: int | None = None
    cores: int | None = None
    busiest_core: float | None = None
    target_busiest_core: float | None = None
    processor: float | None = None
    target_processor: float | None = None
    loss: float | None = None


_NUMBER = re.compile(r"(?:~|≈|about |ca\.? )?\s*([0-9][0-9.,]*(?:e[-+]?[0-9]+)?)\s*(.*)", re.IGNORECASE)
_RANGE = re.compile(r"(?:~|≈|about )?\s*([0-9.]+)\s*(?:-|\u2013|to)\s*([0-9.]+)\s*([^0-9].*)")
_PER = r"(?:ps|/s(?:ec(?:ond)?)?|\s*per\s*second)?"
_BYTES_OR_BITS = re.compile(rf"([kKMGTmgt]?)(i?)((?:[bB]it|[bB]yte)s?|[bB])({_PER})")
_IOPS = re.compile(r"([kKM]?)\s*(?:iops|ios?/s(?:ec)?|io/s)", re.IGNORECASE)
_POWERS = " kmgt"
_SIZE = re.compile(r"(?:\bqd\s*)?([0-9][0-9.]*)\s*([kmgt]?)(?:i?b(?:ytes?)?)?", re.IGNORECASE)
_SMALLEST, _LARGEST = 1e-18, 1e18


def _wrong(what: str, expected: str, found: str, hint: str) -> UsageError:
    return UsageError(f"{what}: expected {expected}, found {shown(found)}", hint=hint)


def number(text: str, what: str) -> tuple[float, float, str]:
    """The number that ``text`` begins with, one step of its last digit, and what follows. UsageError for any
    that is not above 0 and finite, or that is so near to either that no quotient is a number."""
    if between := _RANGE.fullmatch(text.strip()):
        # The middle, as uncertain as the range is wide.
        (low, *_), (high, *_) = number(between[1], what), number(between[2], what)
        return (low + high) / 2, abs(high - low), between[3]
    found = _NUMBER.fullmatch(text.strip())
    digits = found[1].rstrip(".,") if found else ""
    if found and _IOPS.fullmatch(found[2].strip()):
        digits = digits.replace(",", "")  # no I/O is done by parts
    if re.fullmatch(r"[0-9]{1,3},[0-9]{3}", digits):
        raise UsageError(
            f"{what}: {shown(text)} could mean {digits.replace(',', '')} or {digits.replace(',', '.')}",
            hint="write a decimal point, or leave the comma out",
        )
    digits = digits.replace(",", ".")
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if found is None or not _SMALLEST <= value <= _LARGEST:
        hint = 'try "1.8 Gbit/s", "110 MB/s", "0.2 ms" or "95 %"'
        raise _wrong(what, "a number above 0 with its unit", text, hint)
    mantissa, _, exponent = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return value, 10.0 ** (int(exponent or 0) - decimals), found[2].strip()


def amount(value: object, what: str) -> Amount:
    """``1.8 Gbit/s``, ``110 MB/s``, ``105 MiB/s``, ``940 Mbps``, ``52k IOPS``."""
    figure, step, unit = number(_text(value, what), what)
    if found := _IOPS.fullmatch(unit):
        factor = 1000.0 ** _POWERS.index(found[1].lower() or " ")
        return Amount(figure * factor, step * factor, is_io=True)
    match = _BYTES_OR_BITS.fullmatch(unit)
    if match is None:
        units = "a unit such as MB/s, MiB/s, Mbit/s, Gbit/s or IOPS"
        raise _wrong(what, units, str(value), f'try "{figure:g} MB/s" or "{figure:g} Mbit/s"')
    prefix, binary, of, per = match.groups()
    if of == "b" and prefix in {"k", "m", "g", "t"} and per != "ps":
        raise UsageError(
            f"{what}: {shown(str(value))} could mean bits or bytes",
            hint=f"write {prefix.upper()}B/s for bytes, {prefix.upper()}bit/s for bits",
        )
    factor = (1024.0 if binary else 1000.0) ** _POWERS.index(prefix.lower() or " ")
    factor /= 1 if of == "B" or "yte" in of else 8
    return Amount(figure * factor, step * factor)


def part(value: object, what: str) -> float:
    """``100 %``, 100 or ``1.0``: a part of one core, or of all. A number up to 1 is a part."""
    if isinstance(value, str) and value.strip().lower() in {"idle", "full"}:
        return 0.05 if value.strip().lower() == "idle" else 1.0
    text = _text(value, what)
    if re.fullmatch(r"0*\.?0*\s*%?", text.strip()):
        return 0.0
    figure, _, unit = number(text, what)
    if not re.fullmatch(r"(%|percent)?( of (one|a|1) (core|cpu))?", unit) or figure > 100_000:
        raise _wrong(what, "a percentage", text, 'try "95 %"')
    return figure / 100 if unit or figure > 1 else figure


def duration(value: object, what: str) -> float:
    """Seconds for ``0.2 ms``, ``150us``, ``1 s``."""
    text = _text(value, what).replace("µ", "u").replace("μ", "u").replace("usec", "us").replace("msec", "ms")
    figure, _, unit = number(text, what)
    if unit == "ns":
        return figure * 1e-9
    if not unit:
        raise _wrong(what, "a time with its unit", text, f'try "{figure:g} ms"')
    return parse_duration_s(f"{figure:.12f}{unit}", what=what)


def count(value: object, what: str) -> int:
    """A whole number from 1, also as ``QD32``."""
    ends = r"^\s*(qd|x)\s*|\s*(x|streams?|jobs?|cores?|threads?)\s*$"
    text = re.sub(ends, "", _text(value, what), flags=re.IGNORECASE)
    if not re.fullmatch(r"[0-9]{1,7}", text) or not int(text):
        raise _wrong(what, "a whole number from 1", str(value), "try 1 or 32")
    return int(text)


def size(value: object, what: str) -> int:
    """Bytes for ``4k``, ``128 KB``, ``64KiB``, ``1M``: K is 1024, as in fio."""
    text = _text(value, what)
    found = _SIZE.fullmatch(text.strip())
    return parse_size(f"{found[1]}{found[2]}" if found else text, what=what)


def link(value: object, what: str) -> ReportedLink:
    """``10 Gbit/s``, ``2x25GbE``, ``1000BASE-T``, ``gigabit``, ``WiFi 866 Mbit/s``, or no rate at all."""
    words = _text(value, what)
    is_radio = re.search(r"wi-?fi|wlan|802\.11|radio|mobile|\blte", words, re.IGNORECASE) is not None
    plain = re.sub(r"802\.11\w*|wi-?fi ?[4-7]\w?|[345]g (?=mobile)", "", words, flags=re.IGNORECASE)
    if re.search(r"-\s*[0-9]+\s*[GM]|\bnan\b|\binf", plain, re.IGNORECASE):
        raise _wrong(what, "the link's rate", words, "try 10 Gbit/s or 2x25GbE")
    found = re.search(
        r"(?:([0-9]{1,3}) ?[x*] ?)?([0-9]+(?:\.[0-9]+)?)[ -]?(?:([GMT])(?-i:(i?B(?:ytes)?/s)?)|(base))",
        plain,
        re.IGNORECASE,
    )
    if found:
        times, digits, prefix, of_bytes, base = found.groups()
        rate = parse_rate_bit_s(digits + ("M" if base else prefix), what=what)
        return ReportedLink(words, float(rate * int(times or 1) * (8 if of_bytes else 1)), is_radio)
    is_memory = re.search(
        r"\bveth|loopback|localhost|namespace|netns|same (?:host|machine)", words, re.IGNORECASE
    )
    named = {"gigabit": 1e9, "gbe": 1e9, "fast ethernet": 1e8}
    rate_bit_s = next((rate for name, rate in named.items() if name in plain.lower()), None)
    return ReportedLink(words, rate_bit_s, is_radio, is_memory is not None)


def _text(value: Any, what: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # TOML's hexadecimal integers have no limit, and Python writes none of more than 4300 digits.
    if not isinstance(value, str) and (not is_number or abs(value) > _LARGEST):
        kind = "a number" if is_number else type(value).__name__
        raise UsageError(f"{what}: expected a text or a number below 1e18, found {kind}", hint="use quotes")
    text = str(value)
    if len(text) > 2000 or not text.isprintable():
        raise _wrong(what, "one line of visible characters", text, "shorten it")
    return text


_READ: Mapping[Callable[[Any, str], Any], str] = {
    _text: "title source machine note protection algorithm offload transport workload disk",
    amount: "throughput iops unprotected local network in_parallel cipher",
    count: "depth jobs streams cores",
    part: "busiest_core target_busiest_core processor target_processor loss",
    duration: "round_trip latency",
    size: "window block mtu",
    link: "link",
}
READ = {key: read for read, keys in _READ.items() for key in keys.split()}
"""By key: how to read its value."""

_ALSO = {
    "throughput": "speed rate bandwidth bw goodput result measured figure",
    "round_trip": "rtt ping",
    "block": "bs block_size blocksize io_size",
    "depth": "iodepth qd queue_depth outstanding",
    "jobs": "numjobs threads",
    "streams": "connections sessions flows parallel tunnels",
    "unprotected": "clear plain baseline unencrypted without without_protection no_protection clear_figure",
    "local": "storage local_disk disk_alone",
    "network": "tcp iperf iperf3",
    "busiest_core": "core core_load one_core sender_core client_core initiator_core initiator_busiest_core",
    "target_busiest_core": "target_core receiver_core server_core receiver_busiest_core server_busiest_core",
    "processor": "cpu load cpu_load processor_load cpu_usage cpu_utilization sender_processor",
    "target_processor": "target_cpu target_load server_cpu receiver_processor",
    "protection": "ipsec vpn encryption",
    "algorithm": "algorithms proposal esp cipher_suite",
    "note": "kernel os nic driver software tool date direction comment author",
    "title": "name what",
    "source": "url",
    "transport": "protocol",
    "machine": "hardware cpu_model",
    "loss": "packet_loss retransmits",
    "window": "tcp_window",
}
ALSO = {name: key for key, names in _ALSO.items() for name in names.split()}
"""Other names that people give to keys."""

QUESTIONS = {
    "throughput": "the figure (1.8 Gbit/s, 110 MB/s, 50k IOPS)",
    "link": "the link (10 Gbit/s, 2x25GbE)",
    "mtu": "its MTU (1500, 9000)",
    "workload": "what was done (iperf3, fio randread 4k)",
    "depth": "how many requests at a time",
    "protection": "the protection (off, or by name, ESP AES-GCM)",
    "unprotected": "the figure without protection",
    "local": "the figure of the disk alone",
    "in_parallel": "the total of several streams, tunnels or requests in parallel",
    "busiest_core": "how busy the busiest core was (100 %)",
    "target_busiest_core": "the same for the target or receiver",
    "processor": "how busy all cores were (12 %)",
    "cores": "how many cores there are",
    "round_trip": "the round trip (0.2 ms)",
    "window": "TCP's window (64K)",
}
"""What ``harness explain --ask`` asks, by key."""

_UNITS = {"percent": "%", "bytes": ""} | {
    unit.lower().replace("/", "_"): unit
    for unit in ["Mbit/s", "Gbit/s", "MB/s", "MiB/s", "GB/s", "GiB/s", "ms", "us", "s"]
}
"""Units as suffixes of keys, as in ``round_trip_ms``."""


def entry(key: str, value: object) -> tuple[str, Any]:
    """A key's own name, and its value as read. UsageError if there is no such key, or the value is none."""
    name = re.sub(r"[\s-]+", "_", key.strip())
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    ends = re.fullmatch(rf"(?:(.+?)_)??({'|'.join(_UNITS)})", name.lower())
    if is_number and _BYTES_OR_BITS.fullmatch(name):
        name, value = "throughput", f"{value} {name}"
    elif is_number and ends and name.lower() not in READ:
        name, value = ends[1] or "throughput", f"{value} {_UNITS[ends[2]]}"
    elif name.lower() == "iops" and re.fullmatch(r"[0-9.,e+]+ ?k?", str(value)[:99]):
        value = f"{value} IOPS"
    name = ALSO.get(name.lower(), name.lower())
    if name.endswith("processor") and re.search(r"of (one|a|1) (core|cpu)", str(value)[:99]):
        name = name.replace("processor", "busiest_core")
    if name == "cipher" and re.match(r"\s*[a-z]", str(value)[:9], re.IGNORECASE):
        name = "algorithm"
    if name not in READ:
        near = closest(name, [*READ, *ALSO])
        hint = f"did you mean {ALSO.get(near, near)}?" if near else f"there are {', '.join(READ)}"
        raise UsageError(f"there is no key {shown(key)}", hint=hint)
    return name, READ[name](value, key.strip())


def load(path: Path) -> tuple[Reported, ...]:
    """The figures of a file. UsageError, with the line, for all that is not as above."""
    file = TomlFile(KIND, path, read_text(path, KIND))
    data = file.parse()
    rows: Any = data.pop("figure", [{}]) if isinstance(data.get("figure"), list | dict) else [{}]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise file.refuse("figure", "expected tables", "write [[figure]] above each figure")
    if len(rows) > 1000:
        raise file.refuse("figure", f"expected at most 1000 figures, found {len(rows)}", "split the file")
    shared = _entries(file, data)
    return tuple(Reported(**{**shared, **_entries(file, row)}) for row in rows)


def _entries(file: TomlFile, data: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        try:
            name, read = entry(key, value)
        except UsageError as error:
            raise file.refuse(key, error.message, error.hint or "") from error
        if name == "note":
            read = f"{found.pop(name, '')} {read}".strip()
        if name in found:
            raise file.refuse(key, f"{name} appears twice", "remove one")
        found[name] = read
    return found
