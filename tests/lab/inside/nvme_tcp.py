"""NVMe/TCP: an export, its disk, what was agreed on, and how it goes, over one link; on the custom kernel."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from harness.hosts.journal import Resource
from harness.model import NVME_TCP
from harness.model.errors import CellInvalid
from harness.network.links import LinkPath
from harness.runs import leftovers
from harness.storage import guard
from harness.storage.nvme import transport as nvme
from harness.storage.nvme.transport import NvmeSides, shared
from harness.storage.transport import Export, NoAnswer, Session, Shared, Sides
from tests.lab.inside import exports
from tests.lab.inside.exports import journal_in, refused
from tests.lab.inside.kernel import modprobe, sh, wait_for

Up = TypeVar("Up", bound=Shared)
TAG = "beef"
NVMET = Path("/sys/kernel/config/nvmet")
DEVICE = "/dev/ram0"
SIZE_MIB = 64
LUN = exports.lun(TAG, DEVICE, SIZE_MIB << 20)
OWN = "nqn.2003-01.org.example:own"


@contextlib.contextmanager
def over_a_link(
    name: str, shared: Callable[[Sides], AbstractContextManager[Up]], folder: Path
) -> Iterator[tuple[Up, LinkPath]]:
    """What the exports of a transport share, and a link for them."""
    transport = exports.load(name)
    modprobe(f"brd rd_size={SIZE_MIB << 10} rd_nr=1")
    with (
        journal_in(folder) as journal,
        shared(exports.sides(journal, TAG, LUN, folder)) as up,
        exports.link(journal, "wired", tag=TAG, port=transport.port) as path,
    ):
        yield up, path


def export(path: LinkPath, name: str = "t", **more: object) -> Export:
    return dataclasses.replace(exports.export(path, LUN, name), **more)  # type: ignore[arg-type]


def moves(device: str, kind: str) -> int:
    """The bytes of a second's I/O, each block verified."""
    verify = ["--verify=crc32c", "--do_verify=1"] if "write" in kind else []
    words = [f"--filename={device}", f"--rw={kind}", "--bs=64k", "--size=8m", "--direct=1", *verify]
    done = subprocess.run(["fio", "--name=x", "--output-format=json", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    return int(job["read"]["io_bytes"] + job["write"]["io_bytes"])


def comes(up: Shared, wanted: Export, used: str) -> Mapping[str, str]:
    """A disk moves what it is asked to, and the guard knows whose the device is; what was agreed on."""
    before = guard.inspect(wanted.target, DEVICE)
    with up.attach(wanted) as session:
        print(json.dumps(session.agreed))
        # The lab has one processor, for which the kernel would choose mq-deadline.
        assert session.agreed["scheduler"].startswith("[none]"), session.agreed
        session.disk.check()
        for kind in ("randwrite", "randread"):
            assert moves(session.disk.device, kind) >= 8 << 20
        (use,) = guard.inspect(wanted.target, DEVICE).uses
        assert use.what == used and use.is_export, use
        guard.recheck(wanted.target, before)
        return session.agreed


def is_unwritable(session: Session) -> None:
    words = ("if=/dev/zero", f"of={session.disk.device}", "bs=4k", "count=1", "oflag=direct")
    done = sh("dd", *words, check=False)
    assert "Read-only" in done or "not permitted" in done, done


@contextlib.contextmanager
def crashes(path: LinkPath, of: Resource, made: Resource, half: Resource) -> Iterator[None]:
    """As after SIGKILL: an export and a connection, of which the journal is all that is known; undone after
    the context, with half an export that was made in it."""
    of.acquire(path.target)
    made.acquire(path.initiator)
    yield
    for _ in range(2):  # what is absent is no error
        for host, resource in ((path.initiator, made), (path.target, of), (path.target, half)):
            for step in resource.undo():
                host.run(step.argv, input=step.input)


def user_s_own() -> None:
    (NVMET / "subsystems" / OWN).mkdir()
    (NVMET / "ports/1").mkdir()
    (NVMET / "ports/1/addr_traddr").write_text("10.9.0.1")


def tree() -> list[str]:
    return sorted(str(path) for path in NVMET.rglob("*"))


def disks() -> list[Path]:
    return list(Path("/sys/block").glob("nvme*"))


def a_disk_comes_and_goes(up: NvmeSides, path: LinkPath) -> None:
    agreed = comes(up, export(path), f"it is exported over NVMe by the subsystem {nvme.nqn(TAG, 't')}")
    assert agreed["in_capsule_bytes"] == "16384" and agreed["transport"] == "tcp"
    assert not disks()
    # Two on one port; the first goes, the second stays.
    with up.attach(export(path, "second")) as session:
        with up.attach(export(path, "first")) as other:
            assert other.disk.device != session.disk.device
        session.disk.check()
    with up.attach(export(path, "unwritable", read_only=True)) as session:
        is_unwritable(session)


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
    assert not disks()


def what_a_crash_leaves(up: NvmeSides, path: LinkPath) -> None:
    whole = export(path, "crash")
    (of,), (_, made), (half,) = up.exports(whole), up.connections(whole), up.exports(export(path, "half"))

    def left() -> list[str]:
        found = leftovers.find(path.initiator, TAG)
        return [line.split(" nqn.")[0] for line in found if "NVMe" in line or "nvmet" in line]

    with crashes(path, of, made, half):
        (NVMET / "subsystems" / half.name).mkdir()
        assert left() == [
            "the NVMe/TCP connection to",
            "the NVMe subsystem",
            "the NVMe subsystem",
            "the entry of the NVMe host",
        ], left()
    assert not left()


def main() -> None:
    with over_a_link(NVME_TCP, shared, Path("/run/nvme-tcp")) as (up, path):
        user_s_own()
        before = tree()
        a_disk_comes_and_goes(up, path)
        what_is_asked_for_is_agreed_on(up, path)
        what_vanishes(up, path)
        what_a_crash_leaves(up, path)
    assert tree() == before, set(tree()) ^ set(before)


if __name__ == "__main__":
    main()
