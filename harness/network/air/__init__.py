"""Links through the air, over radios that a folder here simulates. Without one, WiFi is emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.model import kinds
from harness.model.errors import UsageError
from harness.model.kinds import OfKinds

if TYPE_CHECKING:
    from harness.network.air.kind import AirKind

_BY_NAME: OfKinds[AirKind] = OfKinds(__name__, kinds.folders(kinds.AIR), within="kind")


def simulated() -> AirKind:
    """What simulates radios; UsageError if nothing does: a plan may be of another version."""
    if kinds.RADIOS is None:
        raise UsageError(
            "expected links that can be made here, found WiFi over simulated radios, which cannot",
            hint="measure it with the version that made the plan",
        )
    return _BY_NAME[kinds.RADIOS.name]
