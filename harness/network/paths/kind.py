"""What a folder for a kind of hops offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from harness.network.links import Folders, LinkPath, LinkPlace


@dataclass(frozen=True, kw_only=True)
class PathKind:
    """A kind of hops that a run can bring up; ``kind.toml`` says the rest (``model.kinds.HopKind``).

    ``passing_on`` makes the hops of a path that is built pass packets on, and yields what they agreed on.
    ``modules`` are the kernel's, ``private_folders`` those of a machine in which a run needs its own files.
    ``carries`` is what carries the packets, where that is not the link.
    """

    name: str
    passing_on: Callable[[LinkPlace, LinkPath, Folders], AbstractContextManager[Mapping[str, str]]]
    modules: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()
    carries: str = "link"
