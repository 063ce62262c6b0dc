"""What scripts share that try one transport: a link, an export, its disk, and what a crash leaves of them."""

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
from harness.network.links import LinkPath
from harness.storage import guard
from harness.storage.transport import Export, Session, Shared, Sides
from tests.lab.inside import exports
from tests.lab.inside.exports import journal_in
from tests.lab.inside.kernel import modprobe, sh

Up = TypeVar("Up", bound=Shared)
TAG = "beef"
DEVICE = "/dev/ram0"
SIZE_MIB = 64
LUN = exports.lun(TAG, DEVICE, SIZE_MIB << 20)


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
