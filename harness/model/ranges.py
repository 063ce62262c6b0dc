"""The ranges of quantities: types for what is read, so that no record has an impossible figure.

msgspec refuses a file with a figure out of range, with the file's and the field's name, before anything is
calculated.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Bytes, I/Os, packets, nanoseconds: what the kernel counts in 64 bits with a sign."""

Amount = Annotated[float, Meta(ge=0, lt=2.0**63)]
"""The same for a mean, a rate or a time."""

Figure = Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]
"""Quantities that may be below zero, such as dBm."""
