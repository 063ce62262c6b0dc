"""Persistent reservations of SCSI: who else has registered for a logical unit, and what that forbids."""

from __future__ import annotations

import msgspec

from harness.hosts import Host
from harness.model.escape import printable
from harness.model.lines import counted
from harness.storage import requests

CONFLICT = 0x18
"""The status RESERVATION CONFLICT (SAM-5, section 5.3.1)."""

ISCSI_NAME = 5
"""Of a TransportID, the protocol identifier (SPC-4, section 7.6.4)."""


TYPES = {
    1: "Write Exclusive",
    3: "Exclusive Access",
    5: "Write Exclusive, Registrants Only",
    6: "Exclusive Access, Registrants Only",
    7: "Write Exclusive, All Registrants",
    8: "Exclusive Access, All Registrants",
}
"""Of a persistent reservation (SPC-4, section 6.15.3.3)."""


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """What a logical unit says: ``keys`` that are registered, the ``names`` of whose they are as far as it
    tells, and the reservation's ``type``. With ``is_old`` it has one of SCSI-2 (RESERVE), without its owner's
    name."""

    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    type: int | None = None
    is_old: bool = False

    @property
    def in_use(self) -> str:
        """By whom, as the end of a sentence; "" if nobody has registered."""
        who = f" by {', '.join(self.names)}" if self.names else ""
        if self.is_old:
            return "another initiator has reserved it (RESERVE of SCSI-2)"
        if self.type is not None:
            return f"it has a persistent reservation ({TYPES.get(self.type, self.type)}){who}"
        return f"{counted(len(self.keys), 'key')} for reservations registered{who}" if self.keys else ""

    @property
    def keeps_readers_out(self) -> bool:
        """Whether nobody may read who has not registered."""
        return self.is_old or TYPES.get(self.type or 0, "").startswith("Exclusive")


def of(host: Host, node: str) -> Reservations:
    """The reservations of a disk; none where it is no SCSI disk, or its target knows nothing of them."""
    request = requests.step(__package__, "reservations", "read", path=node)
    said = requests.reported(host, request, f"the reservations of {node} cannot be read")
    return understood(**{name: (status, bytes.fromhex(data)) for name, (status, data) in said.items()})


def understood(
    *, keys: tuple[int, bytes], reservation: tuple[int, bytes], full: tuple[int, bytes]
) -> Reservations:
    """The parameter data of PERSISTENT RESERVE IN (SPC-4, section 6.15), each with the status of its command:
    READ KEYS, READ RESERVATION, READ FULL STATUS."""
    if CONFLICT in (keys[0], reservation[0]):
        return Reservations(is_old=True)
    held = _listed(reservation[1])
    found = _listed(keys[1])
    return Reservations(
        keys=tuple(found[at : at + 8].hex() for at in range(0, len(found), 8)),
        names=tuple(dict.fromkeys(_names(_listed(full[1])))),
        type=held[13] & 0x0F if len(held) > 13 else None,
    )


def _listed(data: bytes) -> bytes:
    """What comes after the generation and the length."""
    return data[8 : 8 + int.from_bytes(data[4:8])]


def _names(rest: bytes) -> list[str]:
    """The iSCSI names in full status descriptors (SPC-4, 6.15.5.2): 24 bytes, then a TransportID."""
    names = []
    while len(rest) > 24:
        length = int.from_bytes(rest[20:24])
        transport_id, rest = rest[24 : 24 + length], rest[24 + length :]
        if transport_id[:1] and transport_id[0] & 0x0F == ISCSI_NAME:
            # With or without ",i,0x" and the session's ISID.
            names.append(
                printable(transport_id[4:].split(b"\0")[0].decode("utf-8", "replace").partition(",")[0])
            )
    return names
