"""What may limit a cell: a rule for each, in the order in which they are shown.

A rule says which part of an I/O's time is its own, what it allows at most, what it is called, how sure a
verdict is that names it, and what would help. ``verdict`` finds out which of them holds; ``text`` and the
report print what it declares.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harness.analysis import wire
from harness.analysis.change import ChangeKind, ChangeStep
from harness.analysis.limit import Limit
from harness.explain import remedy
from harness.explain.evidence import Evidence
from harness.explain.waterfall import Sample
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

    ``words`` is how people call it. ``parts`` are those of the waterfall that are its time (``of_part``).
    ``is_of_link``: it is time that the emulated link takes. ``is_sure``: its evidence was measured for it,
    and is no single profile's figure or difference; where it is not, ``unsure`` says what was not measured.
    ``detail`` is what exactly limits, for the brackets behind the verdict; ``change`` what would help, if
    it can be made and forecast, and ``advice`` what may help, where that cannot be.
    """

    words: Callable[[Evidence], str]
    parts: tuple[str, ...]
    is_of_link: bool = False
    is_sure: Callable[[Evidence], bool] = lambda evidence: evidence.rtt_ns is not None
    unsure: str = "no round trip was measured"
    detail: Callable[[Evidence], str] = lambda _: ""
    change: Callable[[Sample], ChangeStep | None] = lambda _: None
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


def _rate(evidence: Evidence) -> str:
    return f"{evidence.rate_bit_s / 1e6:g} Mbit/s" if evidence.rate_bit_s else ""


def _round_trip(evidence: Evidence) -> str:
    if (path := evidence.path) is None:
        return ""
    return f"{path.round_trip_ns / 1000:.0f} us"


def _window(evidence: Evidence) -> str:
    if (path := evidence.path) is None:
        return ""
    return f"{format_size(path.window_bytes or 0)} in {path.round_trip_ns / 1000:.0f} us"


def _dialogue(evidence: Evidence) -> str:
    if (path := evidence.path) is None:
        return ""
    return f"{path.r2ts} R2T for each command" if path.r2ts else "headers"


def _cipher(evidence: Evidence) -> str:
    whole, ciphers = evidence.time_ns, evidence.cipher_ns
    alone = f"at least {ciphers.low / whole.high:.0%} of a core" if ciphers and whole else ""
    return _in_brackets(evidence.driver or evidence.column.title, alone, _busy(evidence))


def _work(evidence: Evidence) -> str:
    whole, ciphers = evidence.time_ns, evidence.cipher_ns
    most = f"{min(1.0, ciphers.high / whole.low):.0%}" if ciphers and whole else ""
    return _in_brackets(_busy(evidence), f"ciphers at most {most} of the time" if most else "")


def _processor(evidence: Evidence) -> str:
    if evidence.limit_of_target == "cpu":
        return "the target's processor"
    return f"processor work{' outside crypto' if evidence.column.protection else ''}"


def _lost_packets(evidence: Evidence) -> str:
    if (lost := evidence.lost_packets) is None:
        return ""
    return f"TCP retransmitted {lost.resent_bytes} bytes, the slowest I/O took {lost.slowest_ns / 1e6:.0f} ms"


def _emulation(evidence: Evidence) -> str:
    added = evidence.emulation_ns
    emulation = f"emulation takes about {added.mid / 1000:.0f} us of each I/O" if added and added.mid else ""
    return _in_brackets(emulation, _busy(evidence))


def _faster_device(guess: Sample) -> ChangeStep | None:
    # Memory that takes half the time is advice for nobody.
    is_memory = guess.evidence.is_memory or guess.evidence.reread is not None
    return None if is_memory else ChangeStep(ChangeKind.DEVICE, 0.5)


def _is_window_transports(guess: Sample) -> bool:
    """What a window that the link's profile limits lets through was forecast wrongly."""
    if guess.path is None:
        return False
    transport = wire.transport(guess.evidence.column.transport or DEFAULT_TRANSPORT)
    return guess.path.window_bytes in (None, transport.window_bytes)


def _faster_link(guess: Sample) -> ChangeStep | None:
    return (
        ChangeStep(ChangeKind.RATE, 2) if _is_window_transports(guess) and guess.faster is not None else None
    )


def _deeper_queue(guess: Sample) -> ChangeStep | None:
    is_narrow = guess.path is not None and guess.path.is_window_narrow(guess.depth)
    return remedy.deeper(guess) if _is_window_transports(guess) and not is_narrow else None


def _of_transport(evidence: Evidence) -> str:
    transport = evidence.column.transport
    return wire.transport(transport).remedy if transport else ""


def _transport(evidence: Evidence) -> str:
    return f"{TRANSPORTS.get(evidence.column.transport or '', 'the transport')}'s own round trips and headers"


RULES = {
    Limit.DEVICE: Rule(
        words=_device,
        detail=lambda evidence: evidence.reread.words if evidence.reread is not None else "",
        parts=("device",),
        is_sure=lambda _: True,
        change=_faster_device,
    ),
    Limit.TARGET: Rule(
        words=lambda _: "the target",
        parts=("target",),
        is_sure=lambda _: False,
        unsure="its disk and processor were not measured separately",
        detail=lambda e: f"its disk{'' if e.reread is None else ', its memory'} or its processor",
        advice=lambda _: TELLS_APART,
    ),
    Limit.LINK: Rule(
        words=lambda _: "the link's rate",
        parts=("link",),
        is_of_link=True,
        detail=_rate,
        change=_faster_link,
    ),
    Limit.ROUND_TRIP: Rule(
        words=lambda _: "the round trip",
        parts=("round_trip",),
        is_of_link=True,
        detail=_round_trip,
        change=_deeper_queue,
    ),
    Limit.WINDOW: Rule(
        words=lambda _: "TCP's window",
        parts=("window",),
        is_of_link=True,
        detail=_window,
    ),
    Limit.TRANSPORT: Rule(
        words=_transport,
        parts=("transport",),
        is_of_link=True,
        detail=_dialogue,
        advice=_of_transport,
    ),
    Limit.FRAMING: Rule(
        words=lambda evidence: f"{evidence.column.framed or 'the protection'}'s framing",
        parts=("framing",),
        is_of_link=True,
    ),
    Limit.LOST_PACKETS: Rule(
        words=lambda _: "lost packets",
        parts=("lost_packets",),
        is_sure=lambda _: True,
        detail=_lost_packets,
        advice=lambda _: "check the drop counters of both ends (ip -s link, ethtool -S) and of switches",
    ),
    Limit.CRYPTO: Rule(
        words=lambda _: "crypto work",
        parts=("crypto",),
        is_sure=_is_work_known,
        unsure=UNKNOWN_WORK,
        detail=_cipher,
    ),
    Limit.CPU: Rule(
        words=_processor,
        parts=("cpu",),
        is_sure=_is_work_known,
        unsure=UNKNOWN_WORK,
        detail=_work,
    ),
    Limit.LAB: Rule(
        words=lambda _: "the lab itself",
        parts=("emulation",),
        is_sure=lambda evidence: evidence.busy is not None or evidence.emulation_ns is not None,
        unsure="neither processors nor emulation were monitored",
        detail=_emulation,
    ),
    Limit.LATENCY: Rule(words=lambda _: "too few I/Os in flight", parts=()),
    Limit.UNKNOWN: Rule(words=lambda _: "something unexplained", parts=("rest",)),
}

TELLS_APART = (
    "read the target's counters or log in there (--target) to separate its disk from its processor; the "
    "same blocks in sequence and at random, one at a time, may do so too"
)


_OWNERS = {name: limit for limit in Limit for name in RULES[limit].parts}


def of_part(name: str, sample: Sample) -> Limit:
    """The limit that a part of the time belongs to. If a link is emulated and nothing is protected, what
    processors do is the lab's own; of a target of which nothing was watched, "device" is all of it."""
    if name == "device" and sample.evidence.is_one_end:
        return Limit(sample.evidence.limit_of_target or Limit.TARGET)
    return Limit.LAB if name == "cpu" and sample.is_bare_emulation else _OWNERS.get(name, Limit.UNKNOWN)
