"""The target's side: what is exported (a backstore of LIO) and how (an iSCSI target of LIO).

``programs/lio.py`` makes both in configfs, a small program that runs on the target host under the
distribution's Python. So nothing has to be installed there. It only makes and removes objects whose names
have the run's id.
"""

from __future__ import annotations

import re

import msgspec

from harness.hosts import Host
from harness.hosts.footprint import Leftover, Trouble
from harness.hosts.undo import UndoStep
from harness.model import BackingKind, addresses
from harness.storage import requests
from harness.storage.iscsi import KEYS

MODULES = ("target_core_mod", "iscsi_target_mod")
FILE_MODULES, BLOCK_MODULES = ("target_core_file",), ("target_core_iblock",)
"""The further modules of a backstore made of a file or of a block device."""

LEAVES = (
    Leftover(
        what="the iSCSI target",
        names='ls /sys/kernel/config/target/iscsi 2>/dev/null | grep -F ":$1."',
        where='/sys/kernel/config/target/iscsi/*:"$1".*',
    ),
    Leftover(
        what="the backstore",
        names='ls -d /sys/kernel/config/target/core/*/harness-"$1"* 2>/dev/null',
        where='/sys/kernel/config/target/core/*/harness-"$1"*',
    ),
)
TROUBLES: tuple[Trouble, ...] = ((re.compile(r"Unable to (recover from|locate) .*", re.I), "LIO error"),)

PORT = 3260
"""RFC 7143, section 4.2.7.1."""


def iqn(tag: str, name: str) -> str:
    """An iSCSI qualified name (RFC 7143, section 4.2.7.4) of the harness, in lower case.

    Names of links may have an underscore, names of targets may not (section 4.2.7.2; rtslib refuses it).
    """
    return f"iqn.2026-11.net.storage-harness:{tag}.{name.replace('_', '-')}"


def _lio(do: str, **request: object) -> UndoStep:
    return requests.step(__package__, "lio", do, **request)


def _ask(host: Host, request: UndoStep) -> None:
    requests.ask(host, request, "LIO refused")


class DiscoveryLogin(msgspec.Struct, frozen=True):
    """Discovery asks for CHAP with this name, as a session does.

    LIO has one such setting for all targets of a machine. If the machine has other targets or a discovery
    login, the setting is somebody else's, and is left as it is. What discovery shows of the harness's targets
    does not depend on it (``IscsiTarget``).
    """

    name: str
    secret: str

    def __repr__(self) -> str:
        return f"DiscoveryLogin({self.name!r})"  # without the secret

    def acquire(self, host: Host) -> None:
        _ask(host, _lio("create-discovery-login", **msgspec.to_builtins(self)))

    def undo(self) -> tuple[UndoStep, ...]:
        return (_lio("delete-discovery-login", name=self.name),)


class Backstore(msgspec.Struct, frozen=True):
    """An LIO storage object: iblock for a block device, fileio (write-through) for a file.

    ``serial`` becomes the unit serial number (SPC-4, page 80h), by which the initiator identifies the disk.
    """

    name: str
    kind: BackingKind
    path: str
    size_bytes: int
    serial: str

    def acquire(self, host: Host) -> None:
        _ask(host, _lio("create-backstore", **msgspec.to_builtins(self)))

    def undo(self) -> tuple[UndoStep, ...]:
        return (_lio("delete-backstore", name=self.name, serial=self.serial),)


class IscsiTarget(msgspec.Struct, frozen=True):
    """One target with one portal, one LUN and an ACL for one initiator; demo mode is off.

    Discovery shows it to that initiator alone.

    ``parameters`` are the target's side of the negotiation (``harness.storage.iscsi``); others stay LIO's.
    CHAP (RFC 7143, section 12.1) is on. With ``read_only`` the initiator cannot write to the LUN.
    """

    iqn: str
    backstore: str
    address: str
    port: int
    initiator_iqn: str
    chap_user: str
    secret: str
    read_only: bool = False
    parameters: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"IscsiTarget({self.iqn!r})"  # without the secret

    def acquire(self, host: Host) -> None:
        # As LIO writes a portal's address.
        request = {
            **msgspec.to_builtins(self),
            "address": addresses.bracketed(self.address),
            "parameters": {name: v for name, v in self.parameters.items() if not KEYS[name].is_initiators},
        }
        _ask(host, _lio("create-target", **request))

    def undo(self) -> tuple[UndoStep, ...]:
        return (_lio("delete-target", iqn=self.iqn),)
