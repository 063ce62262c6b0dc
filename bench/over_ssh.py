"""The document's matrix over SSH and without, in turns on one kernel: what the connection costs.

    python bench/over_ssh.py

Over SSH, the target is a network namespace with an sshd of its own, behind a cable that is there before the
run; directly, the harness makes that cable itself (`--testbed host`). Both are shaped alike. The runs are
made in the lab, ABBA; printed is the ratio of each cell's medians, and of all cells together.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
PROFILE = 'title = "as the cable"\nemulated = true\nrate_bit_s = 300_000_000\ndelay_us = 100\n'
NETEM = "limit 10000 delay 100us rate 295320676bit"
"""What ``links.netem`` makes of the profile."""

SSH = ("--target=ssh://nas", "--initiator=local", "--link=wired=nic0")
DIRECT = ("--testbed=host", "--link=/root/cable.toml")
WORDS = ("--backing=ramdisk", "--size=32M", "--link=local", "--ipsec=both", "--repeats=2", "--runtime=0.5s")


def figure(record: dict[str, Any]) -> float:
    """MB/s."""
    io = record["read"] or record["write"]
    return float(io["bytes"] / io["runtime_ns"] * 1e3)


def inside() -> None:
    sys.path.insert(0, str(PROJECT))
    from tests.lab.inside import nas
    from tests.lab.inside.kernel import RESULTS, harness, newest_run, records

    Path("/root/cable.toml").write_text(PROFILE, encoding="utf-8")
    nas.make_network()
    nas.shape(NETEM)
    nas.make_keys()
    found: dict[tuple[str, ...], dict[str, list[float]]] = {SSH: {}, DIRECT: {}}
    with nas.sshd():
        for way in (SSH, DIRECT, DIRECT, SSH):
            harness("run", *way, *WORDS, f"--results={RESULTS}")
            for key, record in records(newest_run()).items():
                name = key.replace("cable", "wired").rpartition(".r")[0]
                found[way].setdefault(name, []).append(figure(record))
    ratios = []
    for name in sorted(found[SSH]):
        ssh, direct = (statistics.median(found[way][name]) for way in (SSH, DIRECT))
        ratios.append(ssh / direct)
        print(f"{name:42} {ssh:9.2f} / {direct:9.2f} MB/s = {ratios[-1]:.3f}")
    print(f"over SSH / directly: {statistics.geometric_mean(ratios):.3f}, {len(ratios)} cells")


def main() -> int:
    if sys.argv[1:] == ["--inside"]:
        inside()
        return 0
    program = [sys.executable, __file__, "--inside"]
    path = f"PATH={os.environ['PATH']}:/usr/sbin:/sbin"
    harness = str(Path(sys.executable).with_name("harness"))
    return subprocess.run([harness, "lab", "exec", "--memory", "512", "--", "env", path, *program]).returncode


if __name__ == "__main__":
    sys.exit(main())
