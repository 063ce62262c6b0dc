"""What can break WireGuard while it is up: where its peer is, and the next handshake."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Resource
from harness.model import IPV4, IPV6
from harness.network.links import LinkPath
from harness.protection import overlay
from harness.storage import requests

NOWHERE = {IPV4: "127.0.0.1", IPV6: "::1"}
"""Where the peer is not: the initiator itself. Of the user's network every address may be somebody's."""

DISCARD = 9
"""A port that nobody answers at (RFC 863)."""

WRONG, NONE = "ff" * 32, "00" * 32
"""Preshared keys: one that the peer does not have, and none."""


def of_peer(below: LinkPath, within: LinkPath, port: int) -> Mapping[str, tuple[Host, Resource]]:
    """Each by its name, at the initiator."""

    def changed(what: str, *, meanwhile: Mapping[str, object], before: Mapping[str, object]) -> Resource:
        name = within.initiator_iface
        make, remove = (
            requests.step(__package__, overlay.PROGRAM, "change", interface=name, **values)
            for values in (meanwhile, before)
        )
        remove = msgspec.structs.replace(remove, absent=("No such device",))
        return requests.Made(name, what, make, remove, f"the kernel refused the {what} of {name}")

    return {
        "endpoint-changed": (
            within.initiator,
            changed(
                "other endpoint",
                meanwhile={"address": NOWHERE[below.ip], "port": DISCARD},
                before={"address": below.target_address, "port": port},
            ),
        ),
        "handshakes-blocked": (
            within.initiator,
            changed("wrong preshared key", meanwhile={"preshared": WRONG}, before={"preshared": NONE}),
        ),
    }
