"""Figures that somebody else measured, and what they reported of the machine: ten lines of TOML, any usual
unit.

All keys may be missing. A file has one figure, or several as ``[[figure]]``, which share the keys above.
What people write of a number is an interval: its printed digits, a range, "about" or "under". A value or a
key of which nothing is understood is kept as ``unused`` with the reason; what is misspelt, ambiguous or no
such quantity is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.interval import Interval
from harness.model.errors import UsageError
from harness.model.units import parse_rate_bit_s, shown
from harness.parse.files import TomlFile, read_text
from harness.questions.figures import quantities
from harness.questions.figures.quantities import CORE, LARGEST, THROUGHPUT, Unused

KIND = "figures"
PARTS = "parts"


class Amount(msgspec.Struct, frozen=True):
    """A throughput: bytes of data per second, or in another ``unit``: I/Os or packets per second, or parts of
    something else: the ``link``, another figure's key (``unprotected``) or its title."""

    value: Interval
    unit: str = ""
    part_of: str = ""


class ReportedLink(msgspec.Struct, frozen=True):
    """``rate_bit_s``, as negotiated if reported, is None where the words have none. A bond has at least
    so many ``members``, and one connection has one. ``is_radio`` and ``is_half`` (duplex): both directions
    share it, and the rate is the radio's; ``is_memory``: it is none, but a path within one machine."""

    words: str
    rate_bit_s: float | None = None
    is_radio: bool = False
    is_memory: bool = False
    is_half: bool = False
    members: int = 1


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """One figure as reported; times in seconds, sizes in bytes.

    Loads are parts of one core (``busiest_core``; above 1 it is so many full ones) or of all (``processor``),
    at the end that sends or asks, and at the ``target``, which receives or serves. Other figures of the same
    machines: ``unprotected``, ``local`` (the disk by itself), ``network`` (TCP by itself), ``in_parallel``
    (streams, tunnels or requests at once, in sum) and ``cipher`` (the algorithm on one core, no packets).
    ``latency`` is the mean of an I/O; of a percentile, all that the mean can be.
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
    round_trip: Interval | None = None
    latency: Interval | None = None
    window: Interval | None = None
    block: int | None = None
    packet: int | None = None
    depth: int | None = None
    jobs: int | None = None
    streams: int | None = None
    cores: int | None = None
    busiest_core: Interval | None = None
    target_busiest_core: Interval | None = None
    processor: Interval | None = None
    target_processor: Interval | None = None
    loss: Interval | None = None
    unused: tuple[str, ...] = ()


def has(pattern: str, words: str) -> bool:
    """Whether the words have it, in whichever case."""
    return re.search(pattern, words, re.IGNORECASE) is not None


def amount(text: str) -> Amount:
    """``1.8 Gbit/s``, ``110 MB/s``, ``940 Mbps``, ``52k IOPS``, ``1.2 Mpps``, ``70 % of clear``."""
    if found := re.fullmatch(r"(.*[0-9]\s*%?)\s*of (?:the )?([^\s].*)", text.strip(), re.IGNORECASE):
        title = found[2].strip("'\"")
        of = re.sub(r"[\s-]+", "_", title.removesuffix(" figure").lower())
        key = "link" if of in {"line", "line_rate", "link_rate", "wire"} else ALSO.get(of, of)
        is_key = key == "link" or READ.get(key) is amount
        return Amount(quantities.part(found[1]), PARTS, key if is_key else title)
    value, unit = quantities.number(text, THROUGHPUT)
    return Amount(value, quantities.counted(unit))


_RATE = (
    r"(?:([0-9]{1,3}) ?(?:[x*\u00d7] ?|(?=dual)))?(dual[- ]port\w* ?)?"
    r"([0-9]+(?:\.[0-9]+)?)[ -]?(?:([GMT])(?-i:(i?B(?:ytes)?/s)?)|(base))"
)
"""Groups: how many, of two ports each, a number, its prefix, whether of bytes, and whether of BASE-T."""

_RATES = (rf"(?:negotiat\w*|linked|link speed|speed:)[^0-9]{{0,12}}{_RATE}", rf"{_RATE}\S* negotiated", _RATE)
"""What was negotiated comes first."""

ETHERNET_BIT_S = {each * 1e9 for each in (0.01, 0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400, 800)}
"""IEEE 802.3."""


def link(words: str) -> ReportedLink:
    """``10 Gbit/s``, ``2x25GbE``, ``1000BASE-T``, ``gigabit``, ``WiFi 866 Mbit/s``, or no rate at all;
    ``1 GbE (negotiated 100 Mbit/s, half duplex)``, ``2 x 1G bond``."""
    plain = re.sub(r"802\.11\w*|wi-?fi ?[4-7]\w?|[345]g (?=mobile)", "", words, flags=re.IGNORECASE)
    if has(r"-\s*[0-9]+\s*[GM]|\bnan\b|\binf", plain):
        raise UsageError(f"expected the link's rate, found {shown(words)}", hint="try 10 Gbit/s or 2x25GbE")
    named = "1G" if has("gigabit|gbe", plain) else "100M" if has("fast ethernet", plain) else ""
    all_found = (re.search(each, text, re.IGNORECASE) for text in (plain, named) for each in _RATES)
    is_bond = has(r"\bbond|\blacp\b|\blag\b|link aggregat|aggregated|teamed", words)
    rate_bit_s, times = None, 1
    if found := next(filter(None, all_found), None):
        times = int(found[1] or 1) * (2 if found[2] else 1)
        rate_bit_s = float(parse_rate_bit_s(found[3] + (found[4] or "M")) * times * (8 if found[5] else 1))
    if is_bond and times == 1 and rate_bit_s in ETHERNET_BIT_S:
        rate_bit_s *= 2  # that of each link, and there are two at least
    return ReportedLink(
        words,
        rate_bit_s,
        is_radio=has(r"wi-?fi|wlan|802\.11|radio|mobile|\blte", words),
        is_memory=not found
        and has(r"\bveth|loopback|localhost|namespace|netns|same (?:host|machine)", words),
        is_half=has(r"half[- ]?duplex|duplex:? half", words),
        members=max(2, times) if is_bond else 1,
    )


_KEYS: Mapping[Callable[[str], Any], str] = {
    str: """title=name,what source=url machine=hardware,cpu_model disk workload transport=protocol offload
        note=kernel,os,nic,driver,software,tool,date,direction,comment,author protection=ipsec,vpn,encryption
        algorithm=algorithms,proposal,esp,cipher_suite""",
    amount: """throughput=speed,rate,bandwidth,bw,goodput,result,measured,figure,pps iops
        unprotected=clear,plain,baseline,unencrypted,without,without_protection,no_protection,clear_figure
        local=storage,local_disk,disk_alone network=tcp,iperf,iperf3 in_parallel cipher""",
    quantities.count: """depth=iodepth,qd,queue_depth,outstanding jobs=numjobs,threads cores
        streams=connections,sessions,flows,parallel,tunnels""",
    quantities.part: """loss=packet_loss,retransmits
        target_processor=target_cpu,target_load,server_cpu,receiver_processor
        busiest_core=core,core_load,one_core,sender_core,client_core,initiator_core,initiator_busiest_core
        target_busiest_core=target_core,receiver_core,server_core,receiver_busiest_core,server_busiest_core
        processor=cpu,load,cpu_load,processor_load,cpu_usage,cpu_utilization,sender_processor""",
    quantities.duration: "round_trip=rtt,ping",
    quantities.latency: "latency",
    quantities.size: "block=bs,block_size,blocksize,io_size packet=packet_size,frame_size,datagram",
    quantities.sizes: "window=tcp_window",
    quantities.mtu: "mtu",
    link: "link=negotiated,link_speed,duplex",
}
"""By how to read their values: keys, each with other names that people give to it."""

READ = {each.partition("=")[0]: read for read, keys in _KEYS.items() for each in keys.split()}
_OTHERS = (each.partition("=") for keys in _KEYS.values() for each in keys.split())
ALSO = {name: key for key, _, names in _OTHERS for name in names.split(",") if name}

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

MISSPELT = 0.7
"""From which likeness on a key is taken for another one misspelt (difflib)."""

_UNIT = r"(?:(.+?)_)??([kMGTmgt]?i?(?:bit|[bB])[_/]s|[mun]?s|percent|bytes|pps)"
"""A key, if any, that ends with its unit, as in ``round_trip_ms``."""


def one_line(value: object) -> str:
    """A value of TOML as text. UsageError for what is neither a text nor a number."""
    # TOML's hexadecimal integers have no limit, and Python writes none of more than 4300 digits.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > LARGEST
    if not isinstance(value, str) and not is_number:
        found = type(value).__name__
        raise UsageError(f"expected a text or a number below 1e18, found {found}", hint="use quotes")
    text = str(value)
    if len(text) > 2000 or not text.isprintable():
        raise UsageError(f"expected one line of visible characters, found {shown(text)}", hint="shorten it")
    return text


def entry(key: str, value: object) -> tuple[str, Any]:
    """A key's own name, and its value as read. UsageError if there is no such key, or the value is none;
    Unused if nothing is understood of it."""
    name, text = re.sub(r"[\s-]+", "_", key.strip()), one_line(value)
    ends = re.fullmatch(_UNIT, name) if not isinstance(value, str) else None
    if ends:
        name, text = ends[1] or "throughput", f"{text} {ends[2].replace('_', '/')}"
    name = name.lower()
    if name == "iops" and re.search(r"[0-9]\.?\s*[km]?$", text, re.IGNORECASE):
        text += " IOPS"
    if slow := re.fullmatch(r"(?:c?lat(?:ency)?_)?(p[0-9]{2}[0-9.]{0,4})(?:_c?lat(?:ency)?)?", name):
        name, text = "latency", f"{text} {slow[1]}"
    if name in {"negotiated", "link_speed", "duplex"}:
        text = f"{text} duplex" if name == "duplex" else f"negotiated {text}"
    name = ALSO.get(name, name)
    if name.endswith("processor") and re.search(CORE, text):
        name = name.replace("processor", "busiest_core")
    if name == "cipher" and re.match(r"\s*[a-z]", text, re.IGNORECASE):
        name = "algorithm"
    if name in READ:
        return name, READ[name](text)
    if near := difflib.get_close_matches(name, [*READ, *ALSO], 1, MISSPELT):
        raise UsageError("there is no key of that name", hint=f"did you mean {ALSO.get(near[0], near[0])}?")
    raise Unused("there is no key of that name", hint=f"there are {', '.join(READ)}")


def load(path: Path) -> tuple[Reported, ...]:
    """The figures of a file. UsageError, with the line, for all that is not as above."""
    file = TomlFile(KIND, path, read_text(path, KIND))
    data = file.parse()
    rows: Any = data.pop("figure", [{}]) if isinstance(data.get("figure"), list | dict) else [{}]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise file.refuse("figure", "expected tables", "write [[figure]] above each figure")
    if len(rows) > 1000:
        raise file.refuse("figure", f"expected at most 1000 figures, found {len(rows)}", "split the file")
    shared = _entries(file, data, {})
    return tuple(Reported(**{**shared, **_entries(file, row, shared)}) for row in rows)


_JOINED: Mapping[str, Callable[[Any, Any], Any]] = {
    "note": "{} {}".format,
    "link": lambda of, more: link(f"{of.words}, {more.words}"),
    # The mean tells more than a percentile.
    "latency": lambda one, other: min(one, other, key=lambda each: each.high),
}
"""What several keys say together."""


def _entries(file: TomlFile, data: Mapping[str, object], shared: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    # A link's rate and duplex belong to the link, be it a shared one.
    for key, value in sorted(data.items(), key=lambda item: item[0].lower() != "link"):
        try:
            name, read = entry(key, value)
        except Unused as error:
            found["unused"] = (*found.get("unused", shared.get("unused", ())), f"{key[:60]}: {error.message}")
            continue
        except UsageError as error:
            raise file.refuse(key, error.message, error.hint or "") from error
        before = found.get(name, shared.get(name) if name == "link" and key.lower() != name else None)
        if before and name not in _JOINED:
            raise file.refuse(key, f"{name} appears twice", "remove one")
        found[name] = _JOINED[name](before, read) if before else read
    return found
