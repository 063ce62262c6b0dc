"""The ranges of quantities: types for what is read, so that no record has an impossible figure.

msgspec refuses a file with a figure out of range, with the file's and the field's name, before anything is
calculated.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Bytes, I/Os, packets, nanoseconds: what the kernel counts in 64 bits with a sign."""

Size = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""Bytes of what is not empty."""

Amount = Annotated[float, Meta(ge=0, lt=2.0**63)]
"""The same for a mean, a rate or a time."""

Figure = Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]
"""Quantities that may be below zero, such as dBm."""


def out_of_range(made: msgspec.Struct) -> str | None:
    """Which quantity of a struct is out of its range, in msgspec's words; None if none is.

    msgspec checks only what it reads. Whoever makes a struct to be read later has to ask.
    """
    try:
        msgspec.json.decode(msgspec.json.encode(made), type=type(made))
    except msgspec.ValidationError as error:
        return str(error)
    return None
