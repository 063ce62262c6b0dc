"""As `against_theory`, over other transports than iSCSI.

`python -m tests.lab.inside.transports_against_theory TAG TRANSPORT`, with --virtual-time; prints a
`Measured` as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import sys

from harness.model import IpsecMode
from tests.lab.inside import exports
from tests.lab.inside.against_theory import MTUS, Framing, Lab, Up, measure

FRAMINGS = (
    *(Framing(mtu_bytes=mtu) for mtu in MTUS),
    *(Framing(mtu_bytes=1500, proposal="aes128gcm16", mode=mode) for mode in IpsecMode),
)


def bring_up(name: str, lab: Lab) -> list[Up]:
    transport = exports.load(name)
    shared = lab.stack.enter_context(transport.shared(lab.sides))
    ups = []
    for index, framing in enumerate(FRAMINGS):
        path = dataclasses.replace(lab.link(framing, index), port=transport.port)
        ups.append(lab.log_in(framing, path, shared))
    return ups


if __name__ == "__main__":
    measure(sys.argv[1], functools.partial(bring_up, sys.argv[2]))
