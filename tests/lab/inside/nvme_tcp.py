"""NVMe/TCP: an export, its disk, what was agreed on, and how it goes, over one link.

`python -m tests.lab.inside.nvme_tcp`, on the lab's own kernel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.model import NVME_TCP, BackingKind
from harness.model.errors import CellInvalid, CommandFailed
from harness.network import links
from harness.network.links import LinkPath
from harness.parse.profiles import load_link
from harness.runs import executor, leftovers
from harness.storage import guard, transports
from harness.storage.nvme import transport as nvme
from harness.storage.nvme.transport import NvmeSides, shared
from harness.storage.transport import Export, Lun, NoAnswer, Session, Sides
from tests.lab.inside.kernel import sh, wait_for

TAG = "beef"
FOLDER = Path("/run/nvme-tcp")
NVMET = Path("/sys/kernel/config/nvmet")
DEVICE = "/dev/ram0"
SIZE_MIB = 64
LUN = Lun(serial=f"harness-{TAG}-0", kind=BackingKind.BLOCK, path=DEVICE, size_bytes=SIZE_MIB << 20)
OWN = "nqn.2003-01.org.example:own"


def export(path: LinkPath, name: str = "t", **more: object) -> Export:
    wanted = Export(
        name=name,
        number=0,
        lun=LUN,
        target=path.target,
        address=path.target_address,
        port=nvme.PORT,
        parameters={},
    )
    return dataclasses.replace(wanted, **more)  # type: ignore[arg-type]


def moves(device: str, kind: str) -> int:
    """The bytes of a second's I/O, each block verified."""
    verify = ["--verify=crc32c", "--do_verify=1"] if "write" in kind else []
    done = subprocess.run(
        ["fio", "--name=x", f"--filename={device}", f"--rw={kind}", "--bs=64k", "--size=8m", "--direct=1"]
        + ["--output-format=json", *verify],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    return int(job["read"]["io_bytes"] + job["write"]["io_bytes"])


@contextlib.contextmanager
def refused(words: str, kind: type[CommandFailed] = CommandFailed) -> Iterator[None]:
    try:
        yield
    except CommandFailed as error:
        assert type(error) is kind and words in error.message, repr(error)
        print(error.message)
    else:
        raise AssertionError(f"expected to be refused: {words}")


def user_s_own() -> None:
    """Somebody else's subsystem and port, which stay as they are."""
    (NVMET / "subsystems" / OWN).mkdir()
    (NVMET / "ports/1").mkdir()
    (NVMET / "ports/1/addr_traddr").write_text("10.9.0.1")


def tree() -> list[str]:
    return sorted(str(path) for path in NVMET.rglob("*"))


def a_disk_comes_and_goes(up: NvmeSides, path: LinkPath) -> None:
    before = guard.inspect(path.target, DEVICE)
    with up.attach(export(path)) as session:
        print(json.dumps(session.agreed))
        assert session.agreed["in_capsule_bytes"] == "16384" and session.agreed["transport"] == "tcp"
        # The lab has one processor, for which the kernel would choose mq-deadline.
        assert session.agreed["scheduler"].startswith("[none]"), session.agreed
        session.disk.check()
        for kind in ("randwrite", "randread"):
            assert moves(session.disk.device, kind) >= 8 << 20
        (use,) = guard.inspect(path.target, DEVICE).uses
        assert use.what == f"it is exported over NVMe by the subsystem {nvme.nqn(TAG, 't')}", use
        guard.recheck(path.target, before)
    assert not list(Path("/sys/block").glob("nvme*"))
    # Two on one port; the first goes, the second stays.
    with up.attach(export(path, "second")) as session:
        with up.attach(export(path, "first")) as other:
            assert other.disk.device != session.disk.device
        session.disk.check()
    with up.attach(export(path, "unwritable", read_only=True)) as session:
        argv = ["dd", "if=/dev/zero", f"of={session.disk.device}", "bs=4k", "count=1", "oflag=direct"]
        done = sh(*argv, check=False)
        assert "Read-only" in done or "not permitted" in done, done


def what_is_asked_for_is_agreed_on(up: NvmeSides, path: LinkPath) -> None:
    asked = {"queue_size": "32", "header_digest": "Yes", "data_digest": "Yes", "inline_data_bytes": "8192"}
    with up.attach(export(path, "asked", parameters=asked)) as session:
        agreed = session.agreed
        assert (agreed["sqsize"], agreed["in_capsule_bytes"]) == ("31", "8192"), agreed
        assert moves(session.disk.device, "randwrite") >= 8 << 20
    made, stranger = export(path, "mine"), dataclasses.replace(up, nonce="stranger")
    with up.export(made), refused("no NVMe/TCP connection to"), stranger.connect(made):
        pass
    # Nobody listens any more.
    with refused("Connection refused", NoAnswer), stranger.connect(made):
        pass


def what_vanishes(up: NvmeSides, path: LinkPath) -> None:
    """The export goes under a session, and the whole target; what is left is swept all the same."""

    def is_noticed(session: Session) -> bool:
        try:
            session.disk.check()
        except CellInvalid as error:
            print(error.message)
            return True
        return False

    with up.attach(export(path, "gone")) as session:
        (made,) = up.exports(export(path, "gone"))
        (step,) = made.undo()
        path.target.run(step.argv, input=step.input)
        wait_for(lambda: is_noticed(session), "the disk's loss", deadline_s=10)
    with up.attach(export(path, "gone")) as session:
        sh("ip", "link", "set", path.initiator_iface, "down")
        wait_for(lambda: is_noticed(session), "the link's loss", deadline_s=30)
    sh("ip", "link", "set", path.initiator_iface, "up")
    assert not list(Path("/sys/block").glob("nvme*"))


def what_a_crash_leaves(up: NvmeSides, path: LinkPath) -> None:
    """As after SIGKILL: the journal is all that is known, and half of an export is there too."""
    whole = export(path, "crash")
    (of,), (_, made), (half,) = up.exports(whole), up.connections(whole), up.exports(export(path, "half"))
    of.acquire(path.target)
    made.acquire(path.initiator)
    (NVMET / "subsystems" / half.name).mkdir()
    found = [line for line in leftovers.find(path.initiator, TAG) if "NVMe" in line or "nvmet" in line]
    assert [line.split(" nqn.")[0] for line in found] == [
        "the NVMe/TCP connection to",
        "the NVMe subsystem",
        "the NVMe subsystem",
        "the entry of the NVMe host",
    ], found
    for _ in range(2):  # what is absent is no error
        for host, resource in ((path.initiator, made), (path.target, of), (path.target, half)):
            for step in resource.undo():
                host.run(step.argv, input=step.input)
    assert not [line for line in leftovers.find(path.initiator, TAG) if "NVMe" in line or "nvmet" in line]


def main() -> None:
    FOLDER.mkdir()
    executor.mount_private()
    transport = transports.named(NVME_TCP)
    for module in (*transport.modules("target", ()), *transport.modules("initiator", ())):
        sh("modprobe", module)
    sh("modprobe", "brd", f"rd_size={SIZE_MIB << 10}", "rd_nr=1")
    near = NamespaceHost("initiator")
    journal = Journal(FOLDER / "journal.jsonl")
    sides = Sides(journal=journal, tag=TAG, target=near, initiators=(near,), luns=(LUN,), logs=FOLDER)
    with shared(sides) as up:
        user_s_own()
        before = tree()
        with links.bring_up(links.LinkPlace(journal, near, load_link("wired"), tag=TAG, index=3)) as path:
            path = dataclasses.replace(path, port=transport.port)
            a_disk_comes_and_goes(up, path)
            what_is_asked_for_is_agreed_on(up, path)
            what_vanishes(up, path)
            what_a_crash_leaves(up, path)
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    assert tree() == before, set(tree()) ^ set(before)


if __name__ == "__main__":
    main()
