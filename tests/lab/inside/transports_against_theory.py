"""As `against_theory`, over other transports than iSCSI.

`python -m tests.lab.inside.transports_against_theory TAG TRANSPORT`, with --virtual-time; prints a
`Measured` as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import sys

from harness.model import IpsecMode
from harness.storage import transports
from harness.storage.transport import Export, Transport
from tests.lab.inside.against_theory import MTUS, Framing, Lab, Up, measure
from tests.lab.inside.kernel import sh

FRAMINGS = (
    *(Framing(mtu_bytes=mtu) for mtu in MTUS),
    *(Framing(mtu_bytes=1500, proposal="aes128gcm16", mode=mode) for mode in IpsecMode),
)


def bring_up(transport: Transport, lab: Lab) -> list[Up]:
    for module in {*transport.modules("target", ()), *transport.modules("initiator", ())}:
        sh("modprobe", *module.split())
    shared = lab.stack.enter_context(transport.shared(lab.sides))
    ups = []
    for index, framing in enumerate(FRAMINGS):
        path = dataclasses.replace(lab.link(framing, index), port=transport.port)
        wanted = Export(
            name=framing.name,
            number=0,
            lun=lab.lun,
            target=path.target,
            address=path.target_address,
            port=path.port,
            parameters={},
        )
        session = lab.stack.enter_context(shared.attach(wanted))
        ups.append(Up(framing=framing, path=path, disk=session.disk, session=session.agreed))
    return ups


if __name__ == "__main__":
    measure(sys.argv[1], functools.partial(bring_up, transports.named(sys.argv[2])))
