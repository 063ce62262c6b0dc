"""What may limit a cell: a rule for each, in the order of the parts of an I/O's time.

A rule says when it holds, what it is called, its letter and colour, how sure a verdict is that names it, and
what would help. ``waterfall`` and ``verdict`` find out which of them holds; ``text`` and the report print
what it declares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from harness.analysis import wire
from harness.analysis.interval import Interval
from harness.analysis.limit import ChangeKind, Limit
from harness.explain.evidence import Evidence
from harness.model import DEFAULT_TRANSPORT, TRANSPORTS
from harness.model.reread import Sign
from harness.model.units import format_size

UNKNOWN_WORK = "cipher and kernel were not measured separately"

DISTURBED = 2.0
"""If the bounds of the stand-alone ciphers are this factor apart, other programs used the processor as
much."""


def is_crypto_known(evidence: Evidence) -> bool:
    """Whether baselines, or ciphers that were not much disturbed, separate crypto from the kernel's path."""
    found = evidence.cipher_ns
    return evidence.null is not None or (found is not None and found.high <= DISTURBED * found.low)


def _is_work_known(evidence: Evidence) -> bool:
    return evidence.busy is not None and (not evidence.column.protection or is_crypto_known(evidence))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that may limit.

    It holds if it takes most of an I/O's time: ``part`` is its part in the waterfall, and ``claims`` are
    parts of other rules that are its own in this cell. ``takes`` is how long its part is, in ns per I/O, if
    that is neither device, path nor processors and nothing else goes on meanwhile. Or it is a condition:
    ``holds`` says why it limits whatever takes time, "" if it does not.

    ``words`` is how people call it, ``short`` how legends do (else its limit's name). Heat maps have its
    ``letter``, and the ``colour`` of its part: one that black text can be read on and everybody can tell
    from the others, as a test requires. A rule with the part of one above it has no colour of its own.

    ``is_of_link``: it is time that the emulated link takes. ``is_sure``: its evidence was measured for it,
    and is no single profile's figure or difference; where it is not, ``unsure`` says what was not measured.
    ``detail`` is what exactly limits, for the brackets behind the verdict; ``change`` what would help, if
    it can be made and forecast, and ``advice`` what may help, where that cannot be.
    """

    words: Callable[[Evidence], str]
    short: str = ""
    letter: str
    colour: str = ""
    part: str = ""
    takes: Callable[[Evidence], Interval | None] | None = None
    claims: Callable[[Evidence], Collection[str]] = lambda _: ()
    holds: Callable[[Evidence], str] = lambda _: ""
    is_of_link: bool = False
    is_sure: Callable[[Evidence], bool] = lambda evidence: evidence.rtt_ns is not None
    unsure: str = "no round trip was measured"
    detail: Callable[[Evidence], str] = lambda _: ""
    change: Callable[[Evidence], ChangeKind | None] = lambda _: None
    advice: Callable[[Evidence], str] = lambda _: ""


def _in_brackets(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _busy(evidence: Evidence) -> str:
    core = f"core of the {evidence.busiest}" if evidence.busiest else "core"
    return f"{core} {evidence.busy.mid:.0%} busy" if evidence.busy is not None else ""


def _device(evidence: Evidence) -> str:
    if evidence.reread is None:
        return "the target's disk" if evidence.is_one_end else "the device"
    is_memory = Sign.AGAIN in evidence.reread.signs and not evidence.is_target_shown
    return "the target's memory" if is_memory else "the target's disk or its memory"


def _device_alone(evidence: Evidence) -> str:
    if not evidence.column.is_local:
        return ""
    return "the disk is the only part involved" if evidence.reread is None else "no other part is known"


def _round_trip(evidence: Evidence) -> str:
    path = evidence.path
    return f"{path.round_trip_ns / 1000:.0f} us" if path else ""


def _window(evidence: Evidence) -> str:
    path = evidence.path
    return f"{format_size(path.window_bytes or 0)} in {_round_trip(evidence)}" if path else ""


def _dialogue(evidence: Evidence) -> str:
    path = evidence.path
    return f"{path.r2ts} R2T for each command" if path and path.r2ts else "headers" if path else ""


def _cipher(evidence: Evidence) -> str:
    whole, ciphers = evidence.time_ns, evidence.cipher_ns
    alone = f"at least {ciphers.low / whole.high:.0%} of a core" if ciphers and whole else ""
    return _in_brackets(evidence.driver or evidence.column.title, alone, _busy(evidence))


def _work(evidence: Evidence) -> str:
    whole, ciphers = evidence.time_ns, evidence.cipher_ns
    has_cipher = evidence.column.has_cipher
    most = f"{min(1.0, ciphers.high / whole.low):.0%}" if has_cipher and ciphers and whole else ""
    return _in_brackets(_busy(evidence), f"ciphers at most {most} of the time" if most else "")


def _processor(evidence: Evidence) -> str:
    if evidence.limit_of_target == "cpu":
        return "the target's processor"
    return f"processor work{' outside crypto' if evidence.column.has_cipher else ''}"


def _lost_packets(evidence: Evidence) -> str:
    if (lost := evidence.lost_packets) is None:
        return ""
    return f"TCP retransmitted {lost.resent_bytes} bytes, the slowest I/O took {lost.slowest_ns / 1e6:.0f} ms"


def _emulation(evidence: Evidence) -> str:
    added = evidence.emulation_ns
    emulation = f"emulation takes about {added.mid / 1000:.0f} us of each I/O" if added and added.mid else ""
    return _in_brackets(emulation, _busy(evidence))


def _faster_device(evidence: Evidence) -> ChangeKind | None:
    # Memory that takes half the time is advice for nobody.
    return None if evidence.is_memory or evidence.reread is not None else ChangeKind.DEVICE


def _is_window_transports(evidence: Evidence) -> bool:
    """What a window that the link's profile limits lets through was forecast wrongly."""
    if evidence.path is None:
        return False
    transport = wire.transport(evidence.column.transport or DEFAULT_TRANSPORT)
    return evidence.path.window_bytes in (None, transport.window_bytes)


def _deeper_queue(evidence: Evidence) -> ChangeKind | None:
    is_narrow = evidence.path is not None and evidence.path.is_window_narrow(evidence.depth or 1)
    return ChangeKind.DEPTH if _is_window_transports(evidence) and not is_narrow else None


def _of_transport(evidence: Evidence) -> str:
    transport = evidence.column.transport
    return wire.transport(transport).remedy if transport else ""


def _transport(evidence: Evidence) -> str:
    return f"{TRANSPORTS.get(evidence.column.transport or '', 'the transport')}'s own round trips and headers"


RULES = {
    Limit.DEVICE: Rule(
        words=_device,
        letter="D",
        colour="#808080",
        part="device",
        holds=_device_alone,
        detail=lambda e: e.reread.words if e.reread is not None and not e.column.is_local else "",
        is_sure=lambda _: True,
        change=_faster_device,
    ),
    Limit.TARGET: Rule(
        words=lambda _: "the target",
        letter="G",
        part="device",
        claims=lambda e: ("device",) if e.is_one_end and not e.limit_of_target else (),
        is_sure=lambda _: False,
        unsure="its disk and processor were not measured separately",
        detail=lambda e: f"its disk{'' if e.reread is None else ', its memory'} or its processor",
        advice=lambda _: TELLS_APART,
    ),
    Limit.LINK: Rule(
        words=lambda _: "the link's rate",
        letter="L",
        colour="#6699dd",
        part="link",
        is_of_link=True,
        detail=lambda evidence: f"{evidence.rate_bit_s / 1e6:g} Mbit/s" if evidence.rate_bit_s else "",
        change=lambda e: ChangeKind.RATE if _is_window_transports(e) and e.faster is not None else None,
    ),
    Limit.ROUND_TRIP: Rule(
        words=lambda _: "the round trip",
        letter="R",
        colour="#99ddff",
        part="round_trip",
        is_of_link=True,
        detail=_round_trip,
        change=_deeper_queue,
    ),
    Limit.WINDOW: Rule(
        words=lambda _: "TCP's window",
        letter="W",
        colour="#bbbb11",
        part="window",
        is_of_link=True,
        detail=_window,
    ),
    Limit.TRANSPORT: Rule(
        words=_transport,
        letter="T",
        colour="#22bb88",
        part="transport",
        is_of_link=True,
        detail=_dialogue,
        advice=_of_transport,
    ),
    Limit.FRAMING: Rule(
        words=lambda evidence: f"{evidence.column.framed or 'the protection'}'s framing",
        letter="F",
        colour="#eedd88",
        part="framing",
        is_of_link=True,
    ),
    Limit.LOST_PACKETS: Rule(
        words=lambda _: "lost packets",
        letter="S",
        colour="#ddff33",
        part="lost_packets",
        takes=lambda evidence: evidence.lost_packets.time_ns if evidence.lost_packets is not None else None,
        is_sure=lambda _: True,
        detail=_lost_packets,
        advice=lambda _: "check the drop counters of both ends (ip -s link, ethtool -S) and of switches",
    ),
    Limit.LAB: Rule(
        words=lambda _: "the lab itself",
        short="the lab itself",
        letter="E",
        colour="#aa77ff",
        part="emulation",
        takes=lambda evidence: evidence.emulation_ns,
        # If a link is emulated and nothing is protected, what processors do is the lab's own.
        claims=lambda e: ("cpu",) if e.is_emulated and not e.column.protection else (),
        is_sure=lambda evidence: evidence.busy is not None or evidence.emulation_ns is not None,
        unsure="neither processors nor emulation were monitored",
        detail=_emulation,
    ),
    Limit.CRYPTO: Rule(
        words=lambda _: "crypto work",
        letter="C",
        colour="#ee7744",
        part="crypto",
        is_sure=_is_work_known,
        unsure=UNKNOWN_WORK,
        detail=_cipher,
    ),
    Limit.CPU: Rule(
        words=_processor,
        short="processor",
        letter="P",
        colour="#ffaabb",
        part="cpu",
        claims=lambda e: ("device",) if e.is_one_end and e.limit_of_target == "cpu" else (),
        is_sure=_is_work_known,
        unsure=UNKNOWN_WORK,
        detail=_work,
    ),
    Limit.LATENCY: Rule(words=lambda _: "too few I/Os in flight", letter="Q"),
    Limit.UNKNOWN: Rule(words=lambda _: "something unexplained", short="unexplained", letter="?"),
}

TELLS_APART = (
    "read the target's counters or log in there (--target) to separate its disk from its processor; the "
    "same blocks in sequence and at random, one at a time, may do so too"
)


_OWNERS = {rule.part: limit for limit, rule in reversed(RULES.items()) if rule.part}


def of_parts(evidence: Evidence) -> dict[str, Limit]:
    """By part of the time: the limit that it belongs to in this cell; what nothing explains has none."""
    claimed = {name: limit for limit, rule in RULES.items() for name in rule.claims(evidence)}
    return {**_OWNERS, **claimed}


def holding(evidence: Evidence) -> tuple[Limit, str] | None:
    """The first limit that holds whatever else takes time, and why; None if the times must tell."""
    return next(((limit, why) for limit, rule in RULES.items() if (why := rule.holds(evidence))), None)
