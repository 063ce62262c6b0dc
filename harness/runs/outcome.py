"""The outcome of one measurement, before it is judged: of each initiator, and of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.model import Io, Proof, WifiState
from harness.model.telemetry import InterfaceUse
from harness.parse import fio


@dataclass(kw_only=True)
class InitiatorResult:
    """The result of one initiator's fio, and what makes it invalid."""

    initiator: str
    job: fio.FioJob | None = None
    started_unix_s: float | None = None
    proof: Proof | None = None
    wifi: tuple[WifiState, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def read(self) -> Io | None:
        return self.job.read if self.job else None

    @property
    def write(self) -> Io | None:
        return self.job.write if self.job else None


@dataclass(kw_only=True)
class Done:
    """All parts of one measurement, and what concerns it as a whole."""

    parts: list[InitiatorResult]
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
