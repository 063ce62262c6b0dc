"""Does what `harness explain` foretells come true? Each forecast is read, its change made and measured.

    python bench/remedies.py                       # all of them, some 25 minutes on a quiet machine
    python bench/remedies.py --only custom-nvme-tcp   # one series alone
    python bench/remedies.py --results FOLDER      # keep the runs there; what is there is not run again
    python bench/remedies.py --results FOLDER --anew  # today's forecasts of what was tried there
    python bench/remedies.py --store               # for docs/scores.md

A series measures cells over emulated links, and tries the forecast of each with `harness explain --try`. Half
of the cells, chosen by their names, were kept out while the model was made. Printed are said and measured of
each; it is a score, and no test: how sure a forecast is shows in many of them alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tabulate import tabulate

from bench.in_turns import HARNESS
from harness import report
from harness.analysis import stats
from harness.analysis.limit import Limit
from harness.explain import verdict
from harness.explain.remedy import Change
from harness.explain.text import Explained
from harness.questions.trial import tried as forecasts
from harness.questions.trial.section import SECTION
from harness.questions.trial.tried import Tried
from harness.results.measured import Measured
from harness.results.store import open_runs
from tools import scores

CLOSE = 1.15
"""A forecast is near within this factor."""

LINKS = ("wired", "10g", "wan", "fast-ethernet", "wifi")
WAYS = {"rand-read-4k": ("randread", "4k"), "seq-write-4k": ("write", "4k")} | {
    "seq-read-256k": ("read", "256k"),
    "rand-write-256k": ("randwrite", "256k"),
}
SMALL = {"seq-read-4k": ("read", "4k"), "rand-write-4k": ("randwrite", "4k")} | {
    "rand-read-8k": ("randread", "8k"),
    "seq-write-8k": ("write", "8k"),
}
"""More of those which a core limits once their queue is deep."""

DISK, DISK_US = "slow.toml", 4000
"""A disk that serves one command after another, each in that time."""

DEPTHS = (1, 2, 4)
JOBS = "[global]\ndirect=1\ntime_based\nruntime=700ms\n" + "".join(
    f"[{name}-depth{depth}]\nrw={rw}\nbs={bs}\n"
    + ("ioengine=psync\n" if depth == 1 else f"ioengine=libaio\niodepth={depth}\n")
    for name, (rw, bs) in (WAYS | SMALL).items()
    for depth in DEPTHS
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A run of base cells. In virtual time processors take none, and a single repeat is exact."""

    name: str
    words: Sequence[str]
    links: Sequence[str] = LINKS
    workloads: Sequence[str] = (
        *(f"{name}-depth1" for name in WAYS),
        "rand-read-4k-depth4",
        "rand-write-256k-depth4",
    )
    repeats: int = 2


SMALL_ALONE = tuple(f"{name}-depth1" for name in SMALL)
QUEUED = ("rand-read-4k-depth2", "seq-write-4k-depth2")
DEBIAN = ("--lab-kernel=debian", "--protect=off", "--protect=aes128gcm16", "--protect=aes128-sha256")

SERIES = (
    Series(name="debian", words=DEBIAN),
    Series(
        name="small-debian",
        words=DEBIAN,
        links=("wired",),
        workloads=(*SMALL_ALONE, *QUEUED),
    ),
    Series(
        name="disk",
        words=("--lab-kernel=custom", "--protect=off", "--protect=aes128gcm16", f"--disk={DISK}"),
        links=("wired",),
        workloads=(
            "rand-read-4k-depth1",
            "seq-write-4k-depth1",
            "seq-read-256k-depth1",
            "rand-write-256k-depth4",
        ),
    ),
    *(
        Series(
            name=f"virtual-{transport}",
            words=("--virtual-time", "--disk=ram", f"--transport={transport}")
            + ("--protect=off", "--protect=aes128gcm16"),
            links=("wired", "wan", "fast-ethernet"),
            repeats=1,
        )
        for transport in ("iscsi", "nvme-tcp")
    ),
    Series(
        name="virtual-modified",
        words=("--virtual-time", "--disk=ram", "--protect=off", "--transport=nvme-tcp", "--transport=nbd"),
        links=("wan:rtt=5ms", "fast-ethernet:rtt=1ms", "wired:rate=200M"),
        repeats=1,
    ),
    *(
        Series(
            name=f"{name}-{transport}",
            words=("--lab-kernel=custom", f"--transport={transport}")
            + tuple(f"--protect={each}" for each in ("off", "aes128gcm16", "wireguard")),
            links=links,
            workloads=workloads,
        )
        for transport in ("iscsi", "nvme-tcp")
        for name, links, workloads in (
            (
                "custom",
                ("wired", "wan", "fast-ethernet"),
                (*(f"{name}-depth1" for name in WAYS if name != "rand-write-256k"), "rand-write-256k-depth4"),
            ),
            ("queue", ("wired",), QUEUED),
            *([("small", ("wired",), SMALL_ALONE)] if transport == "nvme-tcp" else []),
        )
    ),
)


BY_LINK = ("change", "link", "tried", "within 15 %", "within the interval", "forecast / measured")
EACH = (
    *("series", "column", "workload", "change", "before", "forecast", "measured", "forecast/measured"),
    *("limit after the change", "kept out"),
)


@dataclass(frozen=True)
class Scored:
    """A forecast that was tried; ``column`` is as in the table, ``then`` what was to limit afterwards."""

    series: str
    column: str
    then: Limit
    tried: Tried

    @property
    def is_close(self) -> bool:
        return self.off <= CLOSE

    @property
    def off(self) -> float:
        return max(self.tried.error, 1 / self.tried.error)

    @property
    def half_width(self) -> float:
        return (self.tried.most_mb_s - self.tried.least_mb_s) / 2 / self.tried.said_mb_s

    @property
    def is_kept_out(self) -> bool:
        """Whether a cell was kept out while the model was made: half of them, by their names."""
        return zlib.crc32(f"{self.column} {self.tried.forecast.workload}".encode()) % 2 == 1


def tried(series: Series, folder: Path, *, anew: bool = False) -> list[Scored]:
    """Measure a series and try what is forecast of it, unless that is there; ``anew``: with what would be
    forecast of the same changes now, without those that would not."""
    base = folder / series.name
    if not base.is_dir():
        made = base.with_name(f"{base.name}.part")
        made.mkdir(parents=True)
        jobs, disk = made / "jobs.fio", made / DISK
        jobs.write_text(JOBS, encoding="utf-8")
        disk.write_text(
            f'title = "slow"\n[flash]\npage_bytes = 262144\npage_us = {DISK_US}\npages_at_once = 1\n',
            encoding="utf-8",
        )
        words = [
            f"--profile={jobs}",
            f"--repeats={series.repeats}",
            f"--results={made / 'results'}",
            "--link=local",
        ]
        words += [word.replace(DISK, str(disk)) for word in series.words]
        words += [f"--link={name}" for name in series.links]
        _harness("run", *words, *(f"--workload={name}" for name in series.workloads))
        (run,) = open_runs([made / "results"])
        _harness("explain", "--try", str(run.path))
        made.rename(base)
    of = {
        (cell.evidence.column, cell.evidence.workload): cell
        for run in open_runs([base / "results"])
        if SECTION.name not in run.load_plan().sections
        for cell in report.load([run.path]).explained
    }
    found = []
    for each in forecasts.stored(Measured.read([base / "results"])):
        cell = of[each.forecast.column, each.forecast.workload]
        change = verdict.forecast(cell.evidence, each.forecast.step) if anew else cell.verdict.change
        if change is not None:
            again = _anew(cell, change, each) if anew else each
            found.append(Scored(series.name, cell.evidence.name, change.limited_by, again))
    return found


def _anew(cell: Explained, change: Change, was: Tried) -> Tried:
    """What was tried, next to another forecast of it."""
    now = was.now_mb_s / was.forecast.before_mb_s
    rate = cell.rates(change.each_ns).times(now)
    return msgspec.structs.replace(
        was, said_mb_s=rate.mid, least_mb_s=rate.low, most_mb_s=rate.high, is_within=rate.has(was.mb_s)
    )


def _harness(*words: str) -> None:
    done = subprocess.run(
        [*HARNESS, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(f"{' '.join(words)}: {done.stderr[-2000:]}", file=sys.stderr)


def summary(found: Sequence[Scored], name: str) -> str:
    """One line: how many there are, close, covered, and how far the worst is."""
    if not found:
        return f"{name}: none"
    close, covered = (
        sum(flags) / len(found)
        for flags in zip(*((one.is_close, one.tried.is_within) for one in found), strict=True)
    )
    half = stats.median([one.half_width for one in found])
    return (
        f"{name}: {len(found)}, within 15 %: {close:.0%}, worst by {max(one.off for one in found):.2f}, "
        f"measured within the interval: {covered:.0%}, median half-width {half:.0%}"
    )


def by_link(found: Sequence[Scored]) -> list[list[str]]:
    """A row for each kind of change on each link."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in found:
        groups.setdefault((one.tried.forecast.step.kind, one.tried.forecast.column.link), []).append(one)
    return [
        [
            kind,
            link,
            str(len(those)),
            str(sum(one.is_close for one in those)),
            str(sum(one.tried.is_within for one in those)),
            f"{min(one.tried.error for one in those):.2f} to {max(one.tried.error for one in those):.2f}",
        ]
        for (kind, link), those in sorted(groups.items())
    ]


def table(found: Sequence[Scored]) -> list[list[str]]:
    """A row for each forecast, MB/s."""
    return [
        [
            one.series,
            one.column,
            one.tried.forecast.workload,
            *forecasts.rows([one.tried])[0][1:6],
            one.then,
            "kept out" if one.is_kept_out else "",
        ]
        for one in found
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=[series.name for series in SERIES])
    parser.add_argument(
        "--results", type=Path, help="where the runs are kept; what is there is not run again"
    )
    parser.add_argument("--anew", action="store_true", help="of kept runs: what would be forecast now")
    parser.add_argument("--store", action="store_true", help="store the tables for docs/scores.md")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (chosen.results or Path(scratch)).resolve()
        measured = [
            one
            for series in SERIES
            if not chosen.only or series.name in chosen.only
            for one in tried(series, folder, anew=chosen.anew)
        ]
    found = [one for one in measured if not one.tried.is_disturbed]
    of_core = [one for one in found if one.then is Limit.CPU]
    said = [
        summary(found, "all"),
        summary([one for one in found if one.is_kept_out], "kept out while the model was made"),
        summary(of_core, "where the processor is next"),
        f"left out, because other programs disturbed one of the two cells: {len(measured) - len(found)}",
    ]
    for name, heads, rows in (
        ("forecasts-each", EACH, table(found)),
        ("forecasts", BY_LINK, by_link(found)),
    ):
        print(tabulate(rows, heads, disable_numparse=True), end="\n\n")
        if chosen.store:
            scores.store(name, "python bench/remedies.py", heads, rows, said if name == "forecasts" else ())
    print("\n".join(said))


if __name__ == "__main__":
    main()
