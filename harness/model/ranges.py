"""What quantities can be: types for what is read, so that no record has a figure that nothing measures.

A file that has one beyond is refused with its name and the field's (msgspec), before anything is calculated.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Bytes, I/Os, packets, nanoseconds: what the kernel counts in 64 bits with a sign."""

Amount = Annotated[float, Meta(ge=0, lt=2.0**63)]
"""The same as a mean, a rate or a time."""

Figure = Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]
"""What may be below zero, such as dBm."""
