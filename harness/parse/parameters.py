"""The parameters of sessions that a run may ask for, as users type them: of iSCSI (RFC 7143, section 13, and
iscsid.conf) and of NVMe/TCP (nvme-connect(1))."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.model import ISCSI, NVME_TCP, TRANSPORTS
from harness.model.errors import UsageError
from harness.model.units import parse_size, shown, unknown_name

_YES_OR_NO = {"Yes": "1", "No": "0"}
_DIGEST = {"CRC32C": "1", "None": "0"}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One parameter. ``typed_as`` is the initiator's name for it: open-iscsi's (iscsid.conf), or the kernel's
    (fabrics.c). ``sysfs`` is the file with the value that both ends agreed on.

    ``least`` and ``most`` bound a number; without them the value is one of ``words``, each with what sysfs
    says of it. With ``is_initiators`` the target has no such parameter.
    """

    typed_as: str
    sysfs: str = ""
    least: int = 0
    most: int | None = None
    words: Mapping[str, str] | None = None
    is_initiators: bool = False

    def value(self, text: str) -> str | None:
        """``text`` as both ends write it, with sizes such as 64K in bytes; None if it is out of range."""
        if self.words is not None:
            return next((word for word in self.words if word.casefold() == text.casefold()), None)
        number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else parse_size(text)
        return str(number) if self.least <= number <= (self.most or number) else None

    def in_sysfs(self, value: str) -> str:
        """What sysfs says of an agreed ``value``."""
        return value if self.words is None else self.words[value]

    @property
    def expected(self) -> str:
        return f"{self.least} to {self.most}" if self.words is None else " or ".join(self.words)


_LENGTH = 512, 2**24 - 1
"""RFC 7143, sections 13.12 to 13.14: the limits of every length."""

KEYS = {
    ISCSI: {
        **{
            name: Key(typed_as=f"node.{level}.iscsi.{name}", sysfs=sysfs, words=words)
            for name, level, sysfs, words in (
                ("InitialR2T", "session", "initial_r2t", _YES_OR_NO),
                ("ImmediateData", "session", "immediate_data", _YES_OR_NO),
                ("HeaderDigest", "conn[0]", "header_digest", _DIGEST),
                ("DataDigest", "conn[0]", "data_digest", _DIGEST),
            )
        },
        **{
            name: Key(typed_as=f"node.{level}.iscsi.{name}", sysfs=sysfs, least=least, most=most)
            for name, level, sysfs, least, most in (
                ("FirstBurstLength", "session", "first_burst_len", *_LENGTH),
                ("MaxBurstLength", "session", "max_burst_len", *_LENGTH),
                ("MaxRecvDataSegmentLength", "conn[0]", "max_recv_dlength", *_LENGTH),
                ("MaxOutstandingR2T", "session", "max_outstanding_r2t", 1, 65535),
            )
        },
        # More would need a larger node.session.cmds_max, too.
        "queue_depth": Key(
            typed_as="node.session.queue_depth", sysfs="queue_depth", least=1, most=128, is_initiators=True
        ),
    },
    NVME_TCP: {
        "queue_size": Key(typed_as="queue_size", least=16, most=1024, is_initiators=True),
        "queues": Key(typed_as="nr_io_queues", least=1, most=64, is_initiators=True),
        "header_digest": Key(typed_as="hdr_digest", words=_YES_OR_NO, is_initiators=True),
        "data_digest": Key(typed_as="data_digest", words=_YES_OR_NO, is_initiators=True),
    },
}
"""By transport, and by the name that users type."""


def parse(transport: str, words: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` for each parameter, in upper or lower case; UsageError if it is unknown or out of
    range."""
    keys = KEYS[transport]
    names = {name.casefold(): name for name in keys}
    found: dict[str, str] = {}
    for word in words:
        typed, _, text = word.partition("=")
        name = names.get(typed.strip().casefold())
        if name is None:
            raise unknown_name(f"{TRANSPORTS[transport]} parameter", typed.strip(), keys)
        value = keys[name].value(text.strip())
        if value is None:
            raise UsageError(
                f"{name}: expected {keys[name].expected}, found {shown(text)}",
                hint="RFC 7143, section 13, and iscsid.conf have the parameters of iSCSI and their ranges",
            )
        if found.setdefault(name, value) != value:
            raise UsageError(f"{name} was given twice, as {found[name]} and {value}", hint="leave one out")
    first, most = found.get("FirstBurstLength"), found.get("MaxBurstLength")
    if first and most and int(first) > int(most):
        raise UsageError(
            f"expected FirstBurstLength up to MaxBurstLength, found {first} and {most}",
            hint="RFC 7143, section 13.14",
        )
    return found
