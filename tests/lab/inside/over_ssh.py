"""Runs over a real sshd: the same figures as without, and nothing left behind when the connection breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from harness.model import Proof
from tests.lab.cli import is_sampled
from tests.lab.inside import nas
from tests.lab.inside.kernel import (
    LIO,
    OWN_IQN,
    RESULTS,
    arguments,
    differences,
    events,
    harness,
    make_the_user_s_own,
    newest_events,
    newest_run,
    processes,
    records,
    sh,
    snapshot,
    started,
    wait_for,
)

WITHIN_S = 60.0
END_S = 600.0
"""A run that has lost a machine ends within a minute and a half on a quiet machine."""

OVER_SSH = ("--target=ssh://nas", "--initiator=local", f"--link=wired={nas.NIC}", "--backing=ramdisk")
SHORT = ("--size=32M", f"--results={RESULTS}")
PROBED = (*SHORT, "--repeats=1", "--workload=rand-read-4k", "--runtime=0.3s")
ONE = (*PROBED, "--no-probes")


def the_whole_matrix() -> None:
    """Every workload of the document, on the target's disk, on the cable, and on the cable with IPsec."""
    words = (*SHORT, "--link=local", "--ipsec=both", "--repeats=1", "--runtime=0.3s")
    harness("run", *OVER_SSH, *words)
    found = records(newest_run())
    assert len(found) == 24
    assert {record["status"] for record in found.values()} == {"ok"}, found
    assert {record["link_title"] for record in found.values()} == {f"wired ({nas.NIC})", "target's disk"}
    print("cells: 24")


def record_of_the_path() -> None:
    harness("run", *OVER_SSH, *PROBED, "--ipsec=both")
    found = records(newest_run())
    for record in found.values():
        assert record["status"] == "ok", record
        assert record["setting"]["testbed"] == "machines"
        moved = record["read"]["bytes"]
        assert min(record["proof"]["link_bytes_initiator"], record["proof"]["link_bytes_target"]) > moved
        others = {tuple(use["hosts"]): use["taken"] for use in record["telemetry"]["others"]}
        assert set(others) == {("initiator", "target")} and None not in others.values(), others
    secured = msgspec.convert(found["wired+aes128gcm16.rand-read-4k.r1"]["proof"], Proof)
    assert secured.cleartext_segments == 0 and is_sampled(secured), secured
    environment = json.loads((newest_run() / "environment.json").read_bytes())
    print(json.dumps(environment["column wired"]["link"])[:300])


def ssh_of(process_id: int) -> int:
    """The ssh(1) that a run keeps."""
    (found,) = [
        pid
        for pid, name in processes().items()
        if name == "ssh" and "BatchMode=yes" in " ".join(arguments(pid)) and pid > process_id
    ]
    return found


def measuring() -> bool:
    return any(event["event"] == "cell-ended" and event["status"] == "ok" for event in newest_events())


def is_left() -> list[str]:
    """What of a run is there, on either side."""
    found = [*(LIO / "iscsi").glob("iqn.2026-11*"), *Path("/sys/class/iscsi_session").glob("*")]
    states = [sh("ip", *where, "xfrm", "state") for where in ((), ("-n", "nas"))]
    return [str(path) for path in found] + [text for text in states if "reqid 12079" in text]


def broken_in_the_middle(how: Callable[[int], None], mend: Callable[[], None], *, survives: bool) -> None:
    """Break the connection while cells are measured; both sides are as before within a minute."""
    before = snapshot()
    for file in RESULTS.rglob("events.jsonl"):
        file.unlink()
    words = ("--ipsec=on", "--repeats=50", "--runtime=0.5s", "--workload=rand-read-4k", *SHORT)
    target = OVER_SSH if not survives else ("--target=ssh://nas-apart", *OVER_SSH[1:])
    with started(["run", *target, *words]) as process:
        wait_for(measuring, "a measured cell", deadline_s=60)
        assert len(is_left()) == 4, is_left()
        began = time.monotonic()
        how(process.pid)
        wait_for(lambda: not is_left(), "both sides to be clean", deadline_s=WITHIN_S)
        took_s = time.monotonic() - began
        mend()
        if survives:
            assert process.wait(timeout=END_S) == 1
            said = Path("/root/started.log").read_text(encoding="utf-8")
            assert "was lost in the middle of the run" in said, said
            assert "--resume" in said, said
    # An IPv6 address is tentative for a second or two when its cable is joined again.
    wait_for(
        lambda: not differences(before, snapshot()) or time.monotonic() - began > WITHIN_S, "", deadline_s=90
    )
    changed = differences(before, snapshot())
    assert not changed, f"{changed}\n{Path('/root/started.log').read_text(encoding='utf-8')}"
    print(f"{how.__name__}: as before after {took_s:.1f} s")


def kill_ssh(pid: int) -> None:
    os.kill(ssh_of(pid), signal.SIGKILL)


def kill_harness(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def cut_the_cable(_pid: int) -> None:
    sh("ip", "link", "set", nas.APART, "down")


def join_the_cable() -> None:
    sh("ip", "link", "set", nas.APART, "up")


def runs() -> list[Path]:
    return list(RESULTS.glob("*"))


def refusals() -> None:
    """What is wrong is said before anything starts, in a sentence, and not even a folder is left of it."""
    before, kept = snapshot(), runs()
    known = Path("/root/.ssh/known_hosts")
    keys = known.read_text(encoding="utf-8")
    known.write_text("", encoding="utf-8")
    said = harness("run", *OVER_SSH, *ONE, "--ipsec=off", status=2)
    assert "known_hosts" in said and "fingerprint" in said, said
    other = sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/nas/other") or Path(
        "/root/nas/other.pub"
    )
    known.write_text(
        "192.0.2.2 " + " ".join(Path(str(other)).read_text().split()[:2]) + "\n", encoding="utf-8"
    )
    said = harness("run", *OVER_SSH, *ONE, "--ipsec=off", status=2)
    assert "not the one in known_hosts" in said, said
    known.write_text(keys, encoding="utf-8")
    said = harness("run", *OVER_SSH[:2], "--link=wired=nic7", "--backing=ramdisk", *ONE, status=2)
    assert "nic7" in said and "nic0" in said, said
    said = harness("run", "--target=ssh://root@192.0.2.2:23", *OVER_SSH[1:], *ONE, status=2)
    assert "is sshd running" in said, said
    said = harness("run", *OVER_SSH[:3], "--backing=/dev/nosuch", *ONE, status=2)
    assert "/dev/nosuch" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed
    assert runs() == kept
    print("refusals: 5")


def a_router_that_is_watched() -> None:
    """Its interfaces during the cell, for whoever may log in there; a lost one costs no cell."""
    nas.put_a_router_between()
    hop = "ssh://looker-on@router"
    way = ("--target=ssh://nas", "--initiator=local", f"--link=wired={nas.ROUTED}@{nas.ROUTED_PORTAL}")
    words = ("run", *way, "--backing=ramdisk", *PROBED, "--ipsec=off")
    with nas.sshd("router", "looker-on@router"):
        nas.await_addresses(nas.ROUTED)
        before = snapshot()
        said = harness("doctor", f"--hop={hop}")
        assert f"hop   {hop}: reached as looker-on; Linux " in said and "interfaces: left0, right0" in said, (
            said
        )
        said = harness(*words, f"--hop={hop}:23", status=2)
        assert f"the hop ({hop}:23) could not be reached" in said and "is sshd running" in said, said
        for file in RESULTS.rglob("events.jsonl"):
            file.unlink()
        with started([*words, f"--hop={hop}", "--hop=ssh://looker-on@gateway", "--repeats=4"]) as process:
            wait_for(measuring, "a measured cell", deadline_s=60)
            (ssh,) = [
                pid for pid, name in processes().items() if name == "ssh" and "router" in arguments(pid)
            ]
            os.kill(ssh, signal.SIGKILL)
            assert process.wait(timeout=END_S) == 0
        found = sorted(records(newest_run()).values(), key=lambda record: record["order"])
        assert [record["status"] for record in found] == ["ok"] * 4, found
        seen_of_it(found[0], hop)
        lost_after = [bool(record["telemetry"]["lost_hops"]) for record in found].index(True)
        assert lost_after in (1, 2), found
        assert all(list(record["telemetry"]["lost_hops"]) == ["hop"] for record in found[lost_after:]), found
        texts = [event.get("text", "") for event in events(newest_run())]
        assert sum("was lost: the connection ended" in text for text in texts) == 1, texts
        changed = differences(before, snapshot())
        assert not changed, changed
    print(f"a hop: lost after {lost_after} of 4 cells")


def a_switch_that_is_asked() -> None:
    """The router by SNMP alone: the cell's octets, drops with their interface, and no secret left."""
    nas.put_a_router_between()
    nas.await_addresses(nas.ROUTED)
    hop, community = f"snmp://{nas.ROUTER}/left0,right0", "not-for-all-7"
    way = ("--target=ssh://nas", "--initiator=local", f"--link=wired={nas.ROUTED}@{nas.ROUTED_PORTAL}")
    cell = ("--repeats=1", "--workload=rand-read-4k", "--ipsec=off")
    words = ("run", *way, "--backing=ramdisk", *SHORT, *cell, f"--hop={hop}")
    with nas.snmpd(community):
        said = harness("doctor", f"--hop={hop}", status=2)
        assert "could not be reached: Timeout: No Response" in said and "defCommunity" in said, said
        settings = Path.home() / ".snmp"
        settings.mkdir(mode=0o700)
        (settings / "snmp.conf").write_text(f"defCommunity {community}\n", encoding="utf-8")
        before = snapshot()
        said = harness("doctor", f"--hop={hop}")
        assert f"hop   {hop}: answers SNMP: Linux " in said and "interfaces: left0 (" in said, said
        print(said)
        said = harness("doctor", f"--hop=snmp://{nas.ROUTER}/left7", status=2)
        assert "expected the interface left7" in said and "found lo, left0, right0" in said, said
        with nas.frames_that_nobody_takes(nas.ROUTED):
            harness(*words, "--runtime=6s")
        (record,) = records(newest_run()).values()
        counted_at_it(record)
        harness(*words, "--runtime=0.3s")
        (short,) = records(newest_run()).values()
        # On a busy machine a cell that is as short is watched for long enough, for fio starts while it is.
        lost = short["telemetry"]["lost_hops"]
        assert short["status"] == "ok" and (not lost or "try --runtime " in lost["hop"]), short
        changed = differences(before, snapshot())
        assert not changed, changed
    for file in RESULTS.rglob("*"):
        assert not file.is_file() or community.encode() not in file.read_bytes(), file


def counted_at_it(record: dict[str, Any]) -> None:
    telemetry = record["telemetry"]
    assert record["status"] == "ok" and not telemetry["lost_hops"], record
    carried = {i["interface"]: i for i in telemetry["interfaces"] if i["host"] == "hop"}
    ends = {i["host"]: i for i in telemetry["interfaces"] if i["host"] != "hop"}
    assert set(carried) == {"left0", "right0"}, telemetry
    received, sent = carried["right0"]["rx_bytes"], carried["left0"]["tx_bytes"]
    moved = ends["target"]["tx_bytes"]
    # The questions are counted as well, and what belongs to no cell but passes just before and after it.
    assert moved <= min(received, sent) and max(received, sent) < 1.02 * moved + 200_000, telemetry
    dropped = carried["left0"]["drops"]
    assert dropped > 100 and carried["right0"]["drops"] == 0, telemetry
    assert f"packets dropped: {dropped} by the hop's interface left0" in record["warnings"], record
    print(f"a switch: carried {sent} bytes of {moved}, dropped {dropped}")


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
    about = json.loads((newest_run() / "environment.json").read_bytes())["hosts"]
    assert about["hop"]["address"] == hop and "tools" not in about["hop"], about
    print(f"a hop: carried {sent} bytes of {record['read']['bytes']} read")


def loop_device() -> str:
    """A disk of the target's with a file system on it."""
    sh("modprobe", "loop")
    Path("/root/disk.img").write_bytes(b"")
    sh("truncate", "--size=64M", "/root/disk.img")
    device = sh("losetup", "--find", "--show", "/root/disk.img").strip()
    sh("mkfs.ext4", "-q", device)
    return device


def a_device_of_the_targets() -> None:
    """Refused while something uses it, and while it bears something; measured once that is agreed to."""
    device = loop_device()
    words = ("run", *OVER_SSH[:3], f"--backing={device}", *ONE, "--ipsec=off")
    mountpoint = Path("/root/mounted")
    mountpoint.mkdir()
    sh("mount", device, str(mountpoint))
    kept = runs()
    said = harness(*words, status=2)
    assert f"mounted on {mountpoint}" in said and f"umount {mountpoint}" in said, said
    sh("umount", str(mountpoint))
    said = harness(*words, status=2)
    assert "ext4" in said and f"--destroy {device}" in said, said
    assert "making and filling" not in said and runs() == kept, said
    harness(*words, f"--destroy={device}")
    assert {record["status"] for record in records(newest_run()).values()} == {"ok"}
    environment = json.loads((newest_run() / "environment.json").read_bytes())
    assert environment["device"]["node"] == device and environment["device"]["serial"], environment["device"]
    sh("losetup", "--detach", device)
    print("a device: refused twice, measured once")


def a_device_that_is_swapped() -> None:
    """Another disk under the same name, in the middle of a run: no job writes to it."""
    device = loop_device()
    Path("/root/other.img").write_bytes(b"")
    sh("truncate", "--size=64M", "/root/other.img")
    words = ["run", *OVER_SSH[:2], "--link=local", f"--backing={device}", f"--destroy={device}"]
    words += [*SHORT, "--no-probes"]
    for file in RESULTS.rglob("events.jsonl"):
        file.unlink()
    with started([*words, "--repeats=20", "--runtime=0.5s", "--workload=seq-write-256k"]) as process:
        wait_for(measuring, "a measured cell", deadline_s=60)
        sh("losetup", "--detach", device)
        wait_for(lambda: "/root" not in sh("losetup", "--list"), "the disk to be free", deadline_s=20)
        sh("losetup", device, "/root/other.img")
        assert process.wait(timeout=END_S) == 1
    found = records(newest_run()).values()
    bad = {record["reason"] for record in found if record["status"] != "ok"}
    assert bad and all("disk.img" in reason or "sequence number" in reason for reason in bad), bad
    assert Path("/root/other.img").read_bytes() == bytes(64 << 20), "nothing was written to it"
    sh("losetup", "--detach", device)
    print("swapped: " + bad.pop())


OWN_DISK = "cat /sys/class/iscsi_session/*/device/target*/*/vpd_pg80"
OWN_INITIATOR = "iqn.2003-01.org.example:client"
OWN_RECORDS = (
    ("initiatorname.iscsi", f"InitiatorName={OWN_INITIATOR}\n"),
    ("iscsid.conf", "node.startup = manual\n"),
)


def with_the_user_s_iscsid() -> None:
    """It has the user's session and name, and cannot be stopped: it logs ours in under our name."""
    sh("modprobe", "iscsi_tcp")
    sh("modprobe", "sd_mod")
    for name, text in OWN_RECORDS:
        (Path("/etc/iscsi") / name).write_text(text, encoding="utf-8")
    node = ("iscsiadm", "--mode", "node", "--targetname", OWN_IQN, "--portal", "10.9.0.1:3260")
    iscsid = subprocess.Popen(["iscsid", "--foreground"], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(
            lambda: "@ISCSIADM" in Path("/proc/net/unix").read_text(encoding="utf-8"), "iscsid", deadline_s=20
        )
        sh(*node, "--op", "new")
        sh(*node, "--login")
        wait_for(lambda: "own" in sh("sh", "-c", OWN_DISK, check=False), "the user's disk", deadline_s=20)
        before = snapshot()
        harness("run", *OVER_SSH, *ONE, "--ipsec=off")
        (record,) = records(newest_run()).values()
        assert record["status"] == "ok", record
        changed = differences(before, snapshot())
        assert not changed, changed
        assert iscsid.poll() is None
        sh(*node, "--logout")
    finally:
        iscsid.terminate()
    print("the user's iscsid: used under another name, and left")


def over_ipv6() -> None:
    """Addresses of the run's own on the interfaces, then the user's, then none."""
    before = snapshot()
    harness("run", *OVER_SSH, *ONE, "--ipsec=both", "--ip=6")
    found = records(newest_run())
    assert set(found) == {f"wired-ip6{more}.rand-read-4k.r1" for more in ("", "+aes128gcm16")}
    assert {(record["status"], record["column"]["ip"]) for record in found.values()} == {("ok", 6)}, found
    (column,) = json.loads((newest_run() / "environment.json").read_bytes())["column wired-ip6"]["link"]
    assert "inet6 fd48:2be7:" in column["initiator_interface"], column
    assert "inet6 fd48:2be7:" in column["target_interface"], column
    assert not differences(before, snapshot()), differences(before, snapshot())
    print("own addresses: proved, and gone")
    sh("ip", "address", "add", "2001:db8::1/64", "dev", nas.NIC, "nodad")
    sh("ip", "-n", "nas", "address", "add", "2001:db8::2/64", "dev", "nas0", "nodad")
    before = snapshot()
    words = (*OVER_SSH[:2], f"--link=wired={nas.NIC}@2001:db8::2", OVER_SSH[3])
    harness("run", *words, *ONE, "--ipsec=both", "--ip=6")
    found = records(newest_run())
    assert {(record["status"], record["column"]["ip"]) for record in found.values()} == {("ok", 6)}, found
    assert not differences(before, snapshot()), differences(before, snapshot())
    print("the user's addresses: proved, and left")
    sh("tee", f"/proc/sys/net/ipv6/conf/{nas.NIC}/disable_ipv6", input="1")
    said = harness("run", *OVER_SSH, *ONE, "--ipsec=off", "--ip=6", status=2)
    assert "has IPv6 switched off" in said, said
    print("switched off: refused")


def main(part: str) -> None:
    make_the_user_s_own()
    # The user's own target has port 3260 of every address; a run on machines has to leave it alone or say so.
    nas.make_network()
    nas.shape("limit 10000 delay 100us rate 300mbit")
    nas.make_keys()
    with nas.sshd():
        if part == "matrix":
            the_whole_matrix()
        elif part == "iscsid":
            with_the_user_s_iscsid()
        elif part == "ipv6":
            over_ipv6()
        elif part == "hop":
            a_router_that_is_watched()
        elif part == "snmp":
            a_switch_that_is_asked()
        elif part == "kill_ssh":
            broken_in_the_middle(kill_ssh, lambda: None, survives=True)
        elif part == "cut_the_cable":
            broken_in_the_middle(cut_the_cable, join_the_cable, survives=True)
        elif part == "kill_harness":
            broken_in_the_middle(kill_harness, lambda: None, survives=False)
        else:
            record_of_the_path()
            refusals()
            a_device_of_the_targets()
            a_device_that_is_swapped()


if __name__ == "__main__":
    main(sys.argv[1])
