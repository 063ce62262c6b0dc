"""Is the verdict of `harness explain` the bottleneck that was put in? Cells with a known one, measured in
the lab.

    python bench/whom_to_blame.py                        # all of them, some 10 minutes
    python bench/whom_to_blame.py --only rate --only r2t
    python bench/whom_to_blame.py --save FILE.json       # keep the evidence: a unit test judges it again

Each experiment makes one thing far slower than all others and names it; everything else is as fast as the
lab has it. Rates, delays, disks, windows, R2Ts and depths are put in in virtual time, where nothing else
takes any; ciphers and the processor in real time. Printed is what was put in against what was said; the exit
status is 1 if less than 95 % agree.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tabulate import tabulate

from harness.explain import Explained, Limit, explain, sentence
from harness.explain.evidence import Evidence
from harness.model.telemetry import Telemetry
from harness.results.store import open_plans, open_probes, open_results

HARNESS = str(Path(sys.executable).with_name("harness"))
PART = 0.95
"""How many of the verdicts have to be what was put in."""

VIRTUAL = ("--virtual-time", "--repeats=1", "--runtime=0.2s", "--size=32M", "--ipsec=off")
LONG = (*VIRTUAL, "--runtime=2s")
"""Where a round trip is long, TCP's congestion window takes some to grow; the closed form is of what comes
then."""

REAL = ("--repeats=2", "--runtime=0.7s", "--size=32M")

JOBS = """
[global]
direct=1
time_based
runtime=1s
""" + "".join(
    f"[{way}-{size}{suffix}]\nrw=rand{way}\nbs={size}\n{engine}\n"
    for way in ("read", "write")
    for size in ("4k", "64k", "128k", "256k")
    for suffix, engine in (
        ("", "ioengine=psync"),
        *((f"-qd{depth}", f"ioengine=libaio\niodepth={depth}") for depth in (4, 8, 32)),
    )
)


def flash(page_us: float) -> str:
    return f'title = "put in"\n[flash]\npage_bytes = 262144\npage_us = {page_us}\npages_at_once = 1\n'


FAST_US, NEAR_US = 20, 200
"""Disks that are in nobody's way, the second compared with round trips of ms. Memory takes no time, so
locally it would move more than is worth waiting for."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run, in which every cell of ``links`` and ``workloads`` has the bottleneck ``limit``.

    ``links`` and ``disk`` are profiles as TOML, by name; an empty text is a link of the harness's own. Of the
    columns with a protection, those in ``blamed`` count; the others are there to compare with.
    """

    name: str
    limit: Limit
    links: Mapping[str, str]
    workloads: Sequence[str]
    words: Sequence[str] = VIRTUAL
    disk: str = flash(FAST_US)
    blamed: Sequence[str] = ("off",)
    proposals: Mapping[str, str] = field(default_factory=dict)
    core_part: float = 1.0
    """How much of a core the lab gets."""


def link(rate_bit_s: int | None = 10**10, delay_us: float = 10, **more: int) -> str:
    lines = ['title = "put in"', "emulated = true", f"delay_us = {delay_us}"]
    lines += [f"rate_bit_s = {rate_bit_s}"] if rate_bit_s else []
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in more.items())]) + "\n"


TRIPLE_DES = """
title = "3DES"
esp = "3des-sha256"
ike = "aes128-sha256-ecp256"
kernel_algorithms = ["cbc(des3_ede)", "hmac(sha256)"]
"""
"""A cipher that is several times as slow as what is in use today (RFC 2451)."""

MBIT = 10**6
BLOCKS = ("read-256k", "write-256k")
EXPERIMENTS = (
    Experiment(
        name="rate",
        limit=Limit.LINK,
        links={f"rate{rate}": link(rate * MBIT) for rate in (30, 100, 300)},
        workloads=(*BLOCKS, "read-128k-qd8", "write-128k-qd8"),
    ),
    Experiment(
        name="delay",
        limit=Limit.ROUND_TRIP,
        links={f"delay{ms}": link(delay_us=1000 * ms) for ms in (1, 5, 20)},
        workloads=("read-4k", "write-4k", "read-64k"),
        words=LONG,
        disk=flash(NEAR_US),
    ),
    Experiment(
        name="depth",
        limit=Limit.ROUND_TRIP,
        links={"long": link(10**9, delay_us=10_000)},
        workloads=("read-4k-qd4", "write-4k-qd4", "read-4k-qd32", "read-64k", "read-64k-qd4"),
        words=LONG,
        disk=flash(NEAR_US),
    ),
    Experiment(
        name="deep",
        limit=Limit.LINK,
        links={"long100": link(100 * MBIT, delay_us=5_000)},
        workloads=("read-128k-qd32", "write-64k-qd32"),
    ),
    Experiment(
        name="disk",
        limit=Limit.DEVICE,
        links={"10g": "", "far": link(10**9, delay_us=500)},
        workloads=("read-4k", "write-4k", *BLOCKS, "read-4k-qd8"),
        disk=flash(10_000),
    ),
    Experiment(
        name="window",
        limit=Limit.ROUND_TRIP,
        links={f"window{kib}": link(delay_us=2000, tcp_window_bytes=kib << 10) for kib in (16, 64)},
        workloads=(*BLOCKS, "read-128k-qd8", "write-128k-qd8"),
        words=LONG,
        disk=flash(NEAR_US),
    ),
    *(
        Experiment(
            name=f"r2t{kib}",
            limit=Limit.TRANSPORT,
            links={"middle": link(10**9, delay_us=500)},
            workloads=("write-256k", "write-128k"),
            words=(*VIRTUAL, f"--iscsi=MaxBurstLength={kib << 10}", f"--iscsi=FirstBurstLength={kib << 10}"),
        )
        for kib in (8, 16)
    ),
    Experiment(
        name="cipher",
        limit=Limit.CRYPTO,
        links={"wired:unshaped": ""},
        workloads=(*BLOCKS, "read-128k-qd8", "write-128k-qd8"),
        words=(*REAL, "--ipsec=off", "--ipsec=null-sha256", "--ipsec=3des-sha256"),
        proposals={"3des-sha256": TRIPLE_DES},
        blamed=("3des-sha256",),
    ),
    Experiment(
        name="processor",
        # Without protection, what the processor does is the lab's.
        limit=Limit.LAB,
        links={"wired:unshaped": ""},
        workloads=("read-4k-qd8", "write-4k-qd8", "read-4k-qd32", "write-4k-qd32"),
        words=(*REAL, "--ipsec=off"),
    ),
    Experiment(
        name="quota",
        # Without protection, what the processor does is the lab's.
        limit=Limit.LAB,
        links={"wired": ""},
        workloads=("read-4k-qd8", "write-4k-qd8", "read-4k-qd32", "write-4k-qd32"),
        words=(*REAL, "--ipsec=off", "--retries=0"),
        core_part=0.25,
    ),
)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A cell, and what was put in."""

    experiment: str
    injected: Limit
    evidence: Evidence


@contextlib.contextmanager
def held_down(part: float) -> Iterator[None]:
    """Leave the lab so much of its core (the machine's last, as ``testbeds.lab`` chooses it): others want as
    much."""
    core = str(max(os.sched_getaffinity(0)))
    spin = ["taskset", "-c", core, sys.executable, "-c", "while True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(round(1 / part) - 1):
            process = stack.enter_context(subprocess.Popen(spin))
            stack.callback(process.kill)
        yield


def measure(experiment: Experiment, folder: Path) -> list[Judged]:
    """Run one experiment, its results in ``folder``."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.fio").write_text(JOBS, encoding="utf-8")
    words = [f"--profile={folder / 'jobs.fio'}", "--link=local", f"--results={folder / 'results'}"]
    for name, text in experiment.links.items():
        if text:
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        words.append(f"--link={folder / f'{name}.toml' if text else name}")
    if "--virtual-time" in experiment.words:
        disk = folder / "disk.toml"
        disk.write_text(experiment.disk, encoding="utf-8")
        words.append(f"--disk={disk}")
    words += [f"--workload={name}" for name in experiment.workloads]
    (folder / "ipsec").mkdir()
    for name, text in experiment.proposals.items():
        (folder / "ipsec" / f"{name}.toml").write_text(text, encoding="utf-8")
    # Proposals of the user's are looked for where the command is run.
    command = [HARNESS, "run", *words, *experiment.words]
    with held_down(experiment.core_part):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{experiment.name}: {done.stdout}\n{done.stderr}")
    return judged(experiment, folder / "results")


def judged(experiment: Experiment, results: Path) -> list[Judged]:
    """The cells of an experiment that count."""
    records = open_results([results])
    if experiment.core_part < 1:
        # Who holds the core down was put in: to explain nothing of what others disturbed would hide it.
        records = [msgspec.structs.replace(record, telemetry=_alone(record.telemetry)) for record in records]
    cells = explain(records, open_plans([results]), open_probes([results]))
    return [
        Judged(experiment=experiment.name, injected=experiment.limit, evidence=cell.evidence)
        for cell in cells
        if not cell.evidence.column.is_local
        and cell.evidence.column.ipsec in experiment.blamed
        and cell.evidence.workload in experiment.workloads
    ]


def _alone(telemetry: Telemetry | None) -> Telemetry | None:
    return None if telemetry is None else msgspec.structs.replace(telemetry, others=())


def confusion(found: Sequence[tuple[Limit, Limit]]) -> str:
    """The table: a row for what was put in, a column for what was said."""
    counts = Counter(found)
    rows = [limit for limit in Limit if any(injected is limit for injected, _ in found)]
    said = [limit for limit in Limit if any(verdict is limit for _, verdict in found)]
    lines = [[str(row), *(counts[row, column] or "" for column in said)] for row in rows]
    agreed = sum(injected is verdict for injected, verdict in found)
    drawn = tabulate(lines, ["put in \\ said", *map(str, said)], tablefmt="simple")
    return f"{drawn}\n\n{agreed} of {len(found)} verdicts are what was put in ({agreed / len(found):.1%})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=[e.name for e in EXPERIMENTS], help="again for more"
    )
    parser.add_argument(
        "--results", type=Path, help="where the runs are kept; what is there is not run again"
    )
    parser.add_argument("--save", type=Path, help="write the evidence to this file")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        found = []
        for experiment in EXPERIMENTS:
            if chosen.only and experiment.name not in chosen.only:
                continue
            folder = (chosen.results or Path(scratch)) / experiment.name
            if (folder / "results").is_dir():
                found += judged(experiment, folder / "results")
            else:
                found += measure(experiment, folder)
    if chosen.save:
        chosen.save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    verdicts = []
    for cell in found:
        said = Explained.of(cell.evidence)
        verdicts.append((cell.injected, said.verdict.limited_by))
        mark = "  " if said.verdict.limited_by is cell.injected else "! "
        name = f"{cell.experiment}: {cell.evidence.name} {cell.evidence.workload}"
        print(f"{mark}{name}: {sentence(said)}")
    print("\n" + confusion(verdicts))
    agreed = sum(injected is verdict for injected, verdict in verdicts)
    return 0 if agreed >= PART * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
