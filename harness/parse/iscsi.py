"""The iSCSI parameters that a run may ask for (RFC 7143, section 13), as users type them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.errors import UsageError
from harness.model.units import parse_size, shown, unknown_name

_LEAST_BYTES, _MOST_BYTES = 512, 2**24 - 1
"""RFC 7143, sections 13.12 to 13.14: the limits of every length."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One parameter, a length in bytes or Yes or No. ``node`` is open-iscsi's name of it (iscsid.conf),
    ``sysfs`` that of the negotiated value.
    """

    node: str
    sysfs: str
    is_length: bool

    def value(self, text: str) -> str | None:
        """``text`` as RFC 7143 writes it, with sizes such as 64K in bytes; None if it is out of range."""
        if not self.is_length:
            word = text.capitalize()
            return word if word in ("Yes", "No") else None
        number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else parse_size(text)
        return str(number) if _LEAST_BYTES <= number <= _MOST_BYTES else None

    @property
    def expected(self) -> str:
        return f"{_LEAST_BYTES} to {_MOST_BYTES}" if self.is_length else "Yes or No"


KEYS = {
    name: Key(node=f"node.{level}.iscsi.{name}", sysfs=sysfs, is_length=is_length)
    for name, level, sysfs, is_length in (
        ("InitialR2T", "session", "initial_r2t", False),
        ("ImmediateData", "session", "immediate_data", False),
        ("FirstBurstLength", "session", "first_burst_len", True),
        ("MaxBurstLength", "session", "max_burst_len", True),
        ("MaxRecvDataSegmentLength", "conn[0]", "max_recv_dlength", True),
    )
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
