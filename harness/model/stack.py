"""Protections within each other: which may stand where, and how a stack is typed."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from harness.model import MACSEC, PROTECTION_OFF, WIREGUARD
from harness.model.errors import UsageError

SEPARATOR = "+"
"""Between the protections of a stack, as typed."""


class Place(enum.IntEnum):
    """Where in a stack a protection may stand: each further one within the ones before it."""

    LINK = 0
    """Over Ethernet, so outermost."""
    NETWORK = 1
    """Over IP, as an interface of its own."""
    INNERMOST = 2
    """It keeps the addresses that are there, so nothing can tell what is within it."""


_PLACES = {MACSEC: Place.LINK, WIREGUARD: Place.NETWORK}


def place_of(name: str) -> Place:
    """All but those with interfaces of their own are ESP proposals."""
    return _PLACES.get(name, Place.INNERMOST)


def check(protection: Sequence[str]) -> None:
    """UsageError for an order that cannot be: what is on the link comes first, IPsec last, each once."""
    places = [place_of(name) for name in protection]
    if places != sorted(set(places)):
        raise UsageError(
            f"{SEPARATOR.join(protection)}: expected {MACSEC} before {WIREGUARD} before an ESP proposal, "
            "each at most once: the outermost on the wire comes first",
            hint=f"try {MACSEC}{SEPARATOR}aes128gcm16",
        )


def split(text: str) -> tuple[str, ...]:
    """A stack as typed, ``macsec+aes128gcm16``; empty for ``off``. UsageError for an order that cannot be."""
    names = () if text == PROTECTION_OFF else tuple(text.split(SEPARATOR))
    check(names)
    return names
