"""All transports, by the names that users type."""

from __future__ import annotations

from harness import storage
from harness.model import DEFAULT_TRANSPORT, TRANSPORTS, Column
from harness.model.offered import offered
from harness.model.units import unknown_name
from harness.storage.transport import Transport

_BY_NAME: dict[str, Transport] = {each.name: each for each in offered(storage.__name__, within="transport")}
ALL = tuple(_BY_NAME[name] for name in TRANSPORTS)

DEFAULT = _BY_NAME[DEFAULT_TRANSPORT]

LEAVES = tuple(leftover for each in ALL for leftover in each.leaves)
LISTS = tuple(folder for each in ALL for folder in each.lists)
VERSIONS = {name: command for each in ALL for name, command in each.versions.items()}
EXPORTED = tuple(exported for each in ALL for exported in each.exported)


def named(name: str) -> Transport:
    """UsageError for one that is not here: results may be of another version."""
    if name not in _BY_NAME:
        raise unknown_name("transport", name, TRANSPORTS)
    return _BY_NAME[name]


def needs_custom_kernel(column: Column) -> bool:
    return column.transport is not None and named(column.transport).needs_custom_kernel


def private_folders(role: str) -> tuple[str, ...]:
    """What a run by any of them hides on a machine for its part: what it writes there is its own."""
    folders = (folder for each in ALL if role == "initiator" for folder in each.initiator_folders)
    return tuple(dict.fromkeys(folders))
