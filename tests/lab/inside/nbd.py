"""NBD: an export, its disk, what was agreed on, and how it goes, over one link.

`python -m tests.lab.inside.nbd`, on any kernel of the lab.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
from pathlib import Path

from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.model import NBD
from harness.network import links
from harness.network.links import LinkPath
from harness.parse.profiles import load_link
from harness.runs import executor, leftovers
from harness.storage import guard, transports
from harness.storage.nbd import transport as nbd
from harness.storage.nbd.transport import FOLDER as PORTALS
from harness.storage.nbd.transport import NbdSides, shared
from harness.storage.transport import NoAnswer, Sides
from tests.lab.inside import nvme_tcp
from tests.lab.inside.kernel import sh
from tests.lab.inside.nvme_tcp import DEVICE, LUN, SIZE_MIB, TAG, moves, refused

FOLDER = Path("/run/nbd-in-lab")
export = functools.partial(nvme_tcp.export, port=nbd.PORT)


def disks() -> list[Path]:
    """Those of somebody: a disk of the kernel's that is not connected has no process."""
    return list(Path("/sys/block").glob("nbd*/pid"))


def servers() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if file.read_text() == "nbdkit\n":
                found.append(file.parent.name)
    return found


def a_disk_comes_and_goes(up: NbdSides, path: LinkPath) -> None:
    before = guard.inspect(path.target, DEVICE)
    with up.attach(export(path, bound_to=path.initiator_iface)) as session:
        print(json.dumps(session.agreed))
        assert session.agreed["connections"] == "1" and session.agreed["read_only"] == "0"
        # The lab has one processor, for which the kernel would choose mq-deadline.
        assert session.agreed["scheduler"].startswith("[none]"), session.agreed
        session.disk.check()
        for kind in ("randwrite", "randread"):
            assert moves(session.disk.device, kind) >= 8 << 20
        # What it has written is on the device, and its process is no other writer.
        (use,) = guard.inspect(path.target, DEVICE).uses
        portal = f"{path.target_address}-{nbd.PORT}"
        assert use.what == f"it is exported over NBD at the portal {portal}" and use.is_export, use
        guard.recheck(path.target, before)
    assert not disks() and not servers() and not Path(PORTALS).exists()
    # Two at one portal; the first goes, the second stays.
    with up.attach(export(path, "second")) as session:
        with up.attach(export(path, "first")) as other:
            assert other.disk.device != session.disk.device
            assert len(servers()) == 1, servers()
        session.disk.check()
        assert moves(session.disk.device, "randread") >= 8 << 20
    with up.attach(export(path, "unwritable", read_only=True)) as session:
        argv = ["dd", "if=/dev/zero", f"of={session.disk.device}", "bs=4k", "count=1", "oflag=direct"]
        done = sh(*argv, check=False)
        assert "Read-only" in done or "not permitted" in done, done
        # Nor would the server take it: its clients are told.
        assert session.agreed["read_only"] == "1"


def who_is_refused(up: NbdSides, path: LinkPath) -> None:
    made, stranger = export(path, "secret"), dataclasses.replace(up, nonce="guessed")
    with up.export(made):
        with refused("no NBD connection to"), stranger.connect(made):
            pass
        reader = dataclasses.replace(made, read_only=True)
        with refused("expected a server that refuses writes"), up.connect(reader):
            pass
    # Nobody listens any more.
    with refused("Connection refused", NoAnswer), stranger.connect(made):
        pass
    assert not disks()


def what_vanishes(up: NbdSides, path: LinkPath) -> None:
    """The server goes under a session: its I/O fails at once, and what is left is swept all the same."""
    with up.attach(export(path, "gone")) as session:
        for process in servers():
            os.kill(int(process), signal.SIGKILL)
        done = sh(
            "dd", f"if={session.disk.device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct", check=False
        )
        assert "Input/output error" in done, done
    assert not disks() and not Path(PORTALS).exists()


def what_a_crash_leaves(up: NbdSides, path: LinkPath) -> None:
    """As after SIGKILL: the journal is all that is known, and half of an export is there too."""
    whole, part = export(path, "crash"), export(path, "half", port=nbd.PORT + 1)
    (of,), (_, made), (half,) = up.exports(whole), up.connections(whole), up.exports(part)
    of.acquire(path.target)
    made.acquire(path.initiator)
    Path(PORTALS, TAG, f"{part.address}-{part.port}", "exports").mkdir(parents=True)
    found = [line for line in leftovers.find(path.initiator, TAG) if "NBD" in line]
    assert found == [
        f"the NBD connection to {made.name} is still there",
        f"the NBD portal {whole.address}-{whole.port} is still there",
        f"the NBD portal {part.address}-{part.port} is still there",
    ], found
    for _ in range(2):  # what is absent is no error
        for host, resource in ((path.initiator, made), (path.target, of), (path.target, half)):
            for step in resource.undo():
                host.run(step.argv, input=step.input)
    assert not [line for line in leftovers.find(path.initiator, TAG) if "NBD" in line]
    assert not disks() and not servers()


def main() -> None:
    FOLDER.mkdir()
    executor.mount_private()
    transport = transports.named(NBD)
    for module in (*transport.modules("target", ()), *transport.modules("initiator", ())):
        sh("modprobe", *module.split())
    sh("modprobe", "brd", f"rd_size={SIZE_MIB << 10}", "rd_nr=1")
    near = NamespaceHost("initiator")
    journal = Journal(FOLDER / "journal.jsonl")
    sides = Sides(journal=journal, tag=TAG, target=near, initiators=(near,), luns=(LUN,), logs=FOLDER)
    with (
        shared(sides) as up,
        links.bring_up(links.LinkPlace(journal, near, load_link("wired"), tag=TAG, index=3)) as path,
    ):
        path = dataclasses.replace(path, port=transport.port)
        a_disk_comes_and_goes(up, path)
        who_is_refused(up, path)
        what_vanishes(up, path)
        what_a_crash_leaves(up, path)
    assert not journal.leaks and not journal.open_entries(), journal.leaks


if __name__ == "__main__":
    main()
