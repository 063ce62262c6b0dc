"""How much throughput a volume loses to iSCSI, its link and IPsec, and which layer causes the loss.

Each folder is a room, and imports go one way between them: docs/architecture.md. Programs have
``open_results`` and ``Results`` (docs/api.md), which are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import Results, open_results

__all__ = ["Results", "__version__", "open_results"]

__version__ = "0.1.1"


def __getattr__(name: str) -> Any:
    # A command's start would pay for it.
    if name not in ("Results", "open_results"):
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    from harness import api

    return getattr(api, name)
