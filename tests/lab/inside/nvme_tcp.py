"""NVMe/TCP: an export, its disk, what was agreed on, and how it goes; over a plain link and over WireGuard.

`python -m tests.lab.inside.nvme_tcp`, on the lab's own kernel.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness import inside, links, nvme, overlay, programs, wireguard
from harness.errors import CellInvalid, CommandFailed
from harness.hosts import NamespaceHost
from harness.journal import Journal
from harness.links import LinkPath
from harness.nvme import Connection, Export, NvmeDisk
from harness.profiles import load_link
from harness.target import mount_configfs
from tests.lab.inside.kernel import sh, wait_for
from tests.lab.inside.overlays import JOBS, TAG, Count, fio, knocks, ramdisk

FOLDER = Path("/run/overlays")
NVMET = Path("/sys/kernel/config/nvmet")
SERIAL = f"harness-{TAG}-0"
HOST = nvme.nqn(TAG, "initiator")
OWN = "nqn.2003-01.org.example:own"


def export(path: LinkPath, device: str, name: str = "t", **parameters: str) -> Export:
    return Export(nvme.nqn(TAG, name), SERIAL, device, path.target_address, nvme.PORT, HOST, parameters)


def connection(of: Export, **parameters: str) -> Connection:
    return Connection(of.nqn, of.address, of.port, of.host_nqn, parameters=parameters)


@contextlib.contextmanager
def disk(
    journal: Journal, path: LinkPath, of: Export, made: Connection
) -> Iterator[tuple[NvmeDisk, dict[str, str]]]:
    near = path.initiator
    with journal.hold(path.target, of), journal.hold(near, made):
        found = nvme.await_disk(near, made, serial=SERIAL)
        agreed = nvme.negotiated(near, made)
        nvme.require_agreed(made.parameters, agreed)
        yield found, agreed


def measured(path: LinkPath, device: str) -> None:
    for kind, block in JOBS:
        before = Count.now(path.initiator_iface)
        moved, mb_s = fio(device, kind, block)
        counted = before.grown(Count.now(path.initiator_iface))
        assert max(counted.tx_bytes, counted.rx_bytes) > moved
        print(f"{kind} {block}: {mb_s:.1f} MB/s, {moved} bytes of data; the link {counted}")


def refused(path: LinkPath, of: Export, made: Connection, words: str) -> None:
    try:
        with disk(Journal(FOLDER / "refused.jsonl"), path, of, made):
            pass
    except CommandFailed as error:
        assert words in error.message, error.message
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


def over_a_plain_link(journal: Journal, path: LinkPath, device: str) -> None:
    of = export(path, device)
    with disk(journal, path, of, connection(of)) as (found, agreed):
        print(json.dumps(agreed))
        assert agreed["in_capsule_bytes"] == "16384" and agreed["transport"] == "tcp", agreed
        found.check()
        measured(path, found.device)
    assert not list(Path("/sys/block").glob("nvme*"))
    # What is asked for is agreed on, or refused.
    of = export(path, device, "asked", inline_data_bytes="8192")
    asked = connection(of, queues="1", queue_size="32", header_digest="Yes", data_digest="Yes")
    with disk(journal, path, of, asked) as (found, agreed):
        print(json.dumps(agreed))
        assert (agreed["queue_count"], agreed["sqsize"], agreed["in_capsule_bytes"]) == ("2", "31", "8192")
        measured(path, found.device)
    refused(path, of, connection(of, queues="99"), "queues of 99 was asked for")
    stranger = msgspec.structs.replace(connection(of), host_nqn=nvme.nqn(TAG, "stranger"))
    refused(path, of, stranger, "no NVMe/TCP connection to")
    # Two on one port; the first goes, the second stays.
    first, second = export(path, device, "a"), export(path, device, "b")
    with disk(journal, path, second, connection(second)) as (found, _):
        with disk(journal, path, first, connection(first)) as (other, _):
            assert other.device != found.device
        found.check()
    read_only = msgspec.structs.replace(connection(first), read_only=True)
    with disk(journal, path, first, read_only) as (found, _):
        done = sh("dd", "if=/dev/zero", f"of={found.device}", "bs=4k", "count=1", "oflag=direct", check=False)
        assert "Read-only" in done or "not permitted" in done, done


def what_vanishes(journal: Journal, path: LinkPath, device: str) -> None:
    """The export goes under a session, and the whole target; what is left is swept all the same."""
    of = export(path, device, "gone")
    with disk(journal, path, of, connection(of)) as (found, _):
        (step,) = of.undo()
        path.target.run(step.argv, input=step.input)

        def is_noticed() -> bool:
            try:
                found.check()
            except CellInvalid as error:
                print(error.message)
                return True
            return False

        wait_for(is_noticed, "the disk's loss", deadline_s=10)
    with disk(journal, path, of, connection(of)) as (found, _):
        sh("ip", "link", "set", path.initiator_iface, "down")
        wait_for(is_noticed, "the link's loss", deadline_s=30)
    sh("ip", "link", "set", path.initiator_iface, "up")
    assert not list(Path("/sys/block").glob("nvme*")) and not journal.leaks, journal.leaks


def what_a_crash_leaves(path: LinkPath, device: str) -> None:
    """As after SIGKILL: the journal is all that is known, and half of an export is there too."""
    of = export(path, device, "crash")
    made = connection(of)
    of.acquire(path.target)
    made.acquire(path.initiator)
    (NVMET / "subsystems" / nvme.nqn(TAG, "half")).mkdir()
    half = msgspec.structs.replace(of, nqn=nvme.nqn(TAG, "half"))
    for _ in range(2):  # what is absent is no error
        for host, resource in ((path.initiator, made), (path.target, of), (path.target, half)):
            for step in resource.undo():
                host.run(step.argv, input=step.input)


def over_wireguard(journal: Journal, path: LinkPath, device: str) -> None:
    path = links.LinkPath(**{**vars(path), "port": nvme.PORT})
    within = overlay.inside(path, tag=TAG, level=0)
    mtu = path.profile.mtu_bytes
    with overlay.closed(journal, path, within), wireguard.tunnel(journal, path, tag=TAG, mtu_bytes=mtu):
        of = export(within, device)
        with disk(journal, within, of, connection(of)) as (found, _):
            measured(path, found.device)
        assert knocks(path.target_address, nvme.PORT) == "PermissionError"


def main() -> None:
    FOLDER.mkdir()
    inside.mount_private()
    for module in ("veth", "sch_netem", "xfrm_user", *wireguard.MODULES, *nvme.MODULES["target"]):
        sh("modprobe", module)
    for module in nvme.MODULES["initiator"]:
        sh("modprobe", module)
    device = ramdisk()
    near = NamespaceHost("initiator")
    mount_configfs(near)
    user_s_own()
    before = tree()
    journal = Journal(FOLDER / "journal.jsonl")
    print(sh(programs.PYTHON, "--version").strip())
    with links.bring_up(journal, near, load_link("wired"), tag=TAG, index=3) as path:
        over_a_plain_link(journal, path, device)
        what_vanishes(journal, path, device)
        what_a_crash_leaves(path, device)
        over_wireguard(journal, path, device)
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    assert tree() == before, set(tree()) ^ set(before)


if __name__ == "__main__":
    main()
