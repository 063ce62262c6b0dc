"""Exports of a run on hosts that only record, for tests of any transport."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import BackingKind
from harness.storage.transport import Export, Lun, Sides
from tests.unit.fakes import World

LUN = Lun(serial="harness-beef-0", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=1 << 27)


def sides(world: World, **more: Any) -> Sides:
    """Both ends of a run's exports, which write nothing down."""
    fields: dict[str, Any] = {"target": world.host("target"), "initiators": (world.host("initiator"),)}
    fields |= {"journal": Journal(Path("unused")), "tag": "beef", "luns": (LUN,), "logs": Path()}
    return Sides(**fields | more)


def wanted(world: World, **more: Any) -> Export:
    """One export, at the port of iSCSI unless ``more`` has another."""
    fields: dict[str, Any] = {"name": "x", "number": 0, "lun": LUN, "target": world.host("target")}
    return Export(**fields | {"address": "198.18.7.2", "port": 3260, "parameters": {}} | more)


def undoes_nothing(step: Callable[..., UndoStep], names: Mapping[str, Any]) -> None:
    """Under the distribution's Python both programs of a transport find nothing to undo of what is absent."""
    for name, do in (("initiator", "disconnect"), ("target", "delete")):
        asked = step(name, do, **names, address="198.18.7.2", port=1)
        done = subprocess.run(asked.argv, input=asked.input, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), asked.argv
