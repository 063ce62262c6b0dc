"""The modifiers after a link's name, separated by colons or commas: ``wired:jumbo``,
``wired:rate=2.5G,rtt=5ms``, ``switched:3``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from harness.model import Duplex, Hops, LinkProfile
from harness.model.errors import UsageError
from harness.model.kinds import HOPS
from harness.model.units import (
    check_name,
    format_duration,
    format_percent,
    format_rate,
    format_size,
    parse_duration_s,
    parse_percent,
    parse_rate_bit_s,
    parse_size,
    shown,
)
from harness.parse import of_hops
from harness.parse.of_hops import HopWords, Load

MTU_JUMBO = 9000

_PATTERNS = {"count": r"([0-9]{1,4})", "unshaped": r"unshaped()"}
"""By what they change; the group is the value. Some kinds of hops have more (``of_hops``)."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of a profile that a modifier sets: ``rtt=5ms``.

    ``parse`` reads it in its own unit, ``shown`` writes that for people; ``field`` has ``scale`` of it.
    """

    field: str
    parse: Callable[..., float]
    shown: Callable[[float], str]
    title: str
    scale: float = 1


def _count(text: str, *, what: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise UsageError(f"{what}: expected a whole number, found {shown(text)}", hint="try mtu=9000")
    return int(text)


QUANTITIES = {
    "rate": Quantity(field="rate_bit_s", parse=parse_rate_bit_s, shown=format_rate, title="{}"),
    "rtt": Quantity(
        field="delay_us", parse=parse_duration_s, shown=format_duration, title="round trip {}", scale=1e6 / 2
    ),
    "jitter": Quantity(
        field="jitter_us", parse=parse_duration_s, shown=format_duration, title="jitter {}", scale=1e6
    ),
    "loss": Quantity(
        field="loss_percent", parse=parse_percent, shown=format_percent, title="loss {}", scale=100
    ),
    "window": Quantity(field="tcp_window_bytes", parse=parse_size, shown=format_size, title="window {}"),
    "queue": Quantity(field="queue_packets", parse=_count, shown="{:g}".format, title="queue {} packets"),
    "mtu": Quantity(field="mtu_bytes", parse=_count, shown="{:g}".format, title="MTU {}"),
}
"""By the word before ``=``, in the order in which they stand in a link's name."""


def modify(profile: LinkProfile, spec: str, words: Sequence[str], load: Load) -> LinkProfile:
    """The profile with its modifiers applied, and with a name and title that say so.

    ``spec`` is all that was typed. UsageError for a modifier that this profile does not accept, or that is
    given twice.
    """
    asked = _read(profile, spec, words)
    if profile.hops is not None:
        profile = _with_hops(profile, profile.hops, asked, load)
    if "unshaped" in asked:
        profile = _unshaped(profile)
    for word, quantity in QUANTITIES.items():
        if word in asked:
            profile = _with_quantity(profile, spec, word, quantity, asked[word])
    return profile


def _with_quantity(profile: LinkProfile, spec: str, word: str, quantity: Quantity, text: str) -> LinkProfile:
    value = quantity.parse(text, what=f"link {shown(spec)}: {word}")
    amount = round(float(value * quantity.scale), 9)
    if word == "rtt" and profile.hops is not None:
        # What is left for the rest of the path.
        amount -= profile.hops.count * profile.hops.delay_us
    said = quantity.shown(value)
    in_name = re.sub(r"bit/s|ib|[^a-z0-9.]", "", said.lower())
    return msgspec.structs.replace(
        profile,
        name=check_name("link", f"{profile.name}-{word}{in_name}"),
        title=f"{profile.title}, {quantity.title.format(said)}",
        **{quantity.field: int(amount) if amount.is_integer() else amount},
    )


def _read(profile: LinkProfile, spec: str, words: Sequence[str]) -> dict[str, str]:
    """The value of each modifier by what it changes."""
    hops = profile.hops
    own = HopWords() if hops is None else of_hops.of(hops)
    patterns, ranges = {**_PATTERNS, **own.patterns}, {**own.ranges}
    expected = {}
    example = own.example or "rtt=5ms"
    if hops is not None and hops.least < hops.most:
        ranges["count"] = (hops.least, hops.most)
        expected["count"] = f"a number of {HOPS[hops.kind].several} ({hops.least} to {hops.most})"
        example = str(hops.most)
    if hops is not None:
        expected |= own.expected(hops)
    expected["unshaped"] = "'unshaped'"
    expected |= {word: f"'{word}='" for word in QUANTITIES}
    asked: dict[str, str] = {}
    for typed in (part for word in words for part in word.split(",")):
        key, _, value = (f"mtu={MTU_JUMBO}" if typed == "jumbo" else typed).partition("=")
        if key in QUANTITIES and value:
            found = {key: value}
        else:
            matches = {key: re.fullmatch(patterns[key], typed) for key in expected if key in patterns}
            found = {key: match[1] or "" for key, match in matches.items() if match}
        # What is said of together excludes each other.
        is_taken = any(expected[key] == expected[other] for key in found for other in asked)
        in_range = all(
            ranges[key][0] <= int(value) <= ranges[key][1] for key, value in found.items() if key in ranges
        )
        if not found or is_taken or not in_range:
            raise UsageError(
                f"link {shown(spec)}: expected each of {', '.join(dict.fromkeys(expected.values()))} "
                f"at most once after the name, found {shown(typed)}",
                hint=f"try {profile.name}:unshaped or {profile.name}:{example}",
            )
        asked |= found
    return asked


def _with_hops(profile: LinkProfile, hops: Hops, asked: Mapping[str, str], load: Load) -> LinkProfile:
    """The profile with its hops as asked for. Their number is always part of its name."""
    name, title = profile.name, profile.title
    if hops.least < hops.most:
        hops = msgspec.structs.replace(hops, count=int(asked.get("count", hops.count)))
        name, title = f"{name}-{hops.count}", f"{title}, {count_of(hops)}"
    hops, more_name, more_title = of_hops.of(hops).applied(hops, asked, load)
    if more_name:
        name = check_name("link", f"{name}{more_name}")
    return msgspec.structs.replace(profile, name=name, title=f"{title}{more_title}", hops=hops)


def count_of(hops: Hops) -> str:
    """``3 switches``, ``1 router``."""
    kind = HOPS[hops.kind]
    return f"{hops.count} {kind.title if hops.count == 1 else kind.several}"


def _unshaped(profile: LinkProfile) -> LinkProfile:
    hops = profile.hops
    if hops is not None:
        hops = of_hops.of(hops).unshaped(msgspec.structs.replace(hops, delay_us=0.0))
    return msgspec.structs.replace(
        profile,
        name=f"{profile.name}-unshaped",
        title=f"{profile.title}, unshaped",
        rate_bit_s=None,
        delay_us=0.0,
        jitter_us=0.0,
        loss_percent=0.0,
        tcp_window_bytes=None,
        queue_packets=None,
        duplex=Duplex.FULL,
        hops=hops,
    )
