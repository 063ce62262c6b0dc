"""The kernel encrypts with vector registers, and nobody loses theirs: no process, and not the kernel itself.

ESP's packets arrive on timers (netem), so that interrupts decrypt and encrypt while others are at work: two
processes that hold patterns in all vector registers, and the kernel, which encrypts for a third (AF_ALG).
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.inside.kernel import cable, ip, serving, sh, within
from tests.lab.inside.same_ciphers import GCM_PORTABLE, Aead, drivers, pseudorandom

SECONDS = 8
PORT = 5001
SHARED = "xfrm state add src {0} dst {1} proto esp spi {2} reqid 7 mode transport aead {3} 0x{4} 128\n"
POLICY = "xfrm policy add src {0} dst {1} dir {2} tmpl src {0} dst {1} proto esp reqid 7 mode transport\n"
DRIVER = "rfc4106-gcm-aesni"


def network() -> None:
    """Two namespaces with ESP between them; each packet waits for a timer."""
    here, there = "10.9.0.1", "10.9.0.2"
    states = "".join(
        SHARED.format(*pair, spi, "rfc4106(gcm(aes))", key * 20)
        for pair, spi, key in (((here, there), 0x101, "42"), ((there, here), 0x102, "43"))
    )
    ip("", "netns add far")
    cable(("", "near0", f"{here}/24"), ("far", "far0", f"{there}/24"))
    for netns, device, own, other in (("", "near0", here, there), ("far", "far0", there, here)):
        at = within(netns) if netns else ()
        policies = POLICY.format(own, other, "out") + POLICY.format(other, own, "in")
        sh(*at, "ip", "-batch", "-", input=f"link set lo up\n{states}{policies}")
        sh(*at, "tc", "qdisc", "add", "dev", device, "root", "netem", "delay", "300us", "rate", "400mbit")


def send_without_end() -> None:
    data = bytes(1 << 16)
    with socket.create_connection(("10.9.0.2", PORT)) as connection:
        while True:
            connection.sendall(data)


def receive() -> None:
    with socket.create_server(("10.9.0.2", PORT)) as server:
        connection, _ = server.accept()
        while connection.recv(1 << 16):
            pass


def encrypt_the_same() -> None:
    """Encrypts one message again and again in the kernel; ends with status 1 if a result differs."""
    aead = Aead("generic-gcm-aesni", bytes(range(16)), icv_bytes=16)
    data, associated, iv = pseudorandom(4000), pseudorandom(20), bytes(12)
    portable = Aead(GCM_PORTABLE, bytes(range(16)), icv_bytes=16)
    expected = portable.seal(associated, iv, data)
    end, times = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        for _ in range(50):
            if aead.seal(associated, iv, data) != expected:
                sys.exit(f"another result at time {times}")
            times += 1
    sys.stdout.write(f"{times}\n")


def counted(what: str) -> dict[str, int]:
    text = sh(*(within("far") if what == "far" else ()), "cat", "/proc/net/xfrm_stat")
    return {name: int(value) for name, value in re.findall(r"(\w+)\s+(\d+)", text)}


def timer_interrupts() -> int:
    lines = Path("/proc/interrupts").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if "timer" in line)


def main() -> None:
    network()
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/vector_registers"
        sh("cc", "-O1", "-o", program, str(Path(__file__).with_suffix(".c")))
        again = [sys.executable, "-m", "tests.lab.inside.vector_registers"]
        far = within("far")

        def is_listening() -> bool:
            return f":{PORT:04X} " in sh(*far, "cat", "/proc/net/tcp")

        with serving(*far, *again, "receive", ready=is_listening, deadline_s=60):
            before = timer_interrupts()
            with subprocess.Popen([*again, "send"]) as sender:
                work = [[program, str(SECONDS)], [program, str(SECONDS)], [*again, "encrypt"]]
                started = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for argv in work]
                said = [process.communicate()[0].strip() for process in started]
                interrupts = timer_interrupts() - before
                states = sh("ip", "-s", "xfrm", "state")
                sender.kill()
    moved = sum(map(int, re.findall(r"(\d+)\(bytes\)", states)))
    sys.stdout.write(f"{said}, {moved} bytes of ESP, {interrupts} interrupts of the timer\n")
    assert [process.returncode for process in started] == [0, 0, 0], said
    looks = [int(text.split()[-1]) for text in said]
    assert min(looks) >= 10, looks
    assert moved > 1 << 20 and interrupts > 100 * SECONDS, (moved, interrupts)
    for end in ("near", "far"):
        failures = {name: count for name, count in counted(end).items() if count}
        assert not failures, failures
    (used,) = drivers("driver", DRIVER)
    assert re.search(r"selftest\s+: passed", used), used
    assert int(re.findall(r"refcnt\s+: (\d+)", used)[0]) > 1, "no state of ESP has it"


if __name__ == "__main__":
    parts = {"receive": receive, "send": send_without_end, "encrypt": encrypt_the_same}
    parts.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
