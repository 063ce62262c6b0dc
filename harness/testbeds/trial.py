"""Whether a machine can do its part in a run, tried on a small scale; all of it is undone again.

A check finds what is missing (``harness.testbeds.requirements``). Only a trial finds what forbids it: an
AppArmor profile, an iscsid that answers to somebody else, a kernel without an algorithm.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import PRIVATE, Host, programs
from harness.hosts.journal import Journal
from harness.model import ISCSI, BackingKind
from harness.model.errors import CommandFailed, HarnessError, HostLost
from harness.protection import ipsec, xfrm
from harness.protection.ipsec import charon
from harness.storage.iscsi import initiator, target
from harness.storage.iscsi.initiator import IscsiSession
from harness.storage.iscsi.target import Backstore, IscsiTarget, iqn
from harness.storage.transport import NoAnswer
from harness.testbeds.requirements import modules

LOOPBACK = "127.0.0.1"
PORT = target.PORT + xfrm.PORTS_COVERED
"""Of a run's first column. The machine's own targets use the port below, perhaps on every address."""

SIZE_BYTES = 4 << 20
CHAP_USER = "harness"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was tried, as the end of a sentence, and why it failed; None if it went well."""

    what: str
    error: HarnessError | None = None


def of(host: Host, role: str, folder: Path) -> Iterator[Outcome]:
    """Try all that a role needs, on a host that lacks nothing. HostLost if it is lost meanwhile.

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

    if role == "target":
        yield outcome("an iSCSI target", lambda: _export(journal, host, tag))
    else:
        yield outcome("an iSCSI session", lambda: _log_in(journal, host, tag, folder))
    port = ipsec.IKE_PORT if role == "target" else charon.ANY_PORT
    yield outcome("an IKE daemon", lambda: _start_charon(host, folder, port))
    yield outcome("an ESP packet and its capture", lambda: _capture(host))
    for leak in journal.leaks:
        yield Outcome(what="to undo all that", error=CommandFailed(leak))


def _export(journal: Journal, host: Host, tag: str) -> None:
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
            return _be_refused(journal, host, session)
        stack.enter_context(_target(journal, host, tag, secret))
        stack.enter_context(journal.hold(host, session))
        disk = initiator.await_disk(host, session, serial=f"harness-{tag}-0")
        return f"an iSCSI session to itself, which was {disk.device}"


def _be_refused(journal: Journal, host: Host, session: IscsiSession) -> str:
    try:
        with journal.hold(host, session):
            raise CommandFailed(
                f"expected nobody at {LOOPBACK}:{PORT}, found a target that accepted the login"
            )
    except NoAnswer:
        return "iscsid, which answers (a whole session would need LIO here)"


def _has_lio(host: Host) -> bool:
    python = host.run([programs.PYTHON, "-I", "-c", "import rtslib_fb"], check=False)
    names = modules("target", ISCSI)
    kernel = [host.run(["modprobe", "--dry-run", "--quiet", name], check=False) for name in names]
    return all(done.status == 0 for done in (python, *kernel))


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
