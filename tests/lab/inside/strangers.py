"""Targets that the harness did not make, reached by their portal alone: only read, and left as they were.

Their portal is in the namespace ``nas``, to which nobody logs in: no sshd runs there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.hosts import programs
from tests.lab.inside import nas
from tests.lab.inside.kernel import (
    LIO,
    RESULTS,
    differences,
    harness,
    newest_run,
    records,
    sh,
    snapshot,
    wait_for,
)

IQN = "iqn.2003-01.org.example:nas"
PORTAL = "192.0.2.2"
MIB = 1 << 20
SECRET, BACK = "a-secret-of-16-ch", "another-one-of-18"
RUN = ("run", f"--results={RESULTS}", "--workload=rand-read-4k", "--repeats=1", "--runtime=0.5s")
DISK = """
import sys, rtslib_fb as lio
name, iqn, file, read_only, chap, back, portals, block_bytes = sys.argv[1:]
store = lio.FileIOStorageObject(name, dev=file, size=64 << 20, wwn=name)
store.set_attribute("block_size", int(block_bytes))
target = lio.Target(lio.FabricModule("iscsi"), iqn, mode="create")
group = lio.TPG(target, 1, mode="create")
group.set_attribute("generate_node_acls", 1)
group.set_attribute("cache_dynamic_acls", 1)  # who has registered stays known
group.set_attribute("demo_mode_write_protect", int(read_only))
group.set_attribute("authentication", int(bool(chap)))
if chap:
    group.chap_userid, group.chap_password = "reader", chap
if back:
    group.chap_mutual_userid, group.chap_mutual_password = "nas", back
lio.LUN(group, 0, store)
for portal in portals.split():
    lio.NetworkPortal(group, portal, 3260, mode="create")
group.enable = True
"""
"""By rtslib, in the namespace in which its portal is to be."""


def make(
    name: str,
    *,
    block_bytes: int = 512,
    chap: str = "",
    back: str = "",
    read_only: bool = False,
    portals: str = PORTAL,
    iqn: str = IQN,
) -> Path:
    """A target of LIO with one LUN of random data, in the file that is returned."""
    file = Path(f"/root/{name}.img")
    file.write_bytes(random.Random(name).randbytes(64 * MIB))  # noqa: S311 -- no secret
    words = [name, iqn, str(file), str(int(read_only)), chap, back, portals, str(block_bytes)]
    sh("nsenter", "--net=/run/netns/nas", programs.PYTHON, "-c", DISK, *words)
    return file


def checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def remove() -> None:
    """All targets and backstores of LIO."""
    sh(programs.PYTHON, "-c", "import rtslib_fb as lio; lio.RTSRoot().clear_existing(confirm=True)")


def one_end(found: Mapping[str, Any]) -> None:
    """Each cell has its figure, and the proof of one end."""
    for record in found.values():
        assert record["status"] == "ok", record
        proof = record["proof"]
        assert proof["at_one_end"] and proof["cleartext_segments"], proof
        assert proof["link_bytes_initiator"] > record["read"]["bytes"] > 0 == proof["link_bytes_target"], (
            proof
        )


def only_read(what: str, file: Path, *words: str, portal: str = PORTAL) -> str:
    """A run against a portal: its cells are measured, nothing was written, and nothing is left."""
    before, was = snapshot(), checksum(file)
    said = harness(*RUN, f"--portal={portal}", *words)
    one_end(records(newest_run()))
    assert checksum(file) == was, what
    assert not differences(before, snapshot()), f"{what}: {differences(before, snapshot())}"
    print(f"{what}: {len(records(newest_run()))} cells, not written to, nothing left")
    return said


def read_back() -> None:
    """All that reads a run reads this one, and none of it speaks of the target's end."""
    folder = str(newest_run())
    table = harness("table", folder)
    assert "portal" in table and "one end" in table, table
    for words in (("explain", folder), ("export", folder), ("table", folder, "--format=json")):
        harness(*words)
    page = Path("/root/report.html")
    harness("report", folder, "-o", str(page))
    assert "one end" in page.read_text(encoding="utf-8")
    # The file is in memory.
    assert all(each["reread"]["verdict"] != "not suspected" for each in records(newest_run()).values())
    assert "No figure of reads is known to be a disk's" in table, table
    plan = json.loads((newest_run() / "plan.json").read_bytes())
    assert plan["storage"]["reached"]["name"] == IQN and plan["machines"]["target"] is None, plan
    print("read back: table, explain, export, report")


def plain() -> None:
    file = make("plain")
    said = only_read("one target, discovered", file)
    assert "it is only read" in said, said
    read_back()
    said = harness(*RUN, "--portal=192.0.2.3", status=2)
    assert "nobody answers at 192.0.2.3" in said, said
    said = harness(*RUN, f"--portal={PORTAL}", "--lun=7", status=2)
    assert "expected LUN 7" in said and "LUN 0, 64 MiB" in said, said
    said = harness(*RUN, f"--portal={PORTAL}", "--iqn=iqn.2003-01.org.example:other", status=2)
    assert "know a target of this name" in said or "knows no target of this name" in said, said
    said = harness("run", f"--portal={PORTAL}", "--workload=rand-write-4k", status=2)
    assert "expected workloads that read" in said, said
    second = make("second", iqn=f"{IQN}-2", portals="192.0.2.130")
    # LIO shows all its targets at each portal.
    said = harness(*RUN, f"--portal={PORTAL}", "--plan", status=2)
    assert f"found 2: {IQN}; {IQN}-2" in said and f"--iqn {IQN}" in said, said
    second.unlink()
    print("refusals: 5")


def with_chap() -> None:
    file, words = make("chap", chap=SECRET, back=BACK), ("--chap=reader", "--chap-secret=/root/secret")
    secret = Path("/root/secret")
    said = harness(*RUN, f"--portal={PORTAL}", f"--iqn={IQN}", status=1)
    assert "refuses the login" in said or "ended the login" in said, said
    for text, is_right in (
        (f"{SECRET}\n", True),
        (f"{SECRET}\nnas {BACK}\n", True),
        ("wrong-secret-12\n", False),
    ):
        secret.write_text(text, encoding="utf-8")
        if is_right:
            only_read(f"CHAP, {len(text.splitlines())} of 2 directions", file, f"--iqn={IQN}", *words)
            for kept in (path for path in newest_run().rglob("*") if path.is_file()):
                assert SECRET.encode() not in kept.read_bytes(), kept
        else:
            said = harness(*RUN, f"--portal={PORTAL}", f"--iqn={IQN}", *words, status=1)
            assert "refuses the login" in said, said
    print("CHAP: refused twice")


def doctored() -> None:
    """What doctor says of a portal is what a run then finds, and it leaves nothing."""
    portal = ("doctor", f"--portal={PORTAL}")
    make("doctored")
    was = snapshot()
    said = harness(*portal)
    assert f"LUN 0 of {IQN}: 64 MiB" in said and f"nothing protects the way to {PORTAL}:3260" in said, said
    assert f"ready: harness run --portal {PORTAL}" in said, said
    said = harness("doctor", "--portal=192.0.2.3", status=2)
    assert "nobody answers at 192.0.2.3" in said and "are not ready" in said, said
    assert not differences(was, snapshot()), differences(was, snapshot())
    remove()
    make("wants", chap=SECRET)
    said = harness(*portal, f"--iqn={IQN}", status=2)
    assert "refuses the login" in said or "ended the login" in said, said
    print("doctor: found, not answered, refused")


def shared() -> None:
    """A run's file tells figures, and nothing of the portal."""
    make("shared")
    harness(*RUN, f"--portal={PORTAL}")
    folder, file = newest_run(), Path("/root/shared.zip")
    said = harness("share", str(folder), "--to", str(file))
    with zipfile.ZipFile(file) as archive:
        held = "".join(archive.read(name).decode() for name in archive.namelist())
    for secret in (IQN, PORTAL, f"{PORTAL}/", "192.0.2.129", "nic0", "uuid", "naa."):
        assert secret not in held or secret in said.split("names replaced")[0], secret
    assert IQN not in held and "nic0" not in held, held[:2000]
    own, theirs = (harness("table", str(path)).splitlines() for path in (folder, file))
    rows = [[line.split() for line in lines if line[:4] in ("rand", "seq-")] for lines in (own, theirs)]
    assert rows[0] == rows[1] != [], (own, theirs)
    harness("explain", str(file), "--summary")
    print("shared:", len(rows[0]), "rows as the run's own")


def unusual() -> None:
    """A LUN that takes no writes, one with blocks of 4 KiB, and a portal that has IPv6 alone."""
    only_read("a read-only LUN", make("ro", read_only=True))
    remove()
    only_read("blocks of 4 KiB", make("4kn", block_bytes=4096))
    remove()
    for where, iface in (((), nas.NIC), (("-n", "nas"), "nas0")):
        number = 2 if where else 1
        sh("ip", *where, "address", "add", f"2001:db8::{number}/64", "dev", iface, "nodad")
    only_read("IPv6 alone", make("six", portals="[2001:db8::2]"), portal="[2001:db8::2]:3260")


@contextlib.contextmanager
def tgtd(
    number: int, address: str, file: Path, *redirect: tuple[str, str], thin: bool = False
) -> Iterator[None]:
    """Debian's tgt with one target, whose LUN 0 is a controller and LUN 1 a disk."""
    argv = ["nsenter", "--net=/run/netns/nas", "tgtd", "-f", "-C", str(number)]
    process = subprocess.Popen([*argv, "--iscsi", f"portal={address}:3260"], stdin=subprocess.DEVNULL)
    admin = ("tgtadm", "-C", str(number), "--lld", "iscsi", "--tid", "1", "--mode")
    try:
        show = ("tgtadm", "-C", str(number), "--lld", "iscsi", "--mode", "target", "--op", "show")
        wait_for(lambda: "failed" not in sh(*show, check=False), "tgtd", deadline_s=20)
        sh(*admin, "target", "--op", "new", "--targetname", IQN)
        sh(*admin, "logicalunit", "--op", "new", "--lun", "1", "--backing-store", str(file))
        if thin:
            sh(*admin, "logicalunit", "--op", "update", "--lun", "1", "--params", "thin_provisioning=1")
        sh(*admin, "target", "--op", "bind", "--initiator-address", "ALL")
        for name, value in redirect:
            sh(*admin, "target", "--op", "update", "--name", name, "--value", value)
        yield
    finally:
        process.kill()  # it takes SIGTERM only once it has no targets
        process.wait()


def by_tgt() -> None:
    """Another target's software, and a portal that sends who logs in elsewhere (TargetAddress)."""
    file = Path("/root/tgt.img")
    file.write_bytes(random.Random("tgt").randbytes(64 * MIB))  # noqa: S311 -- no secret
    with tgtd(0, PORTAL, file):
        said = only_read("tgt", file)
        assert "LUN 1" in said, said
    elsewhere = "192.0.2.130"
    words = (("RedirectAddress", elsewhere), ("RedirectPort", "3260"), ("RedirectReason", "Temporary"))
    with tgtd(1, elsewhere, file), tgtd(0, PORTAL, file, *words):
        only_read("a portal that redirects", file, f"--iqn={IQN}")
        plan = json.loads((newest_run() / "plan.json").read_bytes())["storage"]["reached"]
        assert (plan["address"], plan["login"]) == (elsewhere, f"{PORTAL}:3260"), plan


NQN = "nqn.2003-01.org.example:nas"
NVMET = """
cd /sys/kernel/config/nvmet
mkdir "subsystems/$1"
echo 1 > "subsystems/$1/attr_allow_any_host"
mkdir "subsystems/$1/namespaces/1"
cd "subsystems/$1/namespaces/1"
printf %s "$2" > device_path
echo 1 > buffered_io
echo 1 > enable
cd /sys/kernel/config/nvmet
mkdir ports/1
echo ipv4 > ports/1/addr_adrfam
echo tcp > ports/1/addr_trtype
echo "$3" > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s "/sys/kernel/config/nvmet/subsystems/$1" "ports/1/subsystems/$1"
"""


def nvmet() -> Path:
    """A subsystem with one namespace, made by hand."""
    for module in ("nvmet", "nvmet_tcp", "nvme_tcp"):
        sh("modprobe", module)
    file = Path("/run/nvme.img")  # nvmet takes the size of a file on tmpfs, and not of one on an overlay
    file.write_bytes(random.Random("nvme").randbytes(64 * MIB))  # noqa: S311 -- no secret
    sh(
        "nsenter",
        "--net=/run/netns/nas",
        "sh",
        "-euc",
        NVMET,
        "sh",
        NQN,
        str(file),
        PORTAL,
    )
    return file


def by_nvmet() -> None:
    said = only_read("NVMe/TCP", nvmet(), portal=f"nvme-tcp://{PORTAL}")
    assert NQN in said, said


@contextlib.contextmanager
def nbdkit() -> Iterator[Path]:
    """An export of a file."""
    file = Path("/root/nbd.img")
    file.write_bytes(random.Random("nbd").randbytes(64 * MIB))  # noqa: S311 -- no secret
    argv = [
        "nsenter",
        "--net=/run/netns/nas",
        "nbdkit",
        "--foreground",
        "--ipaddr",
        PORTAL,
        "file",
        str(file),
    ]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        wait_for(
            lambda: ":10809" in sh("nsenter", "--net=/run/netns/nas", "ss", "-ltnH"), "nbdkit", deadline_s=20
        )
        yield file
    finally:
        process.terminate()
        process.wait()


def by_nbdkit() -> None:
    with nbdkit() as file:
        only_read("NBD", file, portal=f"nbd://{PORTAL}")


def other_transports_written() -> None:
    """The same for a namespace and an export, each named twice."""
    namespace = nvmet()
    written("NVMe/TCP", namespace, f"nvme-tcp://{PORTAL}", f"--iqn={NQN}", "--lun=1", f"--destroy={NQN}:1")
    with nbdkit() as export:
        written("NBD", export, f"nbd://{PORTAL}", f"--destroy=nbd://{PORTAL}")


@contextlib.contextmanager
def logged_in(*portals: str) -> Iterator[list[str]]:
    """The user's own disks, by a session to each portal; their names."""
    nodes = [
        ("iscsiadm", "--mode", "node", "--targetname", IQN, "--portal", f"{each}:3260") for each in portals
    ]
    with subprocess.Popen(
        ["iscsid", "--foreground"], stdin=subprocess.DEVNULL, start_new_session=True
    ) as iscsid:
        try:
            wait_for(
                lambda: "@ISCSIADM" in Path("/proc/net/unix").read_text(encoding="utf-8"),
                "iscsid",
                deadline_s=20,
            )
            for node in nodes:
                sh(*node, "--op", "new")
                sh(*node, "--login")
            wait_for(
                lambda: len([*Path("/sys/block").glob("sd*")]) == len(nodes),
                "the user's disks",
                deadline_s=20,
            )
            yield sorted(path.name for path in Path("/sys/block").glob("sd*"))
            for node in nodes:
                sh(*node, "--logout")
        finally:
            iscsid.terminate()


def multipath() -> None:
    """Two paths to a LUN below a map of dm-multipath: the map is read, and neither it nor a path is written
    to by whoever names a path."""
    file = make("mpath", portals=f"{PORTAL} 192.0.2.130")
    for module in ("dm_mod", "dm_multipath", "dm_round_robin"):
        sh("modprobe", module)
    with logged_in(PORTAL, "192.0.2.130") as disks:
        numbers = [Path(f"/sys/block/{name}/dev").read_text(encoding="ascii").strip() for name in disks]
        paths = " 1 ".join(numbers)
        table = f"0 {64 * MIB // 512} multipath 0 0 1 1 round-robin 0 {len(numbers)} 1 {paths} 1"
        words = ("mpatha", "--uuid", "mpath-36001405mpath", "--noudevsync", "--table", table)
        sh("dmsetup", "create", *words)
        sh("dmsetup", "mknodes")  # udev does not run here
        before, was = snapshot(), checksum(file)
        said = " ".join(harness(*RUN, "--volume=/dev/mapper/mpatha").split())
        assert f"mpath of {', '.join(disks)} (iSCSI from {PORTAL}:3260, {IQN})" in said, said
        (record,) = records(newest_run()).values()
        assert record["status"] == "ok", record
        for named in (
            (f"--volume=/dev/{disks[0]}", f"--destroy=/dev/{disks[0]}"),
            (f"--portal={PORTAL}", *TWICE),
        ):
            said = " ".join(harness(*RUN, *named, status=2).split())
            assert "is a path of the multipath device mpatha (holder dm-0)" in said, said
            assert "multipath -f mpatha" in said, said
        assert checksum(file) == was and not differences(before, snapshot()), differences(before, snapshot())
        only_read("below a multipath map", file, f"--iqn={IQN}")
        sh("dmsetup", "remove", "--noudevsync", "mpatha")
    print("a multipath map: only read")


def attached() -> None:
    """A disk and files that are there, whatever attached them; a new file is written and removed."""
    file = make("volume")
    with logged_in(PORTAL):
        before, was = snapshot(), checksum(file)
        said = harness(*RUN, "--volume=/dev/sda")
        assert f"iSCSI from {PORTAL}:3260, {IQN}" in " ".join(said.split()), said
        assert checksum(file) == was and not differences(before, snapshot()), differences(before, snapshot())
        only_read("the user has a session to it", file)
    (record,) = records(newest_run()).values()
    assert record["status"] == "ok", record
    print("a volume: only read")


OTHER = "iqn.1993-08.org.debian:01:other"


@contextlib.contextmanager
def somebody(portal: str = PORTAL) -> Iterator[Path]:
    """Another initiator's disk, by a session of its own."""
    iface = ("iscsiadm", "--mode", "iface", "--interface", "other")
    node = ("iscsiadm", "--mode", "node", "--targetname", IQN, "--portal", f"{portal}:3260")
    before = {*Path("/sys/block").glob("sd*")}
    iscsid = subprocess.Popen(["iscsid", "--foreground"], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(
            lambda: "@ISCSIADM" in Path("/proc/net/unix").read_text(encoding="utf-8"), "iscsid", deadline_s=20
        )
        sh(*iface, "--op", "new")
        sh(*iface, "--op", "update", "--name", "iface.initiatorname", "--value", OTHER)
        sh(*node, "--interface", "other", "--op", "new")
        sh(*node, "--interface", "other", "--login")
        wait_for(lambda: {*Path("/sys/block").glob("sd*")} > before, "the other's disk", deadline_s=20)
        (disk,) = {*Path("/sys/block").glob("sd*")} - before
        yield Path("/dev", disk.name)
        sh(*node, "--interface", "other", "--logout")
        sh(*node, "--interface", "other", "--op", "delete")
        sh(*iface, "--op", "delete")
    finally:
        iscsid.terminate()
        iscsid.wait()


def persist(*commands: str) -> None:
    """What another initiator asks a LUN for by sg_persist(8), with its key, which it registers first."""
    with somebody() as node:
        for words in ("--register-ignore --param-sark=abc", *commands):
            sh("sg_persist", "--out", "--param-rk=abc", *words.split(), str(node))


TWICE = ("--iqn", IQN, "--lun=0", f"--destroy={IQN}:0")


def refused(file: Path, sentence: str, *words: str, status: int = 2) -> None:
    was = checksum(file)
    said = harness(*RUN, f"--portal={PORTAL}", *words, status=status)
    assert sentence in " ".join(said.split()), said
    assert checksum(file) == was, sentence


def written(what: str, file: Path, portal: str, *twice: str) -> None:
    """A run that writes to one part of a LUN; what is outside stays, and nothing is left."""
    before, was = snapshot(), file.read_bytes()
    run = (*(word for word in RUN if "--workload" not in word), "--workload=rand-write-4k", "--size=16M..48M")
    harness(*run, f"--portal={portal}", *twice)
    (record,) = records(newest_run()).values()
    assert record["status"] == "ok" and record["proof"]["at_one_end"], record
    assert record["write"]["bytes"] > 0, record
    now = file.read_bytes()
    assert now[: 16 * MIB] == was[: 16 * MIB] and now[48 * MIB :] == was[48 * MIB :], what
    for number in range(16, 48):
        assert now[number * MIB : (number + 1) * MIB] != was[number * MIB : (number + 1) * MIB], number
    assert not differences(before, snapshot()), differences(before, snapshot())
    print(f"{what}: written to")


def overwritten() -> None:
    """A LUN that was named twice is written to, in the part that was asked for; whoever else has it keeps
    it."""
    file = make("written")
    written("32 of 64 MiB", file, PORTAL, *TWICE)
    persist()
    refused(file, f"1 key for reservations registered by {OTHER}", *TWICE)
    print("refused: registered")


def held() -> None:
    """What others have of a LUN: they keep it."""
    file = make("held")
    persist()
    only_read("somebody has registered", file)
    persist("--reserve --prout-type=1")
    refused(file, f"it has a persistent reservation (Write Exclusive) by {OTHER}", *TWICE)
    said = only_read("reserved: Write Exclusive", file)
    assert f"(Write Exclusive) by {OTHER}" in " ".join(said.split()), said
    persist("--clear")
    persist("--reserve --prout-type=3")
    refused(file, "lets nobody else read: it has a persistent reservation (Exclusive Access)")
    persist("--clear")
    with somebody():
        refused(file, "it has another path here, /dev/sd", *TWICE)
        only_read("another initiator has a session", file)
    was = checksum(file)
    harness(*RUN, f"--portal={PORTAL}", *TWICE, "--size=16M")
    assert checksum(file) != was
    print("released: written to")
    refused(file, "named twice", *TWICE[2:])
    again = ("run", f"--results={RESULTS}", "--resume", newest_run().name, f"--portal={PORTAL}", *TWICE[:3])
    said = harness(*again, f"--link=portal={nas.NIC}@{PORTAL}", status=2)
    assert "expected exactly the options" in said and f"--destroy {IQN}:0" in said, said
    remove()
    file = make("ext4")
    sh("mkfs.ext4", "-q", "-F", str(file))
    refused(file, "is not blank; found on it: ext4 file system", *TWICE)
    remove()
    refused(make("protected", read_only=True), "its target refuses them", *TWICE, status=1)
    print("refused: 7")


def thin() -> None:
    """Blocks that nobody wrote are zeros from memory; tgt tells that they are, LIO does not."""
    file = Path("/root/thin.img")
    with file.open("wb") as empty:
        empty.truncate(64 * MIB)
    with tgtd(0, PORTAL, file, thin=True):
        only_read("a thin LUN", file)
    (record,) = records(newest_run()).values()
    assert (record["reread"]["verdict"], record["reread"]["is_thin"]) == ("suspected", True), record["reread"]
    said = harness("table", str(newest_run()))
    assert "100% of the blocks of a thin LUN are zeros or were never written" in " ".join(said.split()), said


FORWARD = """
import contextlib, socket, sys, threading
there = socket.create_server((sys.argv[1], 3260))
def copy(one, other):
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)
while True:
    near, far = there.accept()[0], socket.create_connection((sys.argv[2], 3260))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""
"""A portal that answers at one address, and whose target knows itself by another one, as behind a NAT."""


def behind_nat() -> None:
    inner = "203.0.113.9"
    sh("ip", "-n", "nas", "address", "add", f"{inner}/32", "dev", "lo")
    file = make("nat", portals=f"{inner} 192.0.2.130")
    argv = ["nsenter", "--net=/run/netns/nas", programs.PYTHON, "-c", FORWARD, PORTAL, inner]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        wait_for(
            lambda: f"{PORTAL}:3260" in sh("nsenter", "--net=/run/netns/nas", "ss", "-ltnH"),
            "the way in",
            deadline_s=20,
        )
        only_read("behind a NAT", file, f"--iqn={IQN}")
    finally:
        process.terminate()


def mounted() -> None:
    """Files of file systems that are mounted, and one that takes no direct I/O."""
    sh("modprobe", "brd", "rd_nr=1", "rd_size=65536")
    sh("mkfs.ext4", "-q", "-F", "/dev/ram0")
    for kind, what in (("tmpfs", "none"), ("ext4", "/dev/ram0")):
        place = Path(f"/mnt/{kind}")
        place.mkdir(parents=True)
        sh("mount", "-t", kind, what, str(place))
        written = ("run", f"--results={RESULTS}", "--workload=rand-write-4k", "--repeats=1", "--runtime=0.5s")
        words = (*written, f"--volume={place}/new", "--size=16M")
        if kind == "tmpfs":
            assert "tmpfs of none takes no direct I/O" in " ".join(harness(*words, status=2).split())
        else:
            harness(*words)
            (record,) = records(newest_run()).values()
            assert record["status"] == "ok" and "(ext4 on " in record["link_title"], record
        print(f"{kind}: as it should be")
        assert not any(each.name == "new" for each in place.iterdir())
        sh("umount", str(place))
        place.rmdir()
    sh("modprobe", "-r", "brd")


def without_systemd() -> None:
    """The machine has neither systemctl nor D-Bus, nor udev's programs."""
    empty = Path("/root/nothing")
    empty.write_bytes(b"")
    gone = ["systemctl", "busctl", "dbus-send", "dbus-daemon", "udevadm", "resolvectl"]
    found = [path for name in gone for path in (Path("/usr/bin", name),) if path.exists()]
    for path in found:
        sh("mount", "--bind", str(empty), str(path))
    only_read("without systemd", make("minimal"))
    remove()
    attached()
    for path in found:
        sh("umount", str(path))


PARTS: dict[str, Callable[[], None]] = {
    "plain": plain,
    "chap": with_chap,
    "doctor": doctored,
    "share": shared,
    "unusual": unusual,
    "tgt": by_tgt,
    "nvme": by_nvmet,
    "nbd": by_nbdkit,
    "volume": attached,
    "multipath": multipath,
    "write": overwritten,
    "write-others": other_transports_written,
    "held": held,
    "thin": thin,
    "nat": behind_nat,
    "mounted": mounted,
    "minimal": without_systemd,
}


def prepare() -> None:
    """Two ends with a network between them, and what targets and sessions take of the kernel."""
    for module in ("target_core_mod", "target_core_file", "iscsi_target_mod", "iscsi_tcp", "sd_mod"):
        sh("modprobe", module)
    if not LIO.is_dir():
        sh("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    Path("/etc/rtslib-fb-target").mkdir(exist_ok=True)
    nas.make_network()
    sh("ip", "netns", "add", "own")  # which snapshots look into
    Path("/etc/iscsi").mkdir(exist_ok=True)
    Path("/etc/iscsi/initiatorname.iscsi").write_text("InitiatorName=iqn.1993-08.org.debian:01:me\n")


def main(parts: list[str]) -> None:
    prepare()
    for part in parts:
        PARTS[part]()
        remove()


if __name__ == "__main__":
    main(sys.argv[1:])
