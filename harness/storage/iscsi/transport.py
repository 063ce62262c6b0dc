"""iSCSI as a transport: LIO at the target, open-iscsi at the initiator.

``programs/lio.py`` makes backstores and targets in configfs, a small program that runs on the target host
under the distribution's Python. So nothing has to be installed there. It only makes and removes objects whose
names have the run's id.
"""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.hosts import Host
from harness.hosts.footprint import Leftover
from harness.model import ISCSI, addresses, kinds
from harness.model.errors import RequirementError
from harness.storage import configfs, requests
from harness.storage.chap import Secrets
from harness.storage.configfs import CONFIGFS
from harness.storage.iscsi import initiator
from harness.storage.requests import Made
from harness.storage.transport import (
    Disk,
    Expected,
    Export,
    Exported,
    Lun,
    Session,
    Shared,
    Sides,
    Transport,
    unwritten,
)
from harness.storage.udev import UdevRule

PORT = kinds.TRANSPORTS[ISCSI].port
"""RFC 7143, section 4.2.7.1."""

KEYS = kinds.TRANSPORTS[ISCSI].parameters

CHAP_USER = "harness"
CONNECT_S = 180
"""How long the commands for a session may take: iscsid may have to start, and reads all others."""

FILES = (
    (
        *("initial_r2t", "immediate_data", "first_burst_len", "max_burst_len", "max_outstanding_r2t"),
        *("data_pdu_in_order", "data_seq_in_order", "erl", "recovery_tmo"),
    ),
    ("max_recv_dlength", "max_xmit_dlength", "header_digest", "data_digest", "recv_tmo", "ping_tmo"),
    ("device/queue_depth", "queue/scheduler", "queue/max_sectors_kb", "queue/nr_requests"),
)
"""What is read of a session, of its connection and of its disk, by the names of their files in sysfs."""

_step = functools.partial(requests.step, __package__)


def iqn(tag: str, name: str) -> str:
    """An iSCSI qualified name (RFC 7143, section 4.2.7.4) of the harness, in lower case.

    Names of links may have an underscore, names of targets may not (section 4.2.7.2).
    """
    return f"iqn.2026-11.net.storage-harness:{tag}.{name.replace('_', '-')}"


def _of_lio(what: str, thing: str, make: Mapping[str, object], *named_by: str) -> Made:
    """A ``thing`` of ``programs/lio.py``, which is removed by the parts of its request that name it."""
    request = _step("lio", f"create-{thing}", **make)
    names = {name: make[name] for name in named_by}
    remove = _step("lio", f"delete-{thing}", **names)
    return Made(str(make[named_by[0]]), what, request, remove, "LIO refused")


def discovery_login(name: str, secret: str) -> Made:
    """Discovery asks for CHAP with this name, as a session does.

    LIO has one such setting for all targets of a machine. If the machine has other targets or a discovery
    login, the setting is somebody else's, and is left as it is. What discovery shows of the harness's targets
    does not depend on it (``IscsiSides.exports``).
    """
    return _of_lio("DiscoveryLogin", "discovery-login", {"name": name, "secret": secret}, "name")


def backstore(lun: Lun) -> Made:
    """An LIO storage object: iblock for a block device, fileio (write-through) for a file.

    The LUN's serial is its name, and becomes the unit serial number (SPC-4, page 80h), by which the initiator
    identifies the disk.
    """
    return _of_lio("Backstore", "backstore", asdict(lun), "serial")


@dataclass(frozen=True)
class IscsiSides(Shared):
    """Both sides of a run's iSCSI, up."""

    secret: str
    nonce: str
    own_names: tuple[str, ...] = ()
    """Of the machines, as initiators, if the target is somebody else's, which may have an ACL with them."""

    def __repr__(self) -> str:
        return f"IscsiSides({self.sides.tag!r})"  # without the secret

    def initiator_iqn(self, number: int) -> str:
        """A name that nobody can guess: LIO serves one login of known names at a time, however long it takes.
        For somebody else's target it is the machine's own."""
        if any(self.own_names[number : number + 1]):
            return self.own_names[number]
        return iqn(self.sides.tag, f"initiator{number + 1}.{self.nonce}")

    def exports(self, wanted: Export) -> tuple[Made, ...]:
        """One target with one portal, one LUN and an ACL for one initiator; demo mode is off.

        Discovery shows it to that initiator alone. Parameters that nobody asked for stay LIO's. CHAP (RFC
        7143, section 12.1) is on.
        """
        request = {
            "iqn": iqn(self.sides.tag, wanted.name),
            "backstore": wanted.lun.serial,
            # As LIO writes a portal's address.
            "address": addresses.bracketed(wanted.address),
            "port": wanted.port,
            "initiator_iqn": self.initiator_iqn(wanted.number),
            "chap_user": CHAP_USER,
            "secret": self.secret,
            "read_only": wanted.read_only,
            "parameters": {name: v for name, v in wanted.parameters.items() if not KEYS[name].is_initiators},
        }
        return (_of_lio("IscsiTarget", "target", request, "iqn"),)

    def outages(self, wanted: Export) -> dict[str, Made]:
        """A target that is disabled ends its sessions. CHAP fails for a name that is not expected."""
        target = {"iqn": iqn(self.sides.tag, wanted.name), "chap_user": CHAP_USER}
        return {
            "target-down": _of_lio("TargetOutage", "outage", target, "iqn"),
            "login-refused": _of_lio("LoginRefusal", "refusal", target, "iqn", "chap_user"),
        }

    def _session(self, wanted: Export) -> dict[str, Any]:
        """What identifies a session, for ``programs/session.py``."""
        portal = self.sides.black_box
        at = addresses.at_port(wanted.address, wanted.port)
        return {
            "iqn": portal.name if portal is not None else iqn(self.sides.tag, wanted.name),
            "portal": portal.login or at if portal is not None else at,
            # No two sessions of a run at a host have the same portal. It becomes a file's name and part of
            # others' words, where a colon would mean something.
            "interface": f"harness-{self.sides.tag}-{wanted.address.replace(':', '-')}-{wanted.port}",
            # A target that redirects logins may be elsewhere, behind another interface.
            "bound_to": "" if portal is not None and portal.login else wanted.bound_to or "",
            "initiator_iqn": self.initiator_iqn(wanted.number),
            "lun": portal.lun if portal is not None else 0,
            "is_mutual": portal is not None and bool(self.sides.secrets and self.sides.secrets.target),
            "within_s": initiator.LOGIN_S,
        }

    def discover(self, wanted: Export) -> dict[str, list[str]]:
        """The targets that a portal shows, by their names, each with its portals (``ADDRESS:PORT``).

        NoAnswer if nobody answers there, CommandFailed if nothing is shown to this initiator.
        """
        request = _step("session", "discover", **self._session(wanted))
        host, what = self.sides.initiators[wanted.number], f"no targets are shown at {wanted.address}"
        found: dict[str, list[str]] = requests.reported(host, request, what)["targets"]
        return found

    def luns(self, wanted: Export) -> dict[str, Any]:
        """The logical units of a target that is connected to, and where: see ``programs/session.py``."""
        request = _step("session", "luns", **self._session(wanted))
        host = self.sides.initiators[wanted.number]
        return requests.reported(host, request, f"the LUNs of {wanted.address} cannot be listed")

    def connections(self, wanted: Export) -> tuple[Made | UdevRule, ...]:
        """A session that is logged in to one portal of one target; its records are removed when it ends.
        Nobody else looks at its disks."""
        names = self._session(wanted)
        asked = {KEYS[name].typed_as: value for name, value in wanted.parameters.items()}
        make = _step("session", "connect", **names, parameters=asked)
        remove, refused = _step("session", "disconnect", **names), f"no iSCSI session at {names['portal']}"
        session = Made(names["iqn"], "IscsiSession", make, remove, refused, within_s=CONNECT_S)
        of_session = f"/bin/grep -qxF {names['interface']} /sys/class/iscsi_session/%b/ifacename"
        match = f'KERNELS=="session[0-9]*", PROGRAM=="{of_session}"'
        return (self.sides.udev_rule(names["interface"], match), session)

    def session(self, host: Host, wanted: Export) -> Session:
        """Its disk is identified by its serial number; of somebody else's target, by what it was when the run
        was planned, and the kernel lets nobody write to it."""
        request = _step("session", "tell", **self._session(wanted), files=FILES)
        found = requests.reported(host, request, "the iSCSI session cannot be read")
        require_agreed(wanted.parameters, found["agreed"])
        sysfs = found["disk"]
        expected: tuple[Expected, ...] = (
            Expected("session state", f"{found['session']}/state", "LOGGED_IN"),
            Expected("serial number", f"{sysfs}/device/vpd_pg80", wanted.lun.serial, is_part=True),
        )
        if (black_box := self.sides.black_box) is not None:
            host.run(["blockdev", "--setro", f"/dev/{sysfs.rpartition('/')[2]}"])
            expected = (*expected[:1], *unwritten(sysfs, black_box))
        return Session(disk=Disk(host=host, sysfs=sysfs, expected=expected), agreed=found["agreed"])


def require_agreed(asked: Mapping[str, str], negotiated: Mapping[str, str]) -> None:
    """RequirementError if the two ends agreed on anything other than what was asked for: what the initiator's
    kernel says."""
    for name, value in asked.items():
        agreed = negotiated.get(KEYS[name].sysfs, "")
        if agreed != KEYS[name].in_sysfs(value):
            raise RequirementError(
                f"expected {name}={value}, but the two ends agreed on {agreed or 'nothing'}",
                hint="leave it out, or ask for a value that both ends accept",
            )


@contextlib.contextmanager
def shared(sides: Sides) -> Iterator[IscsiSides]:
    """Backstores, and an iscsid for each initiator."""
    names = tuple(initiator.own_name(host) for host in sides.initiators if sides.black_box is not None)
    up = IscsiSides(sides, secret=secrets.token_hex(8), nonce=secrets.token_hex(6), own_names=names)
    known: Secrets | None = Secrets(own=up.secret)
    if sides.black_box is not None:
        known = sides.secrets
    with contextlib.ExitStack() as stack:
        if sides.luns:
            configfs.mount(sides.target, "target")
            login = discovery_login(f"harness-{sides.tag}", up.secret)
            stack.enter_context(sides.journal.hold(sides.target, login))
        for lun in sides.luns:
            stack.enter_context(sides.journal.hold(sides.target, backstore(lun)))
        for number, host in enumerate(sides.initiators):
            stack.enter_context(
                initiator.iscsid(
                    sides.journal,
                    host,
                    initiator_iqn=up.initiator_iqn(number),
                    chap_user=CHAP_USER if sides.black_box is None else sides.black_box.chap_user,
                    secrets=known,
                    log=sides.logs / f"iscsid-{host.name}.log",
                )
            )
        yield up


OFFERED = (
    Transport(
        name=ISCSI,
        port=PORT,
        shared=shared,
        leaves=(
            Leftover(
                what="the iSCSI session to",
                names='for of in $(grep -slF "harness-$1-" /sys/class/iscsi_session/*/ifacename); '
                'do cat "${of%/*}/targetname"; done',
                where="/sys/class/iscsi_session/*",
            ),
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
        ),
        troubles=(
            (
                re.compile(r"detected conn error.*|session recovery timed out.*"),
                "the iSCSI session dropped",
            ),
            (re.compile(r"Unable to (recover from|locate) .*", re.I), "LIO error"),
        ),
        lists=("/sys/class/iscsi_session", f"{CONFIGFS}/target"),
        exported=(
            Exported(
                devices=f"{CONFIGFS}/target/core/*/*/udev_path",
                name=(-3, -1),
                as_what="by LIO as the backstore",
                is_exclusive=True,
            ),
        ),
        initiator_modules=("iscsi_tcp", "sd_mod"),
        target_modules=("target_core_mod", "iscsi_target_mod"),
        file_modules=("target_core_file",),
        block_modules=("target_core_iblock",),
        initiator_folders=initiator.RECORDS,
        versions={"open-iscsi": ("iscsiadm", "--version")},
        export_title="an iSCSI target",
        session_title="an iSCSI session",
        server="LIO",
    ),
)
