"""Is the verdict of `harness explain` the bottleneck that was put in? Cells with a known one, measured in
the lab.

    python bench/whom_to_blame.py                        # all of them, some 10 minutes
    python bench/whom_to_blame.py --only rate --only r2t
    python bench/whom_to_blame.py --save FILE.json       # keep the evidence: a unit test judges it again
    python bench/whom_to_blame.py --one-end             # other cells, judged with what the initiator sees

Each experiment makes one thing far slower than all others and names it; everything else is as fast as the
lab has it. Rates, delays, disks, windows, R2Ts and depths are put in in virtual time, where nothing else
takes any; ciphers and the processor in real time. Printed is what was put in against what was said; the exit
status is 1 if less than 95 % agree.

With `--one-end` all is taken away that nobody at the initiator would know: the column local, the target's
counters, what the profiles say of delay and window, and of "narrow" the rate. Then the exit status is 1 if
less than 90 % of the answers are right, if less than 60 % of the cells have one, or if a wrong one is of high
confidence.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tabulate import tabulate

from harness.analysis.limit import Limit
from harness.explain import explain
from harness.explain.evidence import Evidence
from harness.explain.text import Explained, sentence
from harness.explain.verdict import Confidence
from harness.model import BackingKind, Plan, Record
from harness.model.telemetry import Telemetry
from harness.results.store import open_plans, open_probes, open_results
from tools.scores import store

HARNESS = str(Path(sys.executable).with_name("harness"))
RIGHT, ANSWERED = 0.9, 0.6
"""With what one end sees: how many answers have to be right, and how many cells have to have one."""

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
    f"[{order}{way}-{size}{suffix}]\nrw={'' if order else 'rand'}{way}\nbs={size}\n{engine}\n"
    for order, way in (("", "read"), ("", "write"), ("seq-", "read"))
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
    companions: Sequence[str] = ()
    """What else of a short sweep there is, whose own limit was not put in."""
    words: Sequence[str] = VIRTUAL
    disk: str = flash(FAST_US)
    blamed: Sequence[str] = ("off",)
    proposals: Mapping[str, str] = field(default_factory=dict)
    core_part: float = 1.0
    """How much of a core the lab gets."""
    target_part: float = 1.0
    """How much of the time the target's kernel runs, in turns of ``TURN_S``."""
    again: str = ""
    """The experiment whose cells are the second repeat: what a cache would have answered."""
    of: str = ""
    """The experiment whose records are judged, with a rate that this end does not know."""


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
        workloads=("read-4k-qd4", "write-4k-qd4", "read-4k-qd32", "read-64k", "read-4k-qd8"),
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
        limit=Limit.WINDOW,
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


def moving(rpm: int, mb_s: int) -> str:
    return (
        f'title = "put in"\n[moving]\nrpm = {rpm}\nrate_bytes_s = {mb_s * 10**6}\ncommand_us = 50\n'
        "track_seek_us = 800\naverage_seek_us = 8500\ncapacity_bytes = 320_000_000_000\n"
        "read_ahead_bytes = 16_000_000\n"
    )


LAN = {"lan": link(10**9, delay_us=50)}
SEEN = (*VIRTUAL, "--probes")
RANDOM = ("read-4k", "read-64k", "read-256k", "read-4k-qd8", "read-256k-qd8")
LARGE = ("read-256k", "seq-read-256k", "read-256k-qd8", "read-64k-qd8")
SEQUENTIAL = ("seq-read-4k", "seq-read-256k")
ONE_END = (
    *(
        Experiment(
            name=f"moving{rpm}",
            limit=Limit.DEVICE,
            links=LAN,
            workloads=(*RANDOM, "seq-read-256k"),
            companions=("seq-read-4k",),
            words=SEEN,
            disk=moving(rpm, mb_s),
        )
        for rpm, mb_s in ((10_000, 85), (5900, 35))
    ),
    Experiment(
        name="flash",
        limit=Limit.DEVICE,
        links=LAN,
        workloads=(*RANDOM, "seq-read-256k"),
        words=SEEN,
        disk=flash(8000),
    ),
    Experiment(
        name="slow-link",
        limit=Limit.LINK,
        links={f"slow{rate}": link(rate * MBIT, delay_us=50) for rate in (50, 100, 200)},
        workloads=LARGE,
        words=SEEN,
    ),
    Experiment(
        name="narrow",
        limit=Limit.LINK,
        links={f"slow{rate}": "" for rate in (50, 100, 200)},
        workloads=LARGE,
        of="slow-link",
    ),
    Experiment(
        name="small-window",
        limit=Limit.WINDOW,
        links={f"window{kib}": link(delay_us=1500, tcp_window_bytes=kib << 10) for kib in (24, 48)},
        workloads=(*LARGE, "read-128k-qd8", "read-128k-qd32"),
        words=(*LONG, "--probes"),
        disk=flash(NEAR_US),
    ),
    *(
        Experiment(
            name=f"target-core{part}",
            limit=Limit.CPU,
            links=LAN,
            workloads=(*RANDOM, *SEQUENTIAL),
            words=(*REAL, "--kernels=per-host", "--lab-kernel=custom", "--ipsec=off", "--retries=0"),
            target_part=part / 100,
        )
        for part in (10, 25)
    ),
    Experiment(
        name="memory",
        limit=Limit.UNKNOWN,
        links=LAN,
        workloads=RANDOM,
        words=SEEN,
        disk='title = "put in"\n',
    ),
    *(
        Experiment(
            name=f"cache{number}",
            limit=Limit.UNKNOWN,
            links=LAN,
            workloads=RANDOM,
            of=disk,
            again="memory",
        )
        for number, disk in enumerate(("moving10000", "moving5900", "flash"))
    ),
)
"""Those of ``--one-end``; "memory" is judged only as what a cache answers."""

BEYOND = ("narrow",)
"""Nobody at one end can know it without another measurement, so the goals are without it."""

TURN_S = 3e-4
"""Several of them for a command, and hardly one for a ping, as with a slow core."""


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


@contextlib.contextmanager
def slowed(part: float, results: Path) -> Iterator[None]:
    """Let the target's kernel, of those that this process has started, run for so much of the time, in turns
    of ``TURN_S``, as a slow core works slowly on everything; from the first cell on, for a lab has to boot in
    time."""
    done = threading.Event()

    def take_turns() -> None:
        with contextlib.suppress(PermissionError):  # else the turns are longer where the machine is busy
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        found: int | None = None
        while not done.is_set():
            if found is None:
                found = kernel_of("target", os.getpid()) if any(results.glob("*/raw/*")) else None
                time.sleep(0.1)
                continue
            with contextlib.suppress(ProcessLookupError):
                for signal_number, turn_s in ((signal.SIGSTOP, 1 - part), (signal.SIGCONT, part)):
                    os.kill(found, signal_number)
                    time.sleep(turn_s * TURN_S)
                continue
            found = None

    taking = threading.Thread(target=take_turns)
    if part < 1:
        taking.start()
    try:
        yield
    finally:
        done.set()
        if part < 1:
            taking.join()


def kernel_of(host: str, ancestor: int) -> int | None:
    """The process of a host's user-mode kernel below ``ancestor``."""
    parents: dict[int, int] = {}
    kernels = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid, words = int(folder.name), (folder / "cmdline").read_bytes().split(b"\0")
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            is_kernel = words[0].endswith(b"/linux")
            if is_kernel and any(
                w.startswith(b"uml_dir=") and w.endswith(f"/{host}/".encode()) for w in words
            ):
                kernels.append(pid)
    for pid in sorted(kernels):
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor and parents[pid] not in kernels:
            return pid
    return None


def measure(experiment: Experiment, folder: Path) -> None:
    """Run one experiment, its results in ``folder``."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.fio").write_text(JOBS, encoding="utf-8")
    words = [f"--profile={folder / 'jobs.fio'}", f"--results={folder / 'results'}"]
    words += [] if experiment in ONE_END else ["--link=local"]
    for name, text in experiment.links.items():
        if text:
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        words.append(f"--link={folder / f'{name}.toml' if text else name}")
    if "--virtual-time" in experiment.words:
        disk = folder / "disk.toml"
        disk.write_text(experiment.disk, encoding="utf-8")
        words.append(f"--disk={disk}")
    words += [f"--workload={name}" for name in (*experiment.workloads, *experiment.companions)]
    (folder / "ipsec").mkdir()
    for name, text in experiment.proposals.items():
        (folder / "ipsec" / f"{name}.toml").write_text(text, encoding="utf-8")
    # Proposals of the user's are looked for where the command is run.
    command = [HARNESS, "run", *words, *experiment.words]
    with held_down(experiment.core_part), slowed(experiment.target_part, folder / "results"):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{experiment.name}: {done.stdout}\n{done.stderr}")


def judged(experiment: Experiment, results: Path) -> list[Judged]:
    """The cells of an experiment that count."""
    records = list(open_results([results]))
    if experiment.core_part < 1:
        # Who holds the core down was put in: to explain nothing of what others disturbed would hide it.
        records = [msgspec.structs.replace(record, telemetry=_alone(record.telemetry)) for record in records]
    cells = explain(records, open_plans([results]), open_probes([results]))
    return _that_count(experiment, cells)


def judged_at_one_end(experiment: Experiment, results: Path, again: Path | None) -> list[Judged]:
    """The same with what the initiator knows."""
    records, plans = list(open_results([results])), open_plans([results])
    if again is not None:
        records += [
            msgspec.structs.replace(
                each,
                run_id=records[0].run_id,
                setting=records[0].setting,
                repeat=2,
                started_unix_s=each.started_unix_s + 10**9,
            )
            for each in open_results([again])
        ]
    plans = {run: _reached(plan, knows_rate=not experiment.of or bool(again)) for run, plan in plans.items()}
    cells = explain([_seen(each) for each in records if each.column.link != "local"], plans)
    return _that_count(experiment, cells)


def _reached(plan: Plan, *, knows_rate: bool) -> Plan:
    """A plan whose links are the initiator's interface: what is behind it is not known."""
    links = {
        name: msgspec.structs.replace(
            profile,
            emulated=False,
            interface="eth0",
            delay_us=0.0,
            tcp_window_bytes=None,
            rate_bit_s=profile.rate_bit_s if knows_rate else 10**10,
        )
        for name, profile in plan.links.items()
    }
    storage = msgspec.structs.replace(
        plan.storage, disk=None, backing=msgspec.structs.replace(plan.storage.backing, kind=BackingKind.BLOCK)
    )
    return msgspec.structs.replace(plan, links=links, storage=storage)


def _seen(record: Record) -> Record:
    """A record without what is counted at the target. In virtual time processors idle, so one kernel of both
    ends is as good as the initiator's."""
    found = record.telemetry or Telemetry()
    own = [use for use in found.processors if "initiator" in use.hosts]
    telemetry = msgspec.structs.replace(
        found,
        emulation_round_trip_ns=None,
        processors=tuple(msgspec.structs.replace(use, hosts=("initiator",)) for use in own),
        interfaces=tuple(use for use in found.interfaces if use.host == "initiator"),
        background_load=(),
    )
    return msgspec.structs.replace(
        record,
        emulated=False,
        telemetry=telemetry,
        setting=msgspec.structs.replace(record.setting, disk=""),
    )


def _that_count(experiment: Experiment, cells: Sequence[Explained]) -> list[Judged]:
    return [
        Judged(experiment=experiment.name, injected=experiment.limit, evidence=cell.evidence)
        for cell in cells
        if not cell.evidence.column.is_local
        and cell.evidence.column.ipsec in experiment.blamed
        and cell.evidence.workload in experiment.workloads
    ]


def _alone(telemetry: Telemetry | None) -> Telemetry | None:
    return None if telemetry is None else msgspec.structs.replace(telemetry, background_load=())


class Score(enum.StrEnum):
    """``half``: it is the target, but which part of it is not said."""

    RIGHT = "right"
    HALF = "half"
    ABSTAINED = "abstained"
    WRONG = "wrong"


def scored(injected: Limit, said: Explained) -> Score:
    """How right a verdict of one end is. With UNKNOWN put in, a cache answered."""
    verdict = said.verdict
    if injected is Limit.UNKNOWN:
        if verdict.limited_by is Limit.DEVICE:
            return Score.WRONG
        return Score.RIGHT if "cache" in verdict.doubt else Score.ABSTAINED
    if verdict.limited_by is injected:
        return Score.RIGHT
    if verdict.limited_by is Limit.UNKNOWN:
        return Score.ABSTAINED
    is_half = verdict.limited_by is Limit.TARGET and injected in (Limit.DEVICE, Limit.CPU)
    return Score.HALF if is_half else Score.WRONG


ONE_END_COLUMNS = ("injected", "cells", *Score, "confidence")


def scores(found: Sequence[tuple[str, Score, Confidence]]) -> list[list[str]]:
    """The rows: how many of each kind are how right, and how sure they were."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in found))
    rows = []
    for kind in (*kinds, "all"):
        of = [(score, sure) for each, score, sure in found if kind in (each, "all")]
        counts = Counter(score for score, _ in of)
        sure = Counter(f"{score} {sure}" for score, sure in of if score in (Score.RIGHT, Score.WRONG))
        words = ", ".join(f"{count} {name}" for name, count in sorted(sure.items()))
        rows.append([kind, str(len(of)), *(str(counts[score]) for score in Score), words])
    return rows


def is_good_enough(found: Sequence[tuple[str, Score, Confidence]]) -> bool:
    """Whether the goals of one end are met."""
    found = [each for each in found if each[0] not in BEYOND]
    counts = Counter(score for _, score, _ in found)
    answers = counts[Score.RIGHT] + counts[Score.WRONG]
    is_sure_and_wrong = any((score, sure) == (Score.WRONG, Confidence.HIGH) for _, score, sure in found)
    return (
        counts[Score.RIGHT] >= RIGHT * answers and answers >= ANSWERED * len(found) and not is_sure_and_wrong
    )


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
        "--only", action="append", choices=[e.name for e in (*EXPERIMENTS, *ONE_END)], help="again for more"
    )
    parser.add_argument(
        "--results", type=Path, help="where the runs are kept; what is there is not run again"
    )
    parser.add_argument("--one-end", action="store_true", help="with what the initiator alone sees")
    parser.add_argument("--store", action="store_true", help="with --one-end: the table for docs/scores.md")
    parser.add_argument("--save", type=Path, help="write the evidence to this file")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        found = []
        place = chosen.results or Path(scratch)
        for experiment in ONE_END if chosen.one_end else EXPERIMENTS:
            if chosen.only and experiment.name not in chosen.only:
                continue
            results = place / (experiment.of or experiment.name) / "results"
            if not results.is_dir():
                measure(experiment, results.parent)
            again = place / experiment.again / "results" if experiment.again else None
            if not chosen.one_end:
                found += judged(experiment, results)
            elif experiment.name != "memory":
                found += judged_at_one_end(experiment, results, again)
    if chosen.save:
        chosen.save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    verdicts, of_one_end = [], []
    for cell in found:
        said = Explained.of(cell.evidence)
        verdicts.append((cell.injected, said.verdict.limited_by))
        score = scored(cell.injected, said)
        of_one_end.append((cell.experiment.rstrip("0123456789"), score, said.verdict.confidence))
        mark = "  " if said.verdict.limited_by is cell.injected else "! "
        mark = f"{score}: " if chosen.one_end else mark
        name = f"{cell.experiment}: {cell.evidence.name} {cell.evidence.workload}"
        print(f"{mark}{name}: {sentence(said)}")
    if chosen.one_end:
        rows = scores(of_one_end)
        print("\n" + tabulate(rows, ONE_END_COLUMNS))
        if chosen.store:
            store("one-end", "python bench/whom_to_blame.py --one-end", ONE_END_COLUMNS, rows)
        return 0 if is_good_enough(of_one_end) else 1
    print("\n" + confusion(verdicts))
    agreed = sum(injected is verdict for injected, verdict in verdicts)
    return 0 if agreed >= PART * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
