"""Targets with a cache and without one: are they told apart by reads alone?

`python -m tests.lab.inside.caches LINK [NAME]`, on the custom kernel; prints a `Judged` as a line of JSON
for each target, or for those whose name begins with NAME. The disks are modelled ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.analysis import reread as rule
from harness.hosts.journal import Journal
from harness.model import ISCSI, KERNEL_TARGETS, TRANSPORTS, BackingKind, kinds
from harness.model.reread import Reread
from harness.network.links import LinkPath
from harness.parse.disks import load_disk
from harness.storage import disks, reread
from tests.lab.inside import exports
from tests.lab.inside.exports import NEAR
from tests.lab.inside.kernel import modprobe, sh

FOLDER, MOUNT = Path("/run/caches"), Path("/run/caches-mounted")
TAG = "cafe"
SIZE_MIB = 64
WORDS = [f"word{number}" for number in range(400)]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A disk (of profiles/disks, ``ram``), what lies on it, and how it is served.

    ``on_top``: nothing, ``file`` (a file of ext4), ``loop`` (a loop device with the page cache) or
    ``direct`` (one without). ``served_as`` a file, LIO's page cache answers, as nbdkit's always does.
    ``data`` is random, ``half`` of it, ``none`` or ``words``.
    """

    transport: str = ISCSI
    disk: str = "sata-ssd"
    on_top: str = ""
    served_as: BackingKind = BackingKind.BLOCK
    data: str = "random"
    has_cache: bool = False

    @property
    def name(self) -> str:
        parts = (self.transport, self.disk, self.on_top, self.served_as.value, self.data)
        return " ".join(filter(None, parts))


PAST = [name for name, kind in kinds.TRANSPORTS.items() if not kind.page_cache]
CACHED = (
    Target(served_as=BackingKind.FILE),
    Target(disk="hdd-7200", served_as=BackingKind.FILE),
    Target(disk="nvme", on_top="file", served_as=BackingKind.FILE),
    *(Target(transport=name, disk=disk, on_top="loop") for name in PAST for disk in ("sata-ssd", "hdd-7200")),
    # A program reads through the page cache.
    *(
        Target(transport=name, disk=disk)
        for name in TRANSPORTS
        if name not in KERNEL_TARGETS
        for disk in ("sata-ssd", "hdd-7200")
    ),
    Target(data="half"),
    Target(disk="hdd-7200", on_top="file", served_as=BackingKind.FILE, data="none"),
    Target(data="words"),
)
UNCACHED = (
    Target(),
    Target(disk="hdd-7200"),
    Target(disk="nvme"),
    Target(disk="ram"),
    Target(on_top="direct"),
    *(
        Target(transport=name, disk=disk, on_top=on_top)
        for name in PAST
        for disk, on_top in (
            *(("sata-ssd", ""), ("hdd-7200", ""), ("nvme", ""), ("ram", "")),
            ("hdd-7200", "direct"),
        )
    ),
)
TARGETS = (*(msgspec.structs.replace(each, has_cache=True) for each in CACHED), *UNCACHED)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    link: str
    target: Target
    found: Reread


def fill(path: Path, data: str, size_mib: int) -> None:
    """Past the page cache, as long ago."""
    if data == "none":
        return
    if data == "words":
        chosen = " ".join(random.Random(1).choices(WORDS, k=1 << 19)).encode()  # noqa: S311
        source = FOLDER / "words"
        # Each time from another byte on, so that no block is like another one.
        turned = b"".join(chosen[999 * n :] + chosen[: 999 * n] for n in range(24))
        source.write_bytes(turned[: size_mib << 20])
    else:
        source = Path("/dev/urandom")
    count = size_mib // 2 if data == "half" else size_mib
    options = ("bs=1M", "iflag=fullblock", "oflag=direct", "conv=notrunc")
    sh("dd", f"if={source}", f"of={path}", f"count={count}", *options)


@contextlib.contextmanager
def on_top(disk: str, kind: str) -> Iterator[tuple[str, int]]:
    """What is exported, and its size in MiB."""
    if not kind:
        yield disk, SIZE_MIB
    elif kind == "file":
        sh("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", disk)
        MOUNT.mkdir(exist_ok=True)
        sh("mount", disk, str(MOUNT))
        try:
            file, size_mib = MOUNT / "backing.img", SIZE_MIB * 3 // 4
            sh("truncate", "-s", f"{size_mib}M", str(file))
            yield str(file), size_mib
        finally:
            sh("umount", str(MOUNT))
    else:
        modprobe("loop")
        device = sh("losetup", "--find", "--show", f"--direct-io={'on' if kind == 'direct' else 'off'}", disk)
        try:
            yield device.strip(), SIZE_MIB
        finally:
            sh("losetup", "--detach", device.strip())


def judge(target: Target, path: LinkPath, journal: Journal) -> Reread:
    transport, profile = exports.load(target.transport), load_disk(target.disk)
    path = dataclasses.replace(path, port=transport.port)
    with contextlib.ExitStack() as stack:
        log = FOLDER / "disk.log"
        made = disks.bring_up(journal, NEAR, profile, SIZE_MIB << 20, folder=FOLDER, log=log)
        (disk,) = stack.enter_context(made)
        exported, size_mib = stack.enter_context(on_top(disk, target.on_top))
        # Not by the loop device, whose page cache would have it all.
        fill(Path(exported if target.on_top == "file" else disk), target.data, size_mib)
        lun = exports.lun(TAG, exported, size_mib << 20, target.served_as)
        sides = exports.sides(journal, TAG, lun, FOLDER, target=path.target)
        up = stack.enter_context(transport.shared(sides))
        session = stack.enter_context(up.attach(exports.export(path, lun)))
        samples = reread.sample(NEAR, session.disk.device, region_bytes=size_mib << 20, seed=1)
        return rule.judge(samples, size_mib << 20)


def main(link: str, names: str = "") -> None:
    with exports.journal_in(FOLDER) as journal, exports.link(journal, link, tag=TAG) as path:
        for target in TARGETS:
            if target.name.startswith(names):
                judged = Judged(link=link, target=target, found=judge(target, path, journal))
                print(msgspec.json.encode(judged).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
