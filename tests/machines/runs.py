"""Runs between stock machines: how they are asked for, what they measured, and what they left."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.machines import snapshot as snapshot_program
from tests.machines.site import Machine, Said, Site

TOGETHER = ("--target", "ssh://root@server", "--initiator", "ssh://root@client")
AS_IT_IS = ("--size", "64M", "--retries", "0")
"""What others on the machine disturb is not measured again: that would take time."""

SHORT = (*AS_IT_IS, "--repeats", "1", "--runtime", "0.3s")
ONE = ("--workload", "rand-read-4k", "--no-probes", *SHORT)
LONG = ("--workload", "rand-read-4k", "--no-probes", *AS_IT_IS, "--repeats", "100", "--runtime", "0.5s")
"""To be broken into: it ends when it is ended."""

UNDONE_S = 25.0
"""How long machines take to notice that a run is gone and to undo what it brought up."""

SETTLE_S = 120.0
"""How long a machine may take to put away what a run's connections were."""

Snapshot = dict[str, list[str]]
Cells = dict[str, dict[str, Any]]


def snapshot(machine: Machine) -> Snapshot:
    program = Path(snapshot_program.__file__).read_text(encoding="utf-8")
    found: Snapshot = json.loads(machine.sh("python3 -", input=program))
    return found


def snapshots(of: Site) -> dict[str, Snapshot]:
    return {name: snapshot(machine) for name, machine in of.machines.items()}


STAYS: Mapping[str, re.Pattern[str]] = {
    "modules": re.compile(
        r"(?:algif_aead|af_alg|brd|crc\w+|esp4|iscsi_\w+|libiscsi\w*|scsi_\w+|sd_mod|target_core_\w+|xfrm_\w+"
        r"|aesni_intel|authenc|chacha\w+|cryptd|crypto_(?:null|simd)|echainiv|gcm|geniv|ghash\w+|libpoly1305|poly1305\w*|seqiv"
        r"|libchacha\w*|\w*curve25519\w*|(?:ip6_)?udp_tunnel|macsec|wireguard|nvmet?_\w+|nvmet"
        r"|ansi_cprng|drbg|jitterentropy_rng|sha3_generic|sg|t10_pi|tcm_\w+|configfs|uio|tun\w*)$"
    ),
    "configfs": re.compile(
        r"/sys/kernel/config/(?:target(?:/(?:core|dbroot|version|iscsi)\b.*)?|nvmet(?:/\w+)?)$"
    ),
    "mounts": re.compile(r"configfs /sys/kernel/config configfs "),
    "files in /etc": re.compile(r"/etc/multipath/wwids "),
    "files in /run": re.compile(r"/run/(?:iscsid\.pid|lock/iscsi|rtslib_backstore\.lock)"),
    # Of the module sg.
    "sysctls": re.compile(r"kernel\.sg-big-buff "),
}
"""What a run may leave, as section 4 of docs/machines.md says."""


OF_A_BOOT = re.compile(
    r" *link/ether|tmpfs /run |[a-z-]+\.service |/run/(?:adduser|systemd/ask-password-block)"
    r"|(?:fs\.epoll|kernel\.threads-max|net\.ipv4\.(?:inet_peer|tcp_(?:r?mem|ehash|max)|udp_mem)|user\.max_|vm\.)"
)
"""What differs from one boot to the next: a MAC address that is drawn, sizes that depend on the memory, what
the first boot alone does."""


def differences(
    before: dict[str, Snapshot], of: Site, but: re.Pattern[str] | None = None
) -> dict[str, list[str]]:
    """What has come (+) and gone (-) on each machine, once it has settled; empty if nothing has. What ``but``
    matches may, as one boots anew: then what an earlier run may leave is gone, too."""
    end = time.monotonic() + SETTLE_S * of.patience
    while True:
        changed: dict[str, list[str]] = {}
        for name, now in snapshots(of).items():
            for what, lines in before[name].items():
                stays = STAYS.get(what)
                new = (line for line in now[what] if line not in lines)
                came = [f"+{line}" for line in new if stays is None or not stays.match(line)]
                old = (line for line in lines if line not in now[what])
                gone = [f"-{line}" for line in old if not (but and stays and stays.match(line))]
                found = [line for line in came + gone if but is None or not but.match(line[1:])]
                if found:
                    changed[f"{name}: {what}"] = found
        if not changed or time.monotonic() > end:
            return changed
        time.sleep(2)


@contextlib.contextmanager
def as_before(of: Site, but: re.Pattern[str] | None = None) -> Iterator[None]:
    before = snapshots(of)
    yield
    changed = differences(before, of, but)
    assert not changed, json.dumps(changed, indent=1)


@contextlib.contextmanager
def meanwhile(machine: Machine, do: str, undo: str) -> Iterator[None]:
    machine.sh(do)
    try:
        yield
    finally:
        machine.sh(undo)


def newest_run(of: Site) -> Path:
    return max((of.folder / "results").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)


def cells(of: Site) -> Cells:
    """The records of the newest run, by cell."""
    return {file.stem: json.loads(file.read_bytes()) for file in (newest_run(of) / "cells").glob("*.json")}


def wired(of: Site, *words: str) -> tuple[str, ...]:
    """The words of a short run over the storage network."""
    return ("run", *TOGETHER, "--link", f"wired={of.wire}", *words)


def good(of: Site, said: Said) -> Cells:
    """The cells of a run that has to have gone well: each is ok, and what was protected is proved."""
    assert said.status == 0, said.text
    assert "stood still for 0.0 s" not in said.text, said.text
    found = cells(of)
    for name, cell in found.items():
        assert cell["status"] == "ok", f"{name}: {cell['reason']}"
        # Of several initiators each has its own path, and its proof.
        for part in cell["clients"] or [cell]:
            assert not cell["column"]["protection"] or proved(part), part["proof"]
    return found


def measured(of: Site, *words: str) -> Cells:
    """The cells of a short run over the storage network, which goes well and leaves nothing."""
    with as_before(of):
        return good(of, of.harness(*wired(of, *words, *ONE)))


def proved(cell: dict[str, Any]) -> bool:
    """Whether ESP carried what fio moved, and nothing was seen in clear."""
    moved = sum(cell[way]["bytes"] for way in ("read", "write") if cell.get(way))
    proof = cell["proof"]
    return bool(proof["cleartext_segments"] == 0 and proof["protected_bytes"] >= moved > 0)


def refused(said: Said, *words: str) -> str:
    """What a run that was refused said: one sentence and a hint, with these words in it."""
    assert said.status == 2 and "Traceback" not in said.text, said.text
    assert all(word in said.text for word in words), said.text
    return said.text


@contextlib.contextmanager
def started(of: Site, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on meanwhile. What it says is in ``started.log`` of the site's folder."""
    with (of.folder / "started.log").open("w") as log:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "text": True, "cwd": of.folder}
        process = subprocess.Popen(of.command(*words), stdout=log, stderr=log, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
            # The machines notice, and undo what is up: whoever compares them with that would err.
            time.sleep(UNDONE_S)


def wait_for(what: Callable[[], bool], for_what: str, *, deadline_s: float = 120) -> None:
    end = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < end, f"waited {deadline_s:g} s for {for_what}"
        time.sleep(0.2)


@contextlib.contextmanager
def measuring(of: Site, *words: str) -> Iterator[subprocess.Popen[str]]:
    results = of.folder / "results"
    before = set(results.glob("*"))

    def has_measured() -> bool:
        new = set(results.glob("*")) - before
        return any('"ok"' in file.read_text() for folder in new for file in folder.glob("cells/*.json"))

    with started(of, *words, *LONG) as process:
        ended = process.poll
        deadline_s = 120 * of.patience
        wait_for(lambda: has_measured() or ended() is not None, "a measured cell", deadline_s=deadline_s)
        assert process.poll() is None, printed(of)
        yield process


def ends(of: Site, run: subprocess.Popen[str], *statuses: int, within_s: float) -> None:
    assert run.wait(within_s * of.patience) in statuses, printed(of)


def interrupted(of: Site, run: subprocess.Popen[str], *statuses: int) -> None:
    run.send_signal(signal.SIGINT)
    ends(of, run, *statuses, within_s=120)


def printed(of: Site) -> str:
    return (of.folder / "started.log").read_text(encoding="utf-8")
