"""NVMe/TCP: an export, its disk, what was agreed on, and how it goes, over one link; on the custom kernel."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.model.errors import CellInvalid
from harness.network.links import LinkPath
from harness.runs import leftovers
from harness.storage.nvme import transport as nvme
from harness.storage.nvme.transport import NvmeSides, shared
from harness.storage.transport import NoAnswer, Session
from tests.lab.inside.exports import refused
from tests.lab.inside.kernel import sh, wait_for
from tests.lab.inside.one_export import TAG, comes, crashes, export, is_unwritable, moves, over_a_link

NVMET = Path("/sys/kernel/config/nvmet")
OWN = "nqn.2003-01.org.example:own"


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
    with over_a_link(nvme.NAME, shared, Path("/run/nvme-tcp")) as (up, path):
        user_s_own()
        before = tree()
        a_disk_comes_and_goes(up, path)
        what_is_asked_for_is_agreed_on(up, path)
        what_vanishes(up, path)
        what_a_crash_leaves(up, path)
    assert tree() == before, set(tree()) ^ set(before)


if __name__ == "__main__":
    main()
