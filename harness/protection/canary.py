"""The cleartext canary, a positive control: once for each column it shows that cleartext is detected, and
that it is stopped.

Each end tries to connect like the portal's traffic does. Before the fail-closed policy is set, both captures
must see the attempt in clear. With the policy, the kernel must refuse and count the attempt, and the captures
must not see it. The same captures then prove the column's cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.model import ENDS
from harness.model.errors import CommandFailed
from harness.protection.capture import Capture
from harness.protection.xfrm_listener import TRY_CONNECT, ConnectAttempt, XfrmListeners

ATTEMPTS = 5
"""Several, because a link may lose packets."""

REFUSED = "EPERM"
"""The error of connect(2) if a policy blocks it (xfrm_lookup_with_ifid() in net/xfrm/xfrm_policy.c)."""


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the positive control for both ends, the initiator's first.

    ``seen_in_clear`` are the segments that each capture saw without a fail-closed policy. ``blocked`` are the
    packets that each end's policies then stopped, None where the kernel does not count them.
    """

    seen_in_clear: tuple[int, int]
    blocked: tuple[int | None, int | None]


def show(captures: Capture, listeners: XfrmListeners, what: int = TRY_CONNECT) -> tuple[int, int]:
    """Make each capture see segments of the portal in clear, by attempts or ``what`` they recognise; returns
    how many. CommandFailed if one does not.
    """
    near = far = 0
    for _ in range(ATTEMPTS):
        attempts = listeners.try_connect(what)
        first, second = captures.look()
        near, far = near + first.cleartext, far + second.cleartext
        if near and far:
            return near, far
    faults = [seen.fault for seen in (first, second) if seen.fault]
    raise CommandFailed(
        f"expected both captures to see the cleartext canary (segments that both ends sent in clear on "
        f"purpose), found {near} and {far}: {'; '.join(faults) or _words(attempts)}",
        hint="does a firewall on one of the ends drop it?",
    )


def stop(captures: Capture, listeners: XfrmListeners) -> tuple[int | None, int | None]:
    """Show that the fail-closed policy stops the same attempts; returns what each end counted. CommandFailed
    if it does not."""
    attempts = listeners.try_connect()
    near, far = attempts
    seen = captures.look()
    escaped = sum(each.cleartext for each in seen)
    if escaped or any(attempt.error != REFUSED or attempt.blocked == 0 for attempt in attempts):
        raise CommandFailed(
            "expected the fail-closed policies to block and count a connection to "
            "the portal without IPsec, found: "
            f"{_words(attempts)}; {escaped} segments on the link"
        )
    return near.blocked, far.blocked


def _words(attempts: Sequence[ConnectAttempt]) -> str:
    return ", ".join(
        f"the {end}'s attempt ended with {attempt.error or 'a connection'}, "
        f"{'an unknown number of' if attempt.blocked is None else attempt.blocked} packets blocked"
        for end, attempt in zip(ENDS, attempts, strict=True)
    )
