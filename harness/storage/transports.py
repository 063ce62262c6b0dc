"""All transports, by the names that users type. One is imported when it is asked for."""

from __future__ import annotations

from harness import storage
from harness.model import kinds
from harness.model.kinds import OfKinds
from harness.storage.transport import Transport

_BY_NAME: OfKinds[Transport] = OfKinds(storage.__name__, kinds.folders(kinds.TRANSPORTS), within="transport")


def every() -> tuple[Transport, ...]:
    """What a run by one of them is wary of is what all of them leave, list and export."""
    return tuple(_BY_NAME.values())


def named(name: str) -> Transport:
    """UsageError for one that is not here."""
    return _BY_NAME[kinds.transport(name).name]


def versions() -> dict[str, tuple[str, ...]]:
    """The commands that print the versions of their programs."""
    return {name: command for each in every() for name, command in each.versions.items()}


def private_folders(role: str) -> tuple[str, ...]:
    """What a run by any of them hides on a machine for its part: what it writes there is its own."""
    folders = (folder for each in every() if role == "initiator" for folder in each.initiator_folders)
    return tuple(dict.fromkeys(folders))
