"""Runs over a real sshd: the same figures as without, and nothing left behind when the connection breaks."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.inside import nas
from tests.lab.inside.kernel import (
    LIO,
    RESULTS,
    arguments,
    differences,
    events,
    harness,
    make_the_user_s_own,
    newest_run,
    processes,
    records,
    sh,
    snapshot,
    started,
    wait_for,
)

WITHIN_S = 60.0
OVER_SSH = ("--target=ssh://nas", "--initiator=local", f"--link=wired={nas.NIC}", "--backing=ramdisk")
SHORT = ("--size=32M", f"--results={RESULTS}")
ONE = (*SHORT, "--repeats=1", "--workload=rand-read-4k", "--runtime=0.3s")
PROFILE = 'title = "as the cable"\nemulated = true\nrate_bit_s = 300_000_000\ndelay_us = 100\n'
NETEM = "limit 10000 delay 100us rate 295320677bit"  # what links.netem makes of it


def figure(record: dict[str, Any]) -> float:
    io = record["read"] or record["write"]
    return float(io["bytes"] / io["runtime_ns"])


def the_same_figures() -> None:
    """The document's matrix over SSH and directly, in turns; the cable has the direct link's shape."""
    Path("/root/cable.toml").write_text(PROFILE, encoding="utf-8")
    words = (*SHORT, "--link=local", "--ipsec=both", "--repeats=2", "--runtime=0.4s")
    found: dict[str, list[dict[str, dict[str, Any]]]] = {"ssh": [], "direct": []}
    for _ in range(2):
        harness("run", *OVER_SSH, *words)
        found["ssh"].append(records(newest_run()))
        harness("run", "--testbed=host", "--link=/root/cable.toml", "--backing=ramdisk", *words)
        found["direct"].append(records(newest_run()))
    ratios = []
    for key in sorted(found["ssh"][0]):
        direct = key.replace("wired", "cable")
        values = {
            way: statistics.median(figure(run[name]) for run in found[way])
            for way, name in (("ssh", key), ("direct", direct))
        }
        assert all(run[key]["status"] == "ok" for run in found["ssh"]), found["ssh"]
        ratios.append(values["ssh"] / values["direct"])
        print(f"{key}: {values['ssh'] * 1e3:.2f} / {values['direct'] * 1e3:.2f} MB/s = {ratios[-1]:.3f}")
    overall = statistics.geometric_mean(ratios)
    print(f"over SSH / directly: {overall:.3f} over {len(ratios)} cells")
    assert 0.9 < overall < 1.1, ratios


def record_of_the_path() -> None:
    harness("run", *OVER_SSH, *ONE, "--ipsec=both")
    found = records(newest_run())
    for record in found.values():
        assert record["status"] == "ok", record
        assert record["testbed"] == "machines"
        moved = record["read"]["bytes"]
        assert min(record["proof"]["link_bytes_initiator"], record["proof"]["link_bytes_target"]) > moved
    secured = found["wired+aes128gcm16.rand-read-4k.r1"]["proof"]
    assert secured["cleartext_segments"] == 0 and secured["esp_packets_sampled"] > 0, secured
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
    return RESULTS.is_dir() and any(
        event["event"] == "cell-ended" and event["status"] == "ok" for event in events(newest_run())
    )


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
            assert process.wait(timeout=90) == 1
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


def refusals() -> None:
    """What is wrong is said before anything starts, in a sentence."""
    before = snapshot()
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
    print("refusals: 5")


def main(part: str) -> None:
    make_the_user_s_own()
    # The user's own target has port 3260 of every address; a run on machines has to live beside it or say so.
    nas.make_network()
    nas.shape(NETEM)
    nas.make_keys()
    with nas.sshd():
        if part == "figures":
            the_same_figures()
        elif part == "broken":
            broken_in_the_middle(kill_ssh, lambda: None, survives=True)
            broken_in_the_middle(cut_the_cable, join_the_cable, survives=True)
            broken_in_the_middle(kill_harness, lambda: None, survives=False)
        else:
            record_of_the_path()
            refusals()


if __name__ == "__main__":
    main(sys.argv[1])
