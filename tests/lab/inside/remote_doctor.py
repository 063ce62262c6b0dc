"""`harness doctor` and `harness clean` over a real sshd: a machine that lacks things, and a killed run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import programs
from harness.protection.ipsec import IKE_PORT
from tests.lab.inside import nas
from tests.lab.inside.kernel import (
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

BOTH = ("--target=ssh://nas", "--initiator=local")
BARE = "ssh://root@192.0.2.2:23"
END_S = 600.0
"""A run that has lost a machine ends within a minute and a half on a quiet machine."""

PYTHON = str(Path(programs.PYTHON).resolve())
HIDE = """
mount --bind /dev/null "$(readlink -f "$(command -v tcpdump)")"
mount --bind /root/modprobe "$(readlink -f "$(command -v modprobe)")"
"""
"""In a mount namespace of one sshd alone, which so stands for a machine that lacks things."""

MODPROBE = '#!/bin/sh\ncase "$*" in *target_core_mod*) exit 1 ;; esac\n'
LISTEN = (
    "import socket, sys, time; s = socket.socket(type=2); s.bind(('', int(sys.argv[1]))); time.sleep(600)"
)
"""On the UDP port that is its argument."""


def all_is_well() -> None:
    before = snapshot()
    began = time.monotonic()
    said = harness("doctor", *BOTH)
    print(f"{said}\ntried: after {time.monotonic() - began:.1f} s")
    changed = differences(before, snapshot())
    assert not changed, changed
    assert "missing" not in said, said
    assert "nas0 192.0.2.2/25" in said and "nic0 192.0.2.1/25" in said, said
    assert said.count("its kernel has all modules") == 2, said
    assert "tried, and undone again: an iSCSI target, an IKE daemon, an ESP packet and its capture" in said, (
        said
    )
    assert "tried, and undone again: an iSCSI session to itself, which appeared as /dev/sd" in said, said
    assert "the machines are ready" in said, said


def what_forbids_is_found_by_trying() -> None:
    """A tcpdump that may not capture, and an iscsid that does not start: both are there, and both in vain."""
    for name, text in (
        ("tcpdump", "echo 'tcpdump: lo: Permission denied' >&2; exit 1"),
        ("iscsid", "exit 1"),
    ):
        Path(f"/root/{name}").write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        Path(f"/root/{name}").chmod(0o755)
        sh("mount", "--bind", f"/root/{name}", str(Path(str(shutil.which(name))).resolve()))
    before = snapshot()
    said = harness("doctor", *BOTH, status=2)
    print(said)
    assert said.count("an ESP packet and its capture was tried and failed: tcpdump: lo: Permission") == 2, (
        said
    )
    assert "missing initiator an iSCSI session was tried and failed: `iscsid --foreground` on the" in said, (
        said
    )
    assert "ok      target    tried, and undone again: an iSCSI target, an IKE daemon\n" in said, said
    assert "the machines are not ready" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed
    print("forbidden: found")


@contextlib.contextmanager
def bare_machine(script: str) -> Iterator[None]:
    """A second sshd, at port 23, that sees what the script does to its files."""
    sshd = "exec nsenter --net=/run/netns/nas -- /usr/sbin/sshd -D -e -p 23 -f /root/nas/sshd_config"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f"{script}\n{sshd}"]
    with Path("/root/nas/bare.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(
            lambda: "listening on" in Path("/root/nas/bare.log").read_text(encoding="utf-8"),
            "the second sshd",
            deadline_s=20,
        )
        yield
    finally:
        process.terminate()
        process.wait()


def what_is_missing_is_named() -> None:
    modprobe = Path("/root/modprobe")
    modprobe.write_text(MODPROBE, encoding="utf-8")
    modprobe.chmod(0o755)
    known = Path("/root/.ssh/known_hosts")
    keys = known.read_text(encoding="utf-8")
    with bare_machine(HIDE):
        known.write_text("", encoding="utf-8")
        said = harness("doctor", f"--target={BARE}", "--initiator=local", status=2)
        assert "missing target    the target could not be reached" in said and "compare the finger" in said
        assert "initiator local: reached as root" in said, said
        known.write_text(keys, encoding="utf-8")
        said = harness("doctor", f"--target={BARE}", "--initiator=local", status=2)
        print(said)
        assert "packages are missing: tcpdump (" in said, said
        assert "apt-get install --no-install-recommends tcpdump\n" in said, said
        assert "lacks target_core_mod\n" in said, said
        run = (
            "run",
            f"--target={BARE}",
            f"--link=wired={nas.NIC}",
            "--backing=ramdisk",
            f"--results={RESULTS}",
        )
        said = harness(*run, status=2)
        for words in ("the target is not ready", "tcpdump", "target_core_mod", "apt-get"):
            assert words in said, said
    with bare_machine(f"mount --bind /dev/null {PYTHON}"):
        said = harness("doctor", f"--target={BARE}", "--initiator=local", status=2)
        assert "packages are missing: python3 (" in said and "reached as root" in said, said
    print("missing: named")


def who_has_the_port_of_the_runs_own_ike_daemon_is_named() -> None:
    argv = ["nsenter", "--net=/run/netns/nas", "--", programs.PYTHON, "-c", LISTEN, str(IKE_PORT)]
    with subprocess.Popen(argv) as process:
        wait_for(
            lambda: f":{IKE_PORT:04X} " in sh("nsenter", *argv[1:3], "cat", "/proc/net/udp"),
            "it",
            deadline_s=20,
        )
        said = harness("doctor", *BOTH, status=2)
        assert f"target    python3 (process {process.pid}) uses UDP port {IKE_PORT}" in said, said
        assert said.count(f"UDP port {IKE_PORT}") == 1, said
        one = (
            "--repeats=1",
            "--workload=rand-read-4k",
            "--runtime=0.2s",
            "--size=32M",
            f"--results={RESULTS}",
        )
        said = harness(
            "run", *BOTH, f"--link=wired={nas.NIC}", "--backing=ramdisk", "--ipsec=on", *one, status=2
        )
        assert f" uses UDP port {IKE_PORT}" in said and "python3" in said and "another port" in said, said
        process.kill()
    print("the port: named")


def agents() -> list[int]:
    """The agents' processes, process 1 of their namespaces each."""
    return [
        pid
        for pid, name in processes().items()
        if name.startswith("python") and "import sys; i = sys.stdin" in " ".join(arguments(pid))
    ]


def measuring() -> bool:
    return RESULTS.is_dir() and any(e["event"] == "cell-started" for e in events(newest_run()))


def what_killed_agents_left_is_removed() -> None:
    for file in RESULTS.rglob("events.jsonl"):
        file.unlink()
    before = snapshot()
    words = (
        "--repeats=50",
        "--workload=rand-read-4k",
        "--runtime=0.5s",
        "--size=32M",
        "--ipsec=on",
        "--backing=ramdisk",
    )
    with started(["run", *BOTH, f"--link=wired={nas.NIC}", *words, f"--results={RESULTS}"]) as process:
        wait_for(measuring, "a cell", deadline_s=60)
        said = harness("doctor", *BOTH)
        assert "note    target    it is in use by run " in said, said
        assert "is in use by run" in harness("clean", *BOTH, status=2)
        killed = agents()
        assert len(killed) >= 2, killed
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=END_S) == 1
    assert differences(before, snapshot()), "something is left"
    said = harness("doctor", *BOTH)
    print(said)
    assert said.count("a killed run left things there") == 2, said
    said = harness("clean", *BOTH)
    print(said)
    assert "removed, left by an earlier run: target: " in said, said
    assert "removed, left by an earlier run: initiator: IscsiSession" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed
    said = harness("clean", *BOTH)
    assert said == "initiator: nothing was left behind\ntarget: nothing was left behind\n", said
    print("clean: as before")


IMAGE = Path("/root/disk/bench.img")


def switch_off_in_the_middle(*words: str) -> None:
    """The target loses its power while it is measured: what is in its memory has gone, its disk has not."""
    for file in RESULTS.rglob("events.jsonl"):
        file.unlink()
    with started(["run", *BOTH, *words, f"--results={RESULTS}"]) as process:
        wait_for(lambda: measuring() or process.poll() is not None, "a cell", deadline_s=60)
        assert process.poll() is None, Path("/root/started.log").read_text(encoding="utf-8")
        for pid in agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=END_S) == 1
    said = Path("/root/started.log").read_text(encoding="utf-8")
    assert "removes the file that is left on its disk" in said and "--resume" in said, said
    shutil.rmtree("/run/harness")
    assert IMAGE.stat().st_size == 32 << 20


def what_a_power_loss_left_is_removed() -> None:
    IMAGE.parent.mkdir()
    Path("/root/disk.img").touch()
    sh("truncate", "--size=64M", "/root/disk.img")
    sh("mkfs.ext4", "-q", "/root/disk.img")
    sh("modprobe", "loop")
    sh("mount", "-o", "loop", "/root/disk.img", str(IMAGE.parent))
    words = (
        *("--link=local", f"--backing=file:{IMAGE}", "--size=32M", "--repeats=8", "--runtime=0.3s"),
        *("--workload=rand-read-4k", "--no-probes"),
    )
    before = snapshot()

    switch_off_in_the_middle(*words)
    said = harness("doctor", *BOTH)
    assert said.count("a killed run left things there") == 1, said
    again = (*BOTH, "--link=local", f"--backing=file:{IMAGE}")
    said = harness("run", f"--resume={newest_run()}", *again)
    assert f"removed on the target, left by an earlier run: BackingFile {IMAGE}" in said, said
    assert {record["status"] for record in records(newest_run()).values()} == {"ok"}, said
    assert not IMAGE.exists()

    switch_off_in_the_middle(*words)
    said = harness("clean", *BOTH)
    assert f"removed, left by an earlier run: target: BackingFile {IMAGE}\n" in said, said
    assert not IMAGE.exists()

    switch_off_in_the_middle(*words)
    IMAGE.unlink()
    IMAGE.write_bytes(b"mine" * (8 << 20))
    said = harness("clean", *BOTH)
    assert said == "initiator: nothing was left behind\ntarget: nothing was left behind\n", said
    assert IMAGE.read_bytes() == b"mine" * (8 << 20)
    IMAGE.unlink()
    changed = differences(before, snapshot())
    assert not changed, changed
    assert not Path("/var/lib/harness").exists()
    print("power loss: resumed, cleaned, and another's file left")


def main(part: str) -> None:
    make_the_user_s_own()
    nas.make_network()
    nas.make_keys()
    with nas.sshd():
        if part == "doctor":
            all_is_well()
            what_is_missing_is_named()
            who_has_the_port_of_the_runs_own_ike_daemon_is_named()
            what_forbids_is_found_by_trying()
        elif part == "power":
            what_a_power_loss_left_is_removed()
        else:
            what_killed_agents_left_is_removed()


if __name__ == "__main__":
    main(sys.argv[1])
