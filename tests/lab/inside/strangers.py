"""Targets that the harness did not make, reached by their portal alone: only read, and left as they were.

Their portal is in the namespace ``nas``, to which nobody logs in: no sshd runs there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.hosts import programs
from tests.lab.inside import kernel, nas
from tests.lab.inside.kernel import RESULTS, harness, measured, newest_records, newest_run, sh, unchanged

IQN = "iqn.2003-01.org.example:nas"
PORTAL, OTHER_PORTAL = "192.0.2.2", "192.0.2.130"
IN_NAS = kernel.within("nas")
MIB = 1 << 20
SECRET, BACK = "a-secret-of-16-ch", "another-one-of-18"
SHORT = ("run", f"--results={RESULTS}", "--repeats=1", "--runtime=0.5s")
RUN = (*SHORT, "--workload=rand-read-4k")
HERE = (*RUN, f"--portal={PORTAL}")
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


def random_file(name: str, folder: str = "/root") -> Path:
    file = Path(folder, f"{name}.img")
    file.write_bytes(random.Random(name).randbytes(64 * MIB))  # noqa: S311 -- no secret
    return file


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
    file = random_file(name)
    words = [name, iqn, str(file), str(int(read_only)), chap, back, portals, str(block_bytes)]
    sh(*IN_NAS, programs.PYTHON, "-c", DISK, *words)
    return file


def checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def remove() -> None:
    sh(programs.PYTHON, "-c", "import rtslib_fb as lio; lio.RTSRoot().clear_existing(confirm=True)")


@contextlib.contextmanager
def untouched(what: str, file: Path) -> Iterator[None]:
    was = checksum(file)
    with unchanged(what):
        yield
    assert checksum(file) == was, what


def one_end(found: Mapping[str, Any]) -> None:
    """Each cell has its figure, and the proof of one end."""
    for record in found.values():
        assert record["status"] == "ok", record
        proof, read = record["proof"], record["read"]
        assert proof["at_one_end"] and proof["cleartext_segments"], proof
        assert proof["link_bytes_initiator"] > read["bytes"] > 0 == proof["link_bytes_target"], proof


def only_read(what: str, file: Path, *words: str, portal: str = PORTAL, says: tuple[str, ...] = ()) -> None:
    """A run against a portal: its cells are measured, nothing was written, and nothing is left."""
    with untouched(what, file):
        harness(*RUN, f"--portal={portal}", *words, says=says)
    one_end(newest_records())
    print(f"{what}: {len(newest_records())} cells, not written to, nothing left")


def refused(*words: str, says: tuple[str, ...], file: Path | None = None, status: int = 2) -> None:
    """A run against the portal that is refused in these words, before it writes to the file."""
    was = file and checksum(file)
    harness(*HERE, *words, status=status, says=says)
    assert (file and checksum(file)) == was, says


def says_one_of(said: str, *sentences: str) -> None:
    assert any(sentence in said for sentence in sentences), said


def read_back() -> None:
    """All that reads a run reads this one, and none of it speaks of the target's end."""
    folder, page = str(newest_run()), Path("/root/report.html")
    # The file is in memory.
    of_no_disk = "Reads may not have come from the disk"
    harness("table", folder, says=("portal", "one end", of_no_disk))
    for words in (("explain", folder), ("export", folder), ("table", folder, "--format=json")):
        harness(*words)
    harness("report", folder, "-o", str(page))
    assert "one end" in page.read_text(encoding="utf-8")
    assert all(each["reread"]["verdict"] != "not suspected" for each in newest_records().values())
    plan = json.loads((newest_run() / "plan.json").read_bytes())
    assert plan["storage"]["black_box"]["name"] == IQN and plan["machines"]["target"] is None, plan
    print("read back: table, explain, export, report")


def discovered() -> None:
    only_read("one target, discovered", make("plain"), says=("the run only reads it",))


def plain() -> None:
    discovered()
    read_back()
    harness(*RUN, "--portal=192.0.2.3", status=2, says=("nothing answers at 192.0.2.3",))
    refused("--lun=7", says=("expected LUN 7", "LUN 0, 64 MiB"))
    said = harness(*HERE, "--iqn=iqn.2003-01.org.example:other", status=2)
    says_one_of(said, "has a target of this name", "has no target of this name")
    words = (f"--portal={PORTAL}", "--workload=rand-write-4k")
    harness("run", *words, status=2, says=("expected workloads that read",))
    second = make("second", iqn=f"{IQN}-2", portals=OTHER_PORTAL)
    # LIO shows all its targets at each portal.
    refused("--plan", says=(f"found 2: {IQN}; {IQN}-2", f"--iqn {IQN}"))
    second.unlink()
    print("refusals: 5")


def with_chap() -> None:
    file, secret = make("chap", chap=SECRET, back=BACK), Path("/root/secret")
    words = (f"--iqn={IQN}", "--chap=reader", f"--chap-secret={secret}")
    says_one_of(harness(*HERE, words[0], status=1), "refuses the login", "ended the login")
    for text in (f"{SECRET}\n", f"{SECRET}\nnas {BACK}\n"):
        secret.write_text(text, encoding="utf-8")
        only_read(f"CHAP, {len(text.splitlines())} of 2 directions", file, *words)
        for kept in (path for path in newest_run().rglob("*") if path.is_file()):
            assert SECRET.encode() not in kept.read_bytes(), kept
    secret.write_text("wrong-secret-12\n", encoding="utf-8")
    refused(*words, says=("refuses the login",), status=1)
    print("CHAP: refused twice")


def doctored() -> None:
    """What doctor says of a portal is what a run then finds, and it leaves nothing."""
    portal = ("doctor", f"--portal={PORTAL}")
    make("doctored")
    found = (f"LUN 0 of {IQN}: 64 MiB", f"nothing protects the path to {PORTAL}:3260")
    with unchanged("doctor"):
        harness(*portal, says=(*found, f"ready: harness run --portal {PORTAL}"))
        nobody = ("nothing answers at 192.0.2.3", "are not ready")
        harness("doctor", "--portal=192.0.2.3", status=2, says=nobody)
        # As behind a firewall that drops: nothing is refused, and nothing comes back.
        sh("ip", "neigh", "replace", "192.0.2.9", "lladdr", "02:00:00:00:00:99", "dev", "nic0")
        harness(
            *RUN,
            "--portal=192.0.2.9",
            status=2,
            says=("nothing answers at 192.0.2.9", "nothing answered within"),
        )
        sh("ip", "neigh", "del", "192.0.2.9", "dev", "nic0")
    remove()
    make("wants", chap=SECRET)
    said = harness(*portal, f"--iqn={IQN}", status=2)
    says_one_of(said, "refuses the login", "ended the login")
    print("doctor: found, not answered, refused, dropped")


def shared() -> None:
    make("shared")
    harness(*HERE)
    folder, file = newest_run(), Path("/root/shared.zip")
    said = harness("share", str(folder), "-o", str(file))
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
    only_read("a read-only LUN", make("ro", read_only=True))
    remove()
    only_read("blocks of 4 KiB", make("4kn", block_bytes=4096))
    remove()
    nas.add_addresses("2001:db8::{}/64")
    only_read("IPv6 alone", make("six", portals="[2001:db8::2]"), portal="[2001:db8::2]:3260")


@contextlib.contextmanager
def tgtd(
    number: int, address: str, file: Path, *redirect: tuple[str, str], thin: bool = False
) -> Iterator[None]:
    """Debian's tgt with one target, whose LUN 0 is a controller and LUN 1 a disk."""
    tgtadm = ("tgtadm", "-C", str(number), "--lld", "iscsi", "--mode")

    def admin(mode: str, op: str, *words: str) -> None:
        sh(*tgtadm, mode, "--op", op, "--tid", "1", *words)

    with kernel.serving(
        *(*IN_NAS, "tgtd", "-f", "-C", str(number), "--iscsi", f"portal={address}:3260"),
        ready=lambda: "failed" not in sh(*tgtadm, "target", "--op", "show", check=False),
    ) as process:
        try:
            admin("target", "new", "--targetname", IQN)
            admin("logicalunit", "new", "--lun", "1", "--backing-store", str(file))
            if thin:
                admin("logicalunit", "update", "--lun", "1", "--params", "thin_provisioning=1")
            admin("target", "bind", "--initiator-address", "ALL")
            for name, value in redirect:
                admin("target", "update", "--name", name, "--value", value)
            yield
        finally:
            process.kill()  # it takes SIGTERM only once it has no targets


def by_tgt() -> None:
    """Another target's software, and a portal that sends who logs in elsewhere (TargetAddress)."""
    file = random_file("tgt")
    with tgtd(0, PORTAL, file):
        only_read("tgt", file, says=("LUN 1",))
    words = (("RedirectAddress", OTHER_PORTAL), ("RedirectPort", "3260"), ("RedirectReason", "Temporary"))
    with tgtd(1, OTHER_PORTAL, file), tgtd(0, PORTAL, file, *words):
        only_read("a portal that redirects", file, f"--iqn={IQN}")
        plan = json.loads((newest_run() / "plan.json").read_bytes())["storage"]["black_box"]
        assert (plan["address"], plan["login"]) == (OTHER_PORTAL, f"{PORTAL}:3260"), plan


NQN = "nqn.2003-01.org.example:nas"
NVMET = """
cd /sys/kernel/config/nvmet
mkdir -p "subsystems/$1/namespaces/1" ports/1
echo 1 > "subsystems/$1/attr_allow_any_host"
cd "subsystems/$1/namespaces/1"
printf %s "$2" > device_path
echo 1 > buffered_io
echo 1 > enable
cd /sys/kernel/config/nvmet
echo ipv4 > ports/1/addr_adrfam
echo tcp > ports/1/addr_trtype
echo "$3" > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s "/sys/kernel/config/nvmet/subsystems/$1" "ports/1/subsystems/$1"
"""


def nvmet() -> Path:
    kernel.modprobe("nvmet", "nvmet_tcp", "nvme_tcp")
    file = random_file("nvme", "/run")  # nvmet takes the size of a file on tmpfs, not of one on an overlay
    sh(*IN_NAS, "sh", "-euc", NVMET, "sh", NQN, str(file), PORTAL)
    return file


def is_listening(where: str) -> bool:
    return where in sh(*IN_NAS, "ss", "-ltnH")


@contextlib.contextmanager
def nbdkit() -> Iterator[Path]:
    file = random_file("nbd")
    argv = (*IN_NAS, "nbdkit", "--foreground", "--ipaddr", PORTAL, "file", str(file))
    with kernel.serving(*argv, ready=lambda: is_listening(":10809")):
        yield file


def by_nbdkit() -> None:
    with nbdkit() as file:
        only_read("NBD", file, portal=f"nbd://{PORTAL}")


def other_transports_written() -> None:
    namespace = nvmet()
    written("NVMe/TCP", namespace, f"nvme-tcp://{PORTAL}", f"--iqn={NQN}", "--lun=1", f"--destroy={NQN}:1")
    with nbdkit() as export:
        written("NBD", export, f"nbd://{PORTAL}", f"--destroy=nbd://{PORTAL}")


def disks() -> set[str]:
    return {path.name for path in Path("/sys/block").glob("sd*")}


@contextlib.contextmanager
def logged_in(*portals: str, iface: str = "default") -> Iterator[list[str]]:
    """Disks by a session to each portal, by an interface of open-iscsi; their names."""
    iscsiadm = ("iscsiadm", "--mode", "node", "--targetname", IQN, "--interface", iface)
    nodes = [(*iscsiadm, "--portal", f"{portal}:3260") for portal in portals]
    before = disks()
    with kernel.iscsid():
        for node in nodes:
            sh(*node, "--op", "new")
            sh(*node, "--login")
        kernel.wait_for(lambda: len(disks() - before) == len(nodes), "their disks", deadline_s=20)
        yield sorted(disks() - before)
        for node in nodes:
            sh(*node, "--logout")
            sh(*node, "--op", "delete")


def multipath() -> None:
    """Two paths to a LUN below a map of dm-multipath: the map is read, and neither it nor a path is written
    to by whoever names a path."""
    file = make("mpath", portals=f"{PORTAL} {OTHER_PORTAL}")
    kernel.modprobe("dm_mod", "dm_multipath", "dm_round_robin")
    with logged_in(PORTAL, OTHER_PORTAL) as names:
        numbers = [Path(f"/sys/block/{name}/dev").read_text(encoding="ascii").strip() for name in names]
        paths = " 1 ".join(numbers)
        table = f"0 {64 * MIB // 512} multipath 0 0 1 1 round-robin 0 {len(numbers)} 1 {paths} 1"
        words = ("mpatha", "--uuid", "mpath-36001405mpath", "--noudevsync", "--table", table)
        sh("dmsetup", "create", *words)
        sh("dmsetup", "mknodes")  # udev does not run here
        with untouched("multipath", file):
            below = f"mpath of {', '.join(names)} (iSCSI from {PORTAL}:3260, {IQN})"
            harness(*RUN, "--volume=/dev/mapper/mpatha", says=(below,))
            assert [record["status"] for record in newest_records().values()] == ["ok"]
            disk = f"/dev/{names[0]}"
            for named in ((f"--volume={disk}", f"--destroy={disk}"), (f"--portal={PORTAL}", *TWICE)):
                why = ("is a path of the multipath device mpatha (holder dm-0)", "multipath -f mpatha")
                harness(*RUN, *named, status=2, says=why)
        only_read("below a multipath map", file, f"--iqn={IQN}")
        sh("dmsetup", "remove", "--noudevsync", "mpatha")
    print("a multipath map: only read")


def attached() -> None:
    """A disk and files that are there, whatever attached them; a new file is written and removed."""
    file = make("volume")
    with logged_in(PORTAL):
        with untouched("a volume", file):
            harness(*RUN, "--volume=/dev/sda", says=(f"iSCSI from {PORTAL}:3260, {IQN}",))
        only_read("the user has a session to it", file)
    print("a volume: only read")


OTHER = "iqn.1993-08.org.debian:01:other"


@contextlib.contextmanager
def somebody() -> Iterator[Path]:
    """Another initiator's disk."""
    iface = ("iscsiadm", "--mode", "iface", "--interface", "other", "--op")
    sh(*iface, "new")
    sh(*iface, "update", "--name", "iface.initiatorname", "--value", OTHER)
    with logged_in(PORTAL, iface="other") as (disk,):
        yield Path("/dev", disk)
    sh(*iface, "delete")


def persist(*commands: str) -> None:
    """What another initiator asks a LUN for by sg_persist(8), with its key, which it registers first."""
    with somebody() as disk:
        for words in ("--register-ignore --param-sark=abc", *commands):
            sh("sg_persist", "--out", "--param-rk=abc", *words.split(), str(disk))


TWICE = ("--iqn", IQN, "--lun=0", f"--destroy={IQN}:0")


def written(what: str, file: Path, portal: str, *twice: str) -> None:
    was = file.read_bytes()
    with unchanged(what):
        words = ("--workload=rand-write-4k", "--size=16M..48M", f"--portal={portal}")
        (record,) = measured(*SHORT, *words, *twice).values()
    assert record["proof"]["at_one_end"] and record["write"]["bytes"] > 0, record
    now = file.read_bytes()
    for number in range(64):
        part = slice(number * MIB, (number + 1) * MIB)
        assert (now[part] != was[part]) == (16 <= number < 48), (what, number)
    print(f"{what}: written to")


def overwritten() -> None:
    """A LUN that was named twice is written to, in the part that was asked for; whoever else has it keeps
    it."""
    file = make("written")
    written("32 of 64 MiB", file, PORTAL, *TWICE)
    persist()
    refused(*TWICE, says=(f"1 key for reservations registered by {OTHER}",), file=file)
    print("refused: registered")


def held() -> None:
    file = make("held")
    persist()
    only_read("somebody has registered", file)
    persist("--reserve --prout-type=1")
    by_other = f"(Write Exclusive) by {OTHER}"
    refused(*TWICE, says=(f"it has a persistent reservation {by_other}",), file=file)
    only_read("reserved: Write Exclusive", file, says=(by_other,))
    persist("--clear")
    persist("--reserve --prout-type=3")
    why = "does not let other initiators read: it has a persistent reservation (Exclusive Access)"
    refused(says=(why,), file=file)
    persist("--clear")
    with somebody():
        refused(*TWICE, says=("it has another path here, /dev/sd",), file=file)
        only_read("another initiator has a session", file)
    was = checksum(file)
    harness(*HERE, *TWICE, "--size=16M")
    assert checksum(file) != was
    print("released: written to")
    refused(*TWICE[2:], says=("name it twice",), file=file)
    again = ("run", f"--results={RESULTS}", "--resume", newest_run().name, f"--portal={PORTAL}", *TWICE[:3])
    options = ("expected exactly the options", f"--destroy {IQN}:0")
    harness(*again, f"--link=portal={nas.NIC}@{PORTAL}", status=2, says=options)
    remove()
    file = make("ext4")
    sh("mkfs.ext4", "-q", "-F", str(file))
    refused(*TWICE, says=("is not blank; found on it: ext4 file system",), file=file)
    remove()
    protected = make("protected", read_only=True)
    refused(*TWICE, says=("its target refuses writes",), file=protected, status=1)
    print("refused: 7")


def thin() -> None:
    """Blocks that nobody wrote are zeros from memory; tgt tells that they are, LIO does not."""
    file = Path("/root/thin.img")
    with file.open("wb") as empty:
        empty.truncate(64 * MIB)
    with tgtd(0, PORTAL, file, thin=True):
        only_read("a thin LUN", file)
    (record,) = newest_records().values()
    assert (record["reread"]["verdict"], record["reread"]["is_thin"]) == ("suspected", True), record["reread"]
    zeros = "100% of the blocks of a thin LUN are zeros or were never written"
    harness("table", str(newest_run()), says=(zeros,))


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
    file = make("nat", portals=f"{inner} {OTHER_PORTAL}")
    argv = (*IN_NAS, programs.PYTHON, "-c", FORWARD, PORTAL, inner)
    with kernel.serving(*argv, ready=lambda: is_listening(f"{PORTAL}:3260")):
        only_read("behind a NAT", file, f"--iqn={IQN}")


def mounted() -> None:
    """Files of file systems that are mounted, and one that takes no direct I/O."""
    kernel.modprobe("brd rd_nr=1 rd_size=65536")
    sh("mkfs.ext4", "-q", "-F", "/dev/ram0")
    for kind, what in (("tmpfs", "none"), ("ext4", "/dev/ram0")):
        place = Path(f"/mnt/{kind}")
        place.mkdir(parents=True)
        sh("mount", "-t", kind, what, str(place))
        words = (*SHORT, "--workload=rand-write-4k", f"--volume={place}/new", "--size=16M")
        if kind == "tmpfs":
            harness(*words, status=2, says=("tmpfs of none does not support direct I/O",))
        else:
            (record,) = measured(*words).values()
            assert "(ext4 on " in record["link_title"], record
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
    "discovered": discovered,
    "plain": plain,
    "chap": with_chap,
    "doctor": doctored,
    "share": shared,
    "unusual": unusual,
    "tgt": by_tgt,
    "nvme": lambda: only_read("NVMe/TCP", nvmet(), portal=f"nvme-tcp://{PORTAL}", says=(NQN,)),
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


def prepare(*modules: str) -> None:
    """Two ends with a network between them, and what targets and sessions take of the kernel."""
    kernel.prepare_lio("iscsi_tcp", "sd_mod", *modules)
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
