"""How much throughput a volume loses to iSCSI, its link and IPsec, and which layer causes the loss.

Each folder is a package, and imports go one way between them: docs/architecture.md. Programs have
the names in ``__all__`` (docs/results.md), which are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.version import __version__

if TYPE_CHECKING:
    from harness.api import Results, UsageError, open_results

__all__ = ["Results", "UsageError", "__version__", "open_results"]


def __getattr__(name: str) -> Any:
    # A command's start would pay for it.
    if name not in __all__:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    from harness import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
