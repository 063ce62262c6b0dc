"""What a folder that simulates radios offers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from harness.hosts.journal import Breaks, Resource
from harness.model import AirProof, Security
from harness.network.links import Folders, LinkPath, LinkPlace


class AirPath(Protocol):
    """A link through the air that is up, and somebody who listens.

    ``association`` is what its ends agreed on. ``header_bytes`` a frame has in front of each packet.
    ``breaks`` says what can break it, by the name of each, and on which host.
    """

    @property
    def path(self) -> LinkPath: ...

    @property
    def association(self) -> msgspec.Struct: ...

    @property
    def header_bytes(self) -> int: ...

    @property
    def breaks(self) -> Breaks: ...

    def proved(self) -> AbstractContextManager[list[AirProof]]:
        """Prove what goes through the air while the context lasts; then the list has that one proof."""
        ...

    def judge(self, found: AirProof, moved: int) -> list[str]:
        """Reasons why ``moved`` bytes cannot all have gone through the air, protected as agreed on."""
        ...


@dataclass(frozen=True, kw_only=True)
class AirKind:
    """``radios`` are those of so many paths, which share them; ``bring_up`` makes the link that is the
    ``number``-th of these (from 0). ``kind.toml`` says the rest (``model.kinds.RadioKind``)."""

    name: str
    radios: Callable[[int], Resource]
    bring_up: Callable[[LinkPlace, Security, int, Folders], AbstractContextManager[AirPath]]
