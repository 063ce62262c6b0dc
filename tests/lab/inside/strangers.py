"""Targets that the harness did not make, reached by their portal alone: only read, and left as they were.

Their portal is in the namespace ``nas``, to which nobody logs in: no sshd runs there.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.hosts import programs
from tests.lab.inside import nas
from tests.lab.inside.kernel import LIO, RESULTS, differences, harness, newest_run, records, sh, snapshot

IQN = "iqn.2003-01.org.example:nas"
PORTAL = "192.0.2.2"
MIB = 1 << 20
SECRET, BACK = "a-secret-of-16-ch", "another-one-of-18"
READS = ("--workload=rand-read-4k", "--workload=seq-read-256k", "--repeats=1", "--runtime=0.5s")
RUN = ("run", f"--results={RESULTS}", *READS)
DISK = """
import sys, rtslib_fb as lio
name, iqn, file, read_only, chap, back, portals = sys.argv[1:]
store = lio.FileIOStorageObject(name, dev=file, size=64 << 20, wwn=name)
target = lio.Target(lio.FabricModule("iscsi"), iqn, mode="create")
group = lio.TPG(target, 1, mode="create")
group.set_attribute("generate_node_acls", 1)
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
    chap: str = "",
    back: str = "",
    read_only: bool = False,
    portals: str = PORTAL,
    iqn: str = IQN,
) -> Path:
    """A target of LIO with one LUN of random data, in the file that is returned."""
    file = Path(f"/root/{name}.img")
    file.write_bytes(random.Random(name).randbytes(64 * MIB))  # noqa: S311 -- no secret
    words = [name, iqn, str(file), str(int(read_only)), chap, back, portals]
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


def only_read(what: str, file: Path, *words: str) -> str:
    """A run against a portal: its cells are measured, nothing was written, and nothing is left."""
    before, was = snapshot(), checksum(file)
    said = harness(*RUN, f"--portal={PORTAL}", *words)
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
    said = harness(*RUN, f"--portal={PORTAL}", "--plan")
    assert IQN in said, said
    second.unlink()
    print("refusals: 4")


def with_chap() -> None:
    file, words = make("chap", chap=SECRET, back=BACK), ("--chap=reader", "--chap-secret=/root/secret")
    secret = Path("/root/secret")
    said = harness(*RUN, f"--portal={PORTAL}", f"--iqn={IQN}", status=2)
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
            said = harness(*RUN, f"--portal={PORTAL}", f"--iqn={IQN}", *words, status=2)
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


PARTS: dict[str, Callable[[], None]] = {
    "plain": plain,
    "chap": with_chap,
    "doctor": doctored,
    "share": shared,
}


def main(parts: list[str]) -> None:
    for module in ("target_core_mod", "target_core_file", "iscsi_target_mod", "iscsi_tcp", "sd_mod"):
        sh("modprobe", module)
    if not LIO.is_dir():
        sh("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    Path("/etc/rtslib-fb-target").mkdir(exist_ok=True)
    nas.make_network()
    sh("ip", "netns", "add", "own")  # which snapshots look into
    for part in parts:
        PARTS[part]()
        remove()


if __name__ == "__main__":
    main(sys.argv[1:])
