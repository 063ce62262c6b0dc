"""NBD: an export, its disk, what was agreed on, and how it goes, over one link, on any kernel of the lab."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from pathlib import Path

from harness.network.links import LinkPath
from harness.runs import leftovers
from harness.storage.nbd import transport as nbd
from harness.storage.nbd.transport import FOLDER as PORTALS
from harness.storage.nbd.transport import NbdSides, shared
from harness.storage.transport import NoAnswer
from tests.lab.inside.exports import refused
from tests.lab.inside.kernel import sh
from tests.lab.inside.one_export import TAG, comes, crashes, export, is_unwritable, moves, over_a_link


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
    used = f"it is exported over NBD at the portal {path.target_address}-{nbd.PORT}"
    # What it has written is on the device, and its process is no other writer.
    agreed = comes(up, export(path, bound_to=path.initiator_iface), used)
    assert agreed["connections"] == "1" and agreed["read_only"] == "0"
    assert not disks() and not servers() and not Path(PORTALS).exists()
    # Two at one portal; the first goes, the second stays.
    with up.attach(export(path, "second")) as session:
        with up.attach(export(path, "first")) as other:
            assert other.disk.device != session.disk.device
            assert len(servers()) == 1, servers()
        session.disk.check()
        assert moves(session.disk.device, "randread") >= 8 << 20
    with up.attach(export(path, "unwritable", read_only=True)) as session:
        is_unwritable(session)
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
        words = (f"if={session.disk.device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct")
        done = sh("dd", *words, check=False)
        assert "Input/output error" in done, done
    assert not disks() and not Path(PORTALS).exists()


def what_a_crash_leaves(up: NbdSides, path: LinkPath) -> None:
    whole, part = export(path, "crash"), export(path, "half", port=nbd.PORT + 1)
    (of,), (_, made), (half,) = up.exports(whole), up.connections(whole), up.exports(part)

    def left() -> list[str]:
        return [line for line in leftovers.find(path.initiator, TAG) if "NBD" in line]

    with crashes(path, of, made, half):
        Path(PORTALS, TAG, f"{part.address}-{part.port}", "exports").mkdir(parents=True)
        assert left() == [
            f"the NBD connection to {made.name} is still there",
            f"the NBD portal {whole.address}-{whole.port} is still there",
            f"the NBD portal {part.address}-{part.port} is still there",
        ], left()
    assert not left() and not disks() and not servers()


def main() -> None:
    with over_a_link(nbd.NAME, shared, Path("/run/nbd-in-lab")) as (up, path):
        for part in (a_disk_comes_and_goes, who_is_refused, what_vanishes, what_a_crash_leaves):
            part(up, path)


if __name__ == "__main__":
    main()
