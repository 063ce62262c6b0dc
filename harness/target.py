"""The target side: what is exported (a backstore of LIO) and how (an iSCSI target of LIO).

Both are made by ``lio.py`` in this folder, a small program on rtslib-fb that runs on the target
host under the distribution's Python: nothing of ours has to be installed there. Never ``clearconfig``,
never ``saveconfig``: only objects whose names carry the run's id are made and removed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.errors import CommandFailed
from harness.hosts import Host
from harness.model import BackingKind

PORT = 3260
"""RFC 7143, section 4.2.7.1."""

LIO_PROGRAM = Path(__file__).with_name("lio.py")
DISTRIBUTION_PYTHON = "/usr/bin/python3"


def iqn(tag: str, name: str) -> str:
    """An iSCSI qualified name (RFC 7143, section 4.2.7.4) of the harness, in lower case.

    Names of links may have an underscore, names of targets not (section 4.2.7.2; rtslib
    refuses it).
    """
    return f"iqn.2026-11.net.storage-harness:{tag}.{name.replace('_', '-')}"


def _lio(host: Host, request: dict[str, object]) -> dict[str, object]:
    """Have rtslib carry out one request; secrets travel on standard input only."""
    program = LIO_PROGRAM.read_text(encoding="utf-8")
    done = host.run(
        [DISTRIBUTION_PYTHON, "-c", program], input=msgspec.json.encode(request).decode(), check=False
    )
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(f"LIO did not {str(request['do']).replace('-', ' ')}: {words[-1]}")
    return msgspec.json.decode(done.stdout, type=dict[str, object]) if done.stdout.strip() else {}


class Backstore(msgspec.Struct, frozen=True, tag="backstore"):
    """An LIO storage object: iblock for a block device, fileio (write-through) for a file.

    ``serial`` becomes the unit serial number (SPC-4, page 80h) by which the initiator knows the disk.
    """

    name: str
    kind: BackingKind
    path: str
    size_bytes: int
    serial: str

    def acquire(self, host: Host) -> None:
        _lio(host, {"do": "create-backstore", **msgspec.to_builtins(self)})

    def release(self, host: Host) -> None:
        _lio(host, {"do": "delete-backstore", "name": self.name})


class IscsiTarget(msgspec.Struct, frozen=True, tag="target"):
    """One target with one portal, one LUN and an ACL for one initiator; demo mode is off.

    CHAP (RFC 7143, section 12.1) is on. ``secret_path`` names a file of the run that holds the secret, so
    that neither the journal nor a command line does.
    """

    iqn: str
    backstore: str
    address: str
    initiator_iqn: str
    chap_user: str
    secret_path: str

    def acquire(self, host: Host) -> None:
        (secret,) = host.read_files([self.secret_path])
        _lio(host, {"do": "create-target", "port": PORT, "secret": secret, **msgspec.to_builtins(self)})

    def release(self, host: Host) -> None:
        _lio(host, {"do": "delete-target", "iqn": self.iqn})
