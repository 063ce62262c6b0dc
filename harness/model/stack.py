"""Nested protections: which orders are possible, and how a stack is typed."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import PROTECTION_OFF
from harness.model.errors import UsageError
from harness.model.protections import MADE, NESTING

SEPARATOR = "+"
"""Between the protections of a stack, as typed."""

_OUTER = [name for names in NESTING[:-1] for name in names if name in MADE]

EXAMPLE = SEPARATOR.join((*_OUTER[:1], "aes128gcm16"))


def place_of(name: str) -> int:
    """A protection's place in a stack, from the outside. What is none of the others is an ESP proposal."""
    return next((place for place, names in enumerate(NESTING) if name in names), len(NESTING) - 1)


def check(protection: Sequence[str]) -> None:
    """UsageError for an impossible order: the link's comes first, IPsec or TLS last, each once at most."""
    places = [place_of(name) for name in protection]
    if places != sorted(set(places)):
        order = " before ".join(" or ".join(names) for names in NESTING)
        raise UsageError(
            f"{SEPARATOR.join(protection)}: expected {order} or an ESP proposal, one of each at most: the "
            "outermost on the wire comes first",
            hint=f"try {EXAMPLE}",
        )


def split(text: str) -> tuple[str, ...]:
    """A stack as typed, ``macsec+aes128gcm16``; empty for ``off``. UsageError for an impossible order."""
    names = () if text == PROTECTION_OFF else tuple(text.split(SEPARATOR))
    check(names)
    return names
