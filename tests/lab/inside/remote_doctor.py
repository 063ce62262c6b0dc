"""`harness doctor` and `harness clean` over a real sshd: a machine that lacks things, and a killed run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.hosts import programs
from harness.protection.ipsec import IKE_PORT
from tests.lab.inside import kernel, nas
from tests.lab.inside.kernel import RESULTS, harness, newest_run, processes, sh, unchanged, wait_for, within

BOTH = ("--target=ssh://nas", "--initiator=local")
BARE = "ssh://root@192.0.2.2:23"
OVER_IT = (f"--link=wired={nas.NIC}", "--backing=ramdisk", f"--results={RESULTS}")
CELL = ("--workload=rand-read-4k", "--size=32M", "--ipsec=on")
END_S = 600.0
"""A run that has lost a machine ends within a minute and a half on a quiet machine."""

PYTHON = str(Path(programs.PYTHON).resolve())
HIDE = """
mount --bind /dev/null "$(readlink -f "$(command -v tcpdump)")"
mount --bind /root/modprobe "$(readlink -f "$(command -v modprobe)")"
"""
"""In a mount namespace of one sshd alone, which so stands for a machine that lacks things."""

MODPROBE = 'case "$*" in *target_core_mod*) exit 1 ;; esac'
LISTEN = (
    "import socket, sys, time; s = socket.socket(type=2); s.bind(('', int(sys.argv[1]))); time.sleep(600)"
)
"""On the UDP port that is its argument."""

TRIED, FAILED = "tried and undone: ", "was tried and failed: "
LEFT = "removed, left by an earlier run: "
NOTHING_LEFT = "initiator: nothing was left behind\ntarget: nothing was left behind\n"


def program(name: str, text: str) -> Path:
    """A script in root's home."""
    path = Path("/root", name)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def all_is_well() -> None:
    with unchanged("doctor"):
        began = time.monotonic()
        said = harness(
            *("doctor", *BOTH),
            says=(
                *("nas0 192.0.2.2/25", "nic0 192.0.2.1/25", "the machines are ready"),
                f"{TRIED}an iSCSI target, an IKE daemon, an ESP packet and its capture",
                f"{TRIED}an iSCSI session to itself, which appeared as /dev/sd",
            ),
        )
        print(f"{said}\ntried: after {time.monotonic() - began:.1f} s")
    assert "missing" not in said and said.count("its kernel has all modules") == 2, said


def what_forbids_is_found_by_trying() -> None:
    """A tcpdump that may not capture, and an iscsid that does not start: both are there, and both in vain."""
    for name, text in (
        ("tcpdump", "echo 'tcpdump: lo: Permission denied' >&2; exit 1"),
        ("iscsid", "exit 1"),
    ):
        there = Path(str(shutil.which(name))).resolve()
        sh("mount", "--bind", str(program(name, text)), str(there))
    with unchanged("doctor"):
        said = harness(
            *("doctor", *BOTH),
            status=2,
            says=(
                f"missing initiator an iSCSI session {FAILED}`iscsid --foreground` on the",
                f"ok      target    {TRIED}an iSCSI target, an IKE daemon\n",
                "the machines are not ready",
            ),
        )
    print(said)
    assert said.count(f"an ESP packet and its capture {FAILED}tcpdump: lo: Permission") == 2, said
    print("forbidden: found")


def bare_machine(script: str) -> contextlib.AbstractContextManager[object]:
    """A second sshd, at port 23, that sees what the script does to its files."""
    sshd = f"exec {' '.join(within('nas'))} /usr/sbin/sshd -D -e -p 23 -f /root/nas/sshd_config"
    log = Path("/root/nas/bare.log")
    return kernel.serving(
        *("unshare", "--mount", "--propagation", "private", "sh", "-ec", f"{script}\n{sshd}"),
        ready=lambda: "listening on" in log.read_text(encoding="utf-8"),
        log=log,
    )


def what_is_missing_is_named() -> None:
    program("modprobe", MODPROBE)
    known = Path("/root/.ssh/known_hosts")
    keys = known.read_text(encoding="utf-8")
    doctor = ("doctor", f"--target={BARE}", "--initiator=local")
    unreached = "missing target    the target could not be reached"
    reached = "initiator local: reached as root"
    with bare_machine(HIDE):
        known.write_text("", encoding="utf-8")
        harness(*doctor, status=2, says=(unreached, "compare the finger", reached))
        known.write_text(keys, encoding="utf-8")
        install = "apt-get install --no-install-recommends tcpdump\n"
        missing = ("packages are missing: tcpdump (", install, "lacks target_core_mod\n")
        print(harness(*doctor, status=2, says=missing))
        words = ("the target is not ready", "tcpdump", "target_core_mod", "apt-get")
        harness("run", f"--target={BARE}", *OVER_IT, status=2, says=words)
    with bare_machine(f"mount --bind /dev/null {PYTHON}"):
        harness(*doctor, status=2, says=("packages are missing: python3 (", "reached as root"))
    print("missing: named")


def who_has_the_port_of_the_runs_own_ike_daemon_is_named() -> None:
    def is_taken() -> bool:
        return f":{IKE_PORT:04X} " in sh(*within("nas"), "cat", "/proc/net/udp")

    port = f"UDP port {IKE_PORT}"
    with subprocess.Popen([*within("nas"), programs.PYTHON, "-c", LISTEN, str(IKE_PORT)]) as process:
        wait_for(is_taken, "it", deadline_s=20)
        user = f"target    python3 (process {process.pid}) uses {port}"
        said = harness("doctor", *BOTH, status=2, says=(user,))
        assert said.count(port) == 1, said
        run = ("run", *BOTH, *OVER_IT, *CELL, "--repeats=1", "--runtime=0.2s")
        harness(*run, status=2, says=(f" uses {port}", "python3", "another port"))
        process.kill()
    print("the port: named")


def kill_agents(least: int = 1) -> None:
    """The agents' processes, process 1 of their namespaces each."""
    killed = [
        pid
        for pid, name in processes().items()
        if name.startswith("python") and "import sys; i = sys.stdin" in " ".join(kernel.arguments(pid))
    ]
    assert len(killed) >= least, killed
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def what_killed_agents_left_is_removed() -> None:
    with unchanged("clean"):
        before = kernel.snapshot()
        run = ("run", *BOTH, *OVER_IT, *CELL, "--repeats=50", "--runtime=0.5s")
        with kernel.under_way(*run, event="cell-started") as process:
            harness("doctor", *BOTH, says=("note    target    it is in use by run ",))
            harness("clean", *BOTH, status=2, says=("is in use by run",))
            kill_agents(least=2)
            assert process.wait(timeout=END_S) == 1
        assert kernel.differences(before, kernel.snapshot()), "something is left"
        said = harness("doctor", *BOTH)
        print(said)
        assert said.count("a killed run left some of its resources there") == 2, said
        print(harness("clean", *BOTH, says=(f"{LEFT}target: ", f"{LEFT}initiator: IscsiSession")))
    assert harness("clean", *BOTH) == NOTHING_LEFT
    print("clean: as before")


IMAGE = Path("/root/disk/bench.img")


def switch_off_in_the_middle() -> None:
    """The target loses its power while it is measured: what is in its memory has gone, its disk has not."""
    words = ("--link=local", f"--backing=file:{IMAGE}", "--size=32M", "--repeats=8", "--runtime=0.3s")
    run = ("run", *BOTH, *words, "--workload=rand-read-4k", "--no-probes", f"--results={RESULTS}")
    with kernel.under_way(*run, event="cell-started") as process:
        kill_agents()
        assert process.wait(timeout=END_S) == 1
    said = kernel.started_said()
    assert "removes the file that is left on its disk" in said and "--resume" in said, said
    shutil.rmtree("/run/harness")
    assert IMAGE.stat().st_size == 32 << 20


def what_a_power_loss_left_is_removed() -> None:
    IMAGE.parent.mkdir()
    Path("/root/disk.img").touch()
    sh("truncate", "--size=64M", "/root/disk.img")
    sh("mkfs.ext4", "-q", "/root/disk.img")
    kernel.modprobe("loop")
    sh("mount", "-o", "loop", "/root/disk.img", str(IMAGE.parent))
    with unchanged("power loss"):
        switch_off_in_the_middle()
        said = harness("doctor", *BOTH)
        assert said.count("a killed run left some of its resources there") == 1, said
        again = ("run", f"--resume={newest_run()}", *BOTH, "--link=local", f"--backing=file:{IMAGE}")
        said = harness(*again, says=(f"removed on the target, left by an earlier run: BackingFile {IMAGE}",))
        assert {record["status"] for record in kernel.newest_records().values()} == {"ok"}, said
        assert not IMAGE.exists()

        switch_off_in_the_middle()
        harness("clean", *BOTH, says=(f"{LEFT}target: BackingFile {IMAGE}\n",))
        assert not IMAGE.exists()

        switch_off_in_the_middle()
        IMAGE.unlink()
        IMAGE.write_bytes(b"mine" * (8 << 20))
        assert harness("clean", *BOTH) == NOTHING_LEFT
        assert IMAGE.read_bytes() == b"mine" * (8 << 20)
        IMAGE.unlink()
    assert not Path("/var/lib/harness").exists()
    print("power loss: resumed, cleaned, and another's file left")


def all_that_doctor_says() -> None:
    all_is_well()
    what_is_missing_is_named()
    who_has_the_port_of_the_runs_own_ike_daemon_is_named()
    what_forbids_is_found_by_trying()


PARTS: dict[str, Callable[[], None]] = {
    "doctor": all_that_doctor_says,
    "power": what_a_power_loss_left_is_removed,
    "clean": what_killed_agents_left_is_removed,
}


def main(part: str) -> None:
    kernel.make_the_user_s_own()
    nas.make_network()
    nas.make_keys()
    with nas.sshd():
        PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1])
