"""Runs over a real sshd: the same figures as without, and nothing left behind when the connection breaks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.model import Proof
from tests.lab.cli import is_sampled
from tests.lab.inside import kernel, nas
from tests.lab.inside.kernel import RESULTS, harness, measured, newest_run, processes, sh, unchanged, wait_for

WITHIN_S = 60.0
END_S = 600.0
"""A run that has lost a machine ends within a minute and a half on a quiet machine."""

BOTH = ("--target=ssh://nas", "--initiator=local")
OVER_SSH = (*BOTH, f"--link=wired={nas.NIC}", "--backing=ramdisk")
ROUTED = (*BOTH, f"--link=wired={nas.ROUTED}@{nas.ROUTED_PORTAL}", "--backing=ramdisk")
SHORT = ("--size=32M", f"--results={RESULTS}")
PROBED = (*SHORT, "--repeats=1", "--workload=rand-read-4k", "--runtime=0.3s")
ONE = (*PROBED, "--no-probes")


def environment() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((newest_run() / "environment.json").read_bytes())
    return found


def the_whole_matrix() -> None:
    words = (*SHORT, "--link=local", "--ipsec=both", "--repeats=1", "--runtime=0.3s")
    found = measured("run", *OVER_SSH, *words)
    assert len(found) == 24
    assert {record["link_title"] for record in found.values()} == {f"wired ({nas.NIC})", "target's disk"}
    print("cells: 24")


def record_of_the_path() -> None:
    found = measured("run", *OVER_SSH, *PROBED, "--ipsec=both")
    for record in found.values():
        assert record["setting"]["testbed"] == "machines"
        moved = record["read"]["bytes"]
        assert min(record["proof"]["link_bytes_initiator"], record["proof"]["link_bytes_target"]) > moved
        others = {tuple(use["hosts"]): use["taken"] for use in record["telemetry"]["background_load"]}
        assert set(others) == {("initiator", "target")} and None not in others.values(), others
    secured = msgspec.convert(found["wired+aes128gcm16.rand-read-4k.r1"]["proof"], Proof)
    assert secured.cleartext_segments == 0 and is_sampled(secured), secured
    print(json.dumps(environment()["column wired"]["link"])[:300])


def kill_the_ssh(word: str, after: int = 0) -> None:
    """The ssh(1) that a run keeps, by a part of its arguments and who started before it."""
    (found,) = [
        pid
        for pid, name in processes().items()
        if name == "ssh" and word in " ".join(kernel.arguments(pid)) and pid > after
    ]
    os.kill(found, signal.SIGKILL)


def is_left() -> list[str]:
    found = [*(kernel.LIO / "iscsi").glob("iqn.2026-11*"), *Path("/sys/class/iscsi_session").glob("*")]
    states = [sh("ip", *where, "xfrm", "state") for where in ((), ("-n", "nas"))]
    return [str(path) for path in found] + [text for text in states if "reqid 12079" in text]


def broken_in_the_middle(
    name: str, how: Callable[[int], object], mend: Callable[[], object] = str, *, survives: bool = True
) -> None:
    """Break the connection while cells are measured; both sides are as before within a minute."""
    before = kernel.snapshot()
    words = ("--ipsec=on", "--repeats=50", "--runtime=0.5s", "--workload=rand-read-4k", *SHORT)
    target = ("--target=ssh://nas-apart", *OVER_SSH[1:]) if survives else OVER_SSH
    with kernel.under_way("run", *target, *words) as process:
        assert len(is_left()) == 4, is_left()
        began = time.monotonic()
        how(process.pid)
        wait_for(lambda: not is_left(), "both sides to be clean", deadline_s=WITHIN_S)
        took_s = time.monotonic() - began
        mend()
        if survives:
            assert process.wait(timeout=END_S) == 1
            said = kernel.started_said()
            assert "was lost in the middle of the run" in said and "--resume" in said, said

    def changed() -> str:
        return kernel.differences(before, kernel.snapshot())

    # An IPv6 address is tentative for a second or two when its cable is joined again.
    wait_for(lambda: not changed() or time.monotonic() - began > WITHIN_S, "", deadline_s=90)
    assert not changed(), f"{changed()}\n{kernel.started_said()}"
    print(f"{name}: as before after {took_s:.1f} s")


def set_the_cable(state: str) -> None:
    sh("ip", "link", "set", nas.PER_HOST, state)


def refusals() -> None:
    """What is wrong is said before anything starts, in a sentence, and not even a folder is left of it."""
    kept, known = list(RESULTS.glob("*")), Path("/root/.ssh/known_hosts")
    keys, other = known.read_text(encoding="utf-8"), Path("/root/nas/other")
    with unchanged("refusals"):
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
        others_key = " ".join(other.with_suffix(".pub").read_text().split()[:2])
        for text, says in (
            ("", ("known_hosts", "fingerprint")),
            (f"192.0.2.2 {others_key}\n", ("not the one in known_hosts",)),
        ):
            known.write_text(text, encoding="utf-8")
            harness("run", *OVER_SSH, *ONE, "--ipsec=off", status=2, says=says)
        known.write_text(keys, encoding="utf-8")
        for words, says in (
            ((*BOTH, "--link=wired=nic7", "--backing=ramdisk"), ("nic7", "nic0")),
            (("--target=ssh://root@192.0.2.2:23", *OVER_SSH[1:]), ("is sshd running",)),
            ((*OVER_SSH[:3], "--backing=/dev/nosuch"), ("/dev/nosuch",)),
        ):
            harness("run", *words, *ONE, status=2, says=says)
    assert list(RESULTS.glob("*")) == kept
    print("refusals: 5")


def a_router_that_is_watched() -> None:
    """Its interfaces during the cell, for whoever may log in there; a lost one costs no cell."""
    nas.put_a_router_between()
    hop = "ssh://looker-on@router"
    words = ("run", *ROUTED, *PROBED, "--ipsec=off")
    with nas.sshd("router", "looker-on@router"):
        nas.await_addresses(nas.ROUTED)
        with unchanged("a hop"):
            says = (f"hop   {hop}: reached as looker-on; Linux ", "interfaces: left0, right0")
            harness("doctor", f"--hop={hop}", says=says)
            says = (f"the hop ({hop}:23) could not be reached", "is sshd running")
            harness(*words, f"--hop={hop}:23", status=2, says=says)
            hops = (f"--hop={hop}", "--hop=ssh://looker-on@gateway")
            with kernel.under_way(*words, *hops, "--repeats=4") as process:
                kill_the_ssh(" router")
                assert process.wait(timeout=END_S) == 0
            found = sorted(kernel.newest_records().values(), key=lambda record: record["order"])
            assert [record["status"] for record in found] == ["ok"] * 4, found
            seen_of_it(found[0], hop)
            lost = [list(record["telemetry"]["lost_hops"]) for record in found]
            lost_after = lost.index(["hop"])
            assert lost_after in (1, 2), found
            assert lost == [[]] * lost_after + [["hop"]] * (4 - lost_after), found
            texts = [event.get("text", "") for event in kernel.events(newest_run())]
            assert sum("was lost: the connection ended" in text for text in texts) == 1, texts
    print(f"a hop: lost after {lost_after} of 4 cells")


def seen_of_it(record: dict[str, Any], hop: str) -> None:
    """What was counted during a cell: all of them are the lab's kernel, and two of the names one machine."""
    assert not record["telemetry"]["lost_hops"], record
    (use,) = record["telemetry"]["processors"]
    assert use["hosts"] == ["initiator", "target", "hop", "hop2"], use
    ends = {("initiator", nas.ROUTED), ("target", "nas2")}
    carried = {(i["host"], i["interface"]): i for i in record["telemetry"]["interfaces"]}
    assert set(carried) == ends | {("hop", "left0"), ("hop", "right0")}, carried
    received, sent = carried["hop", "right0"]["rx_bytes"], carried["hop", "left0"]["tx_bytes"]
    assert min(received, sent) > record["read"]["bytes"], carried
    about = environment()["hosts"]
    assert about["hop"]["address"] == hop and "tools" not in about["hop"], about
    print(f"a hop: carried {sent} bytes of {record['read']['bytes']} read")


def disk_image(name: str) -> Path:
    path = Path(f"/root/{name}.img")
    path.write_bytes(b"")
    sh("truncate", "--size=64M", str(path))
    return path


def loop_device() -> str:
    kernel.modprobe("loop")
    device = sh("losetup", "--find", "--show", str(disk_image("disk"))).strip()
    sh("mkfs.ext4", "-q", device)
    return device


def a_device_of_the_targets() -> None:
    """Refused while something uses it, and while it bears something; measured once that is agreed to."""
    device = loop_device()
    words = ("run", *OVER_SSH[:3], f"--backing={device}", *ONE, "--ipsec=off")
    place, kept = Path("/root/mounted"), list(RESULTS.glob("*"))
    place.mkdir()
    sh("mount", device, str(place))
    harness(*words, status=2, says=(f"mounted on {place}", f"umount {place}"))
    sh("umount", str(place))
    said = harness(*words, status=2, says=("ext4", f"--destroy {device}"))
    assert "making and filling" not in said and list(RESULTS.glob("*")) == kept, said
    measured(*words, f"--destroy={device}")
    found = environment()["device"]
    assert found["node"] == device and found["serial"], found
    sh("losetup", "--detach", device)
    print("a device: refused twice, measured once")


def a_device_that_is_swapped() -> None:
    """Another disk under the same name, in the middle of a run: no job writes to it."""
    device, other = loop_device(), disk_image("other")
    words = ("run", *BOTH, "--link=local", f"--backing={device}", f"--destroy={device}", *SHORT)
    cell = ("--no-probes", "--repeats=20", "--runtime=0.5s", "--workload=seq-write-256k")
    with kernel.under_way(*words, *cell) as process:
        sh("losetup", "--detach", device)
        wait_for(lambda: "/root" not in sh("losetup", "--list"), "the disk to be free", deadline_s=20)
        sh("losetup", device, str(other))
        assert process.wait(timeout=END_S) == 1
    found = kernel.newest_records().values()
    bad = {record["reason"] for record in found if record["status"] != "ok"}
    assert bad and all("disk.img" in reason or "sequence number" in reason for reason in bad), bad
    assert other.read_bytes() == bytes(64 << 20), "nothing was written to it"
    sh("losetup", "--detach", device)
    print("swapped: " + bad.pop())


OWN_DISK = "cat /sys/class/iscsi_session/*/device/target*/*/vpd_pg80"
OWN_INITIATOR = "iqn.2003-01.org.example:client"


def with_the_user_s_iscsid() -> None:
    """It has the user's session and name, and cannot be stopped: it logs ours in under our name."""
    kernel.modprobe("iscsi_tcp", "sd_mod")
    place = Path("/etc/iscsi")
    (place / "initiatorname.iscsi").write_text(f"InitiatorName={OWN_INITIATOR}\n", encoding="utf-8")
    (place / "iscsid.conf").write_text("node.startup = manual\n", encoding="utf-8")
    node = ("iscsiadm", "--mode", "node", "--targetname", kernel.OWN_IQN, "--portal", "10.9.0.1:3260")
    with kernel.iscsid() as iscsid:
        sh(*node, "--op", "new")
        sh(*node, "--login")
        wait_for(lambda: "own" in sh("sh", "-c", OWN_DISK, check=False), "the user's disk", deadline_s=20)
        with unchanged("a run"):
            assert len(measured("run", *OVER_SSH, *ONE, "--ipsec=off")) == 1
        assert iscsid.poll() is None
        sh(*node, "--logout")
    print("the user's iscsid: used under another name, and left")


def over_ipv6() -> None:
    """Addresses of the run's own on the interfaces, then the user's, then none."""
    keys = {f"wired-ip6{more}.rand-read-4k.r1" for more in ("", "+aes128gcm16")}
    for link, says in (
        (nas.NIC, "own addresses: proved, and gone"),
        (f"{nas.NIC}@2001:db8::2", "the user's addresses: proved, and left"),
    ):
        if "@" in link:
            nas.add_addresses("2001:db8::{}/64")
        with unchanged(says):
            words = (*BOTH, f"--link=wired={link}", "--backing=ramdisk", *ONE, "--ipsec=both", "--ip=6")
            found = measured("run", *words)
        assert set(found) == keys and {record["column"]["ip"] for record in found.values()} == {6}, found
        if "@" not in link:
            (column,) = environment()["column wired-ip6"]["link"]
            for end in ("initiator", "target"):
                assert "inet6 fd48:2be7:" in column[f"{end}_interface"], column
        print(says)
    sh("tee", f"/proc/sys/net/ipv6/conf/{nas.NIC}/disable_ipv6", input="1")
    harness("run", *OVER_SSH, *ONE, "--ipsec=off", "--ip=6", status=2, says=("has IPv6 switched off",))
    print("switched off: refused")


def all_refusals() -> None:
    record_of_the_path()
    refusals()
    a_device_of_the_targets()
    a_device_that_is_swapped()


BREAKS: dict[str, Callable[[str], None]] = {
    "kill_ssh": lambda name: broken_in_the_middle(name, lambda pid: kill_the_ssh("BatchMode=yes", pid)),
    "cut_the_cable": lambda name: broken_in_the_middle(
        name, lambda _: set_the_cable("down"), lambda: set_the_cable("up")
    ),
    "kill_harness": lambda name: broken_in_the_middle(
        name, lambda pid: os.kill(pid, signal.SIGKILL), survives=False
    ),
}
PARTS: dict[str, Callable[[], None]] = {
    "path": record_of_the_path,
    "matrix": the_whole_matrix,
    "iscsid": with_the_user_s_iscsid,
    "ipv6": over_ipv6,
    "hop": a_router_that_is_watched,
    "refusals": all_refusals,
}


@contextlib.contextmanager
def machines() -> Iterator[None]:
    """Two that reach each other by SSH."""
    kernel.make_the_user_s_own()
    # The user's own target has port 3260 of every address; a run on machines has to leave it alone or say so.
    nas.make_network()
    nas.shape("limit 10000 delay 100us rate 300mbit")
    nas.make_keys()
    with nas.sshd():
        yield


def main(part: str) -> None:
    with machines():
        if part in BREAKS:
            BREAKS[part](part)
        else:
            PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1])
