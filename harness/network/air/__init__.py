"""Links through the air, over radios that a folder here simulates. Without one, WiFi is emulated."""

from __future__ import annotations

from harness.model.errors import UsageError
from harness.model.offered import offered
from harness.network.air.kind import AirKind

_KINDS: tuple[AirKind, ...] = tuple(offered(__name__, within="kind"))


def simulated() -> AirKind:
    """What simulates radios; UsageError if nothing does: a plan may be of another version."""
    if not _KINDS:
        raise UsageError(
            "expected links that can be made here, found WiFi over simulated radios, which cannot",
            hint="measure it with the version that made the plan",
        )
    return _KINDS[0]
