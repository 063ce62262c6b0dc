"""Whether a machine can do its part in a run, tried on a small scale; all of it is undone again.

A check finds what is missing (``harness.testbeds.requirements``). Only a trial finds what forbids it: an
AppArmor profile, an iscsid that answers to somebody else, a kernel without an algorithm.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import PRIVATE, Host, programs
from harness.hosts.journal import Journal
from harness.model import (
    ISCSI,
    MACSEC,
    MACSEC_MKA,
    NVME_TCP,
    PROTECTIONS,
    TLS,
    WIREGUARD,
    Backing,
    BackingKind,
)
from harness.model.errors import CommandFailed, HarnessError, HostLost, RequirementError
from harness.protection import ipsec, kinds, mka, overlay, xfrm
from harness.protection.ipsec import charon
from harness.results.planned import default_file
from harness.storage import backing, configfs, nvme, transports
from harness.storage.iscsi import initiator, target
from harness.storage.iscsi.initiator import IscsiSession
from harness.storage.iscsi.target import Backstore, IscsiTarget, iqn
from harness.storage.nvme.initiator import Connection
from harness.storage.nvme.target import Subsystem
from harness.storage.transport import Export, Lun, NoAnswer, Sides
from harness.testbeds.requirements import Asked, modules

LOOPBACK = "127.0.0.1"
PORT = target.PORT + xfrm.PORTS_COVERED
NVME_PORT = nvme.PORT + xfrm.PORTS_COVERED
"""Of a run's first column. The machine's own targets use the port below, perhaps on every address."""

SIZE_BYTES = 4 << 20
CHAP_USER = "harness"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was tried, as the end of a sentence, and why it failed; None if it went well."""

    what: str
    error: HarnessError | None = None


def of(host: Host, role: str, folder: Path, asked: Asked) -> Iterator[Outcome]:
    """Try all that is asked of a role, on a host that lacks nothing. HostLost if it is lost meanwhile.

    ``folder`` is for logs.
    """
    journal = Journal(folder / "journal.jsonl")
    tag = secrets.token_hex(2)

    def outcome(what: str, attempt: Callable[[], str | None]) -> Outcome:
        """Run ``attempt``, which may return a better description of what it tried."""
        try:
            return Outcome(what=attempt() or what)
        except HostLost:
            raise
        except (HarnessError, OSError) as error:
            return Outcome(
                what=what, error=error if isinstance(error, HarnessError) else CommandFailed(str(error))
            )

    for transport in asked.transports:
        what, attempt = TRANSPORTS[transport, role]
        yield outcome(what, functools.partial(attempt, journal, host, tag, folder))
    if asked.has_ipsec:
        port = ipsec.IKE_PORT if role == "target" else charon.ANY_PORT
        yield outcome("an IKE daemon", lambda: _start_charon(host, folder, port))
        yield outcome("an ESP packet and its capture", lambda: _capture(host))
    for name in asked.protections:
        if name in PROTECTIONS:
            yield outcome(PROTECTIONS[name], functools.partial(_protect, host, name))
    for leak in journal.leaks:
        yield Outcome(what="to undo all that", error=CommandFailed(leak))


def _export(journal: Journal, host: Host, tag: str, folder: Path) -> None:
    del folder  # nothing is logged
    with _target(journal, host, tag, secrets.token_hex(8)):
        pass


@contextlib.contextmanager
def _target(journal: Journal, host: Host, tag: str, secret: str) -> Iterator[IscsiTarget]:
    """A target of a few MiB of memory, on loopback."""
    for module in modules("target", ISCSI):
        host.run(["modprobe", module])
    target.mount_configfs(host)
    name, image = f"harness-{tag}-0", str(PRIVATE / f"trial-{tag}.img")
    host.run(["truncate", f"--size={SIZE_BYTES}", image])
    made = IscsiTarget(
        iqn=iqn(tag, "trial"),
        backstore=name,
        address=LOOPBACK,
        port=PORT,
        initiator_iqn=iqn(tag, "initiator"),
        chap_user=CHAP_USER,
        secret=secret,
    )
    try:
        with (
            journal.hold(host, Backstore(name, BackingKind.FILE, image, SIZE_BYTES, name)),
            journal.hold(host, made),
        ):
            yield made
    finally:
        host.run(["rm", "-f", image])


def _log_in(journal: Journal, host: Host, tag: str, folder: Path) -> str:
    """Log in to a target on the machine itself; without LIO, to nobody, so that iscsid has to refuse."""
    for module in modules("initiator", ISCSI):
        host.run(["modprobe", module])
    secret, name = secrets.token_hex(8), iqn(tag, "initiator")
    session = IscsiSession(iqn(tag, "trial"), LOOPBACK, PORT, name)
    with contextlib.ExitStack() as stack:
        log = folder / "iscsid.log"
        stack.enter_context(
            initiator.iscsid(journal, host, initiator_iqn=name, chap_user=CHAP_USER, secret=secret, log=log)
        )
        if not _has_lio(host):
            _be_refused(journal, host, session)
            return "iscsid, which answers (a whole session would need LIO here)"
        stack.enter_context(_target(journal, host, tag, secret))
        stack.enter_context(journal.hold(host, session))
        disk = initiator.await_disk(host, session, serial=f"harness-{tag}-0")
        return f"an iSCSI session to itself, which was {disk.device}"


def _be_refused(journal: Journal, host: Host, session: IscsiSession | Connection) -> None:
    with contextlib.suppress(NoAnswer), journal.hold(host, session):
        raise CommandFailed(
            f"expected nobody at {LOOPBACK}:{session.port}, found a target that accepted the login"
        )


def _has_lio(host: Host) -> bool:
    python = host.run([programs.PYTHON, "-I", "-c", "import rtslib_fb"], check=False)
    return python.status == 0 and _can_be_target(host, ISCSI)


def _can_be_target(host: Host, transport: str) -> bool:
    names = modules("target", transport)
    return all(
        host.run(["modprobe", "--dry-run", "--quiet", name], check=False).status == 0 for name in names
    )


# NVMe/TCP


@contextlib.contextmanager
def _image(journal: Journal, host: Host, tag: str) -> Iterator[Lun]:
    """A file where a run has its own by default: nvmet wants one around the page cache, which not every
    kernel's memory can do."""
    path = default_file(f"trial-{tag}")
    wanted = Backing(kind=BackingKind.FILE, path=path, size_bytes=SIZE_BYTES)
    with backing.bring_up(journal, host, wanted):
        yield Lun(serial=f"harness-{tag}-0", kind=BackingKind.FILE, path=path, size_bytes=SIZE_BYTES)


def _export_nvme(journal: Journal, host: Host, tag: str, folder: Path) -> None:
    del folder  # nothing is logged
    for module in modules("target", NVME_TCP):
        host.run(["modprobe", module])
    configfs.mount(host, "nvmet")
    with _image(journal, host, tag) as lun:
        names = (nvme.nqn(tag, "trial"), lun.serial, lun.path, LOOPBACK, NVME_PORT, nvme.nqn(tag, "nobody"))
        with journal.hold(host, Subsystem(*names)):
            pass


def _connect(journal: Journal, host: Host, tag: str, folder: Path) -> str:
    """Connect to a target on the machine itself, as a run does; without nvmet, to nobody."""
    for module in modules("initiator", NVME_TCP):
        host.run(["modprobe", module])
    if not _can_be_target(host, NVME_TCP):
        nobody = Connection(nvme.nqn(tag, "trial"), LOOPBACK, NVME_PORT, nvme.nqn(tag, "initiator"))
        _be_refused(journal, host, nobody)
        return "NVMe/TCP, to nobody (a whole connection would need nvmet here)"
    for module in modules("target", NVME_TCP):
        host.run(["modprobe", module])
    with _image(journal, host, tag) as lun:
        sides = Sides(journal=journal, tag=tag, target=host, initiators=(host,), luns=(lun,), logs=folder)
        wanted = Export(
            name="trial",
            number=0,
            lun=lun,
            target=host,
            address=LOOPBACK,
            port=NVME_PORT,
            parameters={},
        )
        with transports.named(NVME_TCP).shared(sides) as up, up.attach(wanted) as session:
            return f"an NVMe/TCP connection to itself, which was {session.disk.device}"


TRANSPORTS: dict[tuple[str, str], tuple[str, Callable[[Journal, Host, str, Path], str | None]]] = {
    (ISCSI, "target"): ("an iSCSI target", _export),
    (ISCSI, "initiator"): ("an iSCSI session", _log_in),
    (NVME_TCP, "target"): ("an NVMe/TCP subsystem", _export_nvme),
    (NVME_TCP, "initiator"): ("an NVMe/TCP connection", _connect),
}
"""What is tried of a transport in a role, as the end of a sentence, and how."""


# Protection


def _protect(host: Host, name: str) -> str:
    """An interface of a protection that is no proposal."""
    if name == TLS:
        raise RequirementError(
            "TLS is not possible yet over an interface that others use as well, as those of machines are",
            hint="leave it out, or measure it in the lab",
        )
    overlay.require_on(host, kinds.OTHERS[name], PROTECTIONS[name])
    host.run(["unshare", "--net", "sh", "-euc", INTERFACES[name]])
    return f"an interface of {PROTECTIONS[name]}"


_OF_MACSEC = """
ip link add name below type veth peer name other
ip link add link below name above type macsec encrypt on validate strict
"""
INTERFACES = {
    WIREGUARD: "ip link add name above type wireguard",
    MACSEC: _OF_MACSEC,
    MACSEC_MKA: f"{mka.PROGRAM} -v\n{_OF_MACSEC}",
}
"""For sh(1), in a network namespace with which they go."""


def _start_charon(host: Host, folder: Path, port: int) -> None:
    place, log = PRIVATE / "charon-trial", folder / "charon.log"
    with charon.running(host, place, log=log, plugins=charon.BASE_PLUGINS, port=port):
        pass  # by now it has answered


def _capture(host: Host) -> None:
    program = programs.source(ipsec.__name__, "esp")
    done = host.run(["unshare", "--net", programs.PYTHON, "-I", "-c", program], check=False)
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(words[-1])
