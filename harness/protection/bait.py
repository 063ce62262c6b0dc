"""Bait: shows once a column that what is to detect cleartext detects it, and that what is to stop it does.

Each end tries to connect as the portal's traffic does. Before there is a barrier, both captures have to see
that in clear. Behind it, the attempt has to be refused and counted by the kernel's policies, and the captures
must not see it. They are the very captures that prove the column's cells.
"""

from __future__ import annotations

import msgspec

from harness.model import ENDS
from harness.model.errors import CommandFailed
from harness.protection.capture import Capture
from harness.protection.ipsec.witness import Knock, Witnesses

ATTEMPTS = 5
"""A link may lose packets."""

REFUSED = "EPERM"
"""What connect(2) ends with where a policy blocks it (xfrm_lookup_with_ifid() in net/xfrm/xfrm_policy.c)."""


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the bait, for both ends, the initiator's first.

    ``seen_in_clear`` are the segments that each capture saw before there was a barrier, ``blocked`` the
    packets that each end's policies stopped behind it, None where the kernel does not count them.
    """

    seen_in_clear: tuple[int, int]
    blocked: tuple[int | None, int | None]


def show(captures: Capture, witnesses: Witnesses) -> tuple[int, int]:
    """Have each capture see segments of the portal's in clear; returns how many.

    CommandFailed if one does not.
    """
    near = far = 0
    for _ in range(ATTEMPTS):
        knocks = _knock(witnesses)
        first, second = captures.look()
        near, far = near + first.cleartext, far + second.cleartext
        if near and far:
            return near, far
    faults = [seen.fault for seen in (first, second) if seen.fault]
    raise CommandFailed(
        f"the captures were expected to see segments of the portal that both ends sent in clear on purpose, "
        f"and saw {near} and {far}: {'; '.join(faults) or _words(knocks)}",
        hint="does a firewall of theirs stop what they send?",
    )


def stop(captures: Capture, witnesses: Witnesses) -> tuple[int | None, int | None]:
    """Have the barrier stop the same; returns what each end counted. CommandFailed if it does not."""
    knocks = _knock(witnesses)
    near, far = knocks
    seen = captures.look()
    escaped = sum(each.cleartext for each in seen)
    if escaped or any(knock.error != REFUSED or knock.blocked == 0 for knock in knocks):
        raise CommandFailed(
            "the barrier was expected to stop a connection to the portal without IPsec and to count it: "
            f"{_words(knocks)}; {escaped} segments were on the link"
        )
    return near.blocked, far.blocked


def _knock(witnesses: Witnesses) -> tuple[Knock, Knock]:
    return witnesses.initiator.knock(), witnesses.target.knock()


def _words(knocks: tuple[Knock, Knock]) -> str:
    return ", ".join(
        f"the {end}'s attempt ended with {knock.error or 'a connection'}, "
        f"{'an unknown number of' if knock.blocked is None else knock.blocked} packets blocked"
        for end, knock in zip(ENDS, knocks, strict=True)
    )
