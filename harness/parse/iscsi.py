"""The iSCSI parameters that a run may ask for (RFC 7143, section 13), as users type them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.errors import UsageError
from harness.model.units import parse_size, shown, unknown_name

_LARGEST_BYTES = 2**24 - 1
"""RFC 7143, sections 13.12 to 13.14: the limit of every length."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One parameter. ``node`` is open-iscsi's name of it (iscsid.conf), ``sysfs`` that of the negotiated
    value.

    ``least`` and ``most`` bound a number; without them the value is Yes or No.
    """

    node: str
    sysfs: str
    least: int = 0
    most: int | None = None

    def value(self, text: str) -> str | None:
        """``text`` as RFC 7143 writes it, with sizes such as 64K in bytes; None if it is out of range."""
        if self.most is None:
            word = text.capitalize()
            return word if word in ("Yes", "No") else None
        number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else parse_size(text)
        return str(number) if self.least <= number <= self.most else None

    @property
    def expected(self) -> str:
        return "Yes or No" if self.most is None else f"{self.least} to {self.most}"


KEYS = {
    "InitialR2T": Key(node="node.session.iscsi.InitialR2T", sysfs="initial_r2t"),
    "ImmediateData": Key(node="node.session.iscsi.ImmediateData", sysfs="immediate_data"),
    "FirstBurstLength": Key(
        node="node.session.iscsi.FirstBurstLength", sysfs="first_burst_len", least=512, most=_LARGEST_BYTES
    ),
    "MaxBurstLength": Key(
        node="node.session.iscsi.MaxBurstLength", sysfs="max_burst_len", least=512, most=_LARGEST_BYTES
    ),
    "MaxRecvDataSegmentLength": Key(
        node="node.conn[0].iscsi.MaxRecvDataSegmentLength",
        sysfs="max_recv_dlength",
        least=512,
        most=_LARGEST_BYTES,
    ),
}


def parse(words: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` for each parameter, in upper or lower case; UsageError if it is unknown or out of
    range."""
    names = {name.casefold(): name for name in KEYS}
    found: dict[str, str] = {}
    for word in words:
        typed, _, text = word.partition("=")
        name = names.get(typed.strip().casefold())
        if name is None:
            raise unknown_name("iSCSI parameter", typed.strip(), KEYS)
        value = KEYS[name].value(text.strip())
        if value is None:
            raise UsageError(
                f"{name}: expected {KEYS[name].expected}, found {shown(text)}",
                hint="RFC 7143, section 13, has the parameters and their ranges",
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
