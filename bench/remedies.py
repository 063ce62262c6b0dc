"""Does what `harness explain` foretells come true? Each forecast is read, its change made and measured.

    python bench/remedies.py                       # all of them, some 15 minutes on a quiet machine
    python bench/remedies.py --only own-nvme-tcp   # one series alone
    python bench/remedies.py --results FOLDER      # keep the runs there; what is there is not run again
    python bench/remedies.py --markdown            # the table as docs/explain.md has it

A series measures cells over emulated links, reads the forecast of each, and measures the same cells with
the change: a deeper queue, a link of twice the rate, a disk that takes half the time. At most ten forecasts
of one kind of change on one link count. Half of the cells, chosen by their names, were kept out while the
model was made. Printed are said and measured of each; the exit status is 1 if the targets below are missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tabulate import tabulate

from bench.in_turns import HARNESS
from harness.analysis import stats
from harness.explain import Explained, explain
from harness.explain.remedy import ChangeKind, ChangeStep, LimitingResource
from harness.parse.profiles import load_link
from harness.results.store import open_plans, open_probes, open_results

CLOSE, FAR, PART = 1.15, 1.3, 0.9
"""This part of the forecasts has to be right within the first factor, and all within the second."""

MOST = 10
"""Of one kind of change on one link."""

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

DEPTHS = (1, 2, 4, 8, 16, 32)
JOBS = "[global]\ndirect=1\ntime_based\nruntime=700ms\n" + "".join(
    f"[{name}-depth{depth}]\nrw={rw}\nbs={bs}\n"
    + ("ioengine=psync\n" if depth == 1 else f"ioengine=libaio\niodepth={depth}\n")
    for name, (rw, bs) in (WAYS | SMALL).items()
    for depth in DEPTHS
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A run of base cells."""

    name: str
    words: Sequence[str]
    links: Sequence[str] = LINKS
    workloads: Sequence[str] = (
        *(f"{name}-depth1" for name in WAYS),
        "rand-read-4k-depth4",
        "rand-write-256k-depth4",
    )


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
        words=("--lab-kernel=own", "--protect=off", "--protect=aes128gcm16", f"--disk={DISK}"),
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
            name=f"{name}-{transport}",
            words=("--lab-kernel=own", f"--transport={transport}")
            + tuple(f"--protect={each}" for each in ("off", "aes128gcm16", "wireguard")),
            links=links,
            workloads=workloads,
        )
        for transport in ("iscsi", "nvme-tcp")
        for name, links, workloads in (
            (
                "own",
                ("wired", "wan", "fast-ethernet"),
                (*(f"{name}-depth1" for name in WAYS if name != "rand-write-256k"), "rand-write-256k-depth4"),
            ),
            ("queue", ("wired",), QUEUED),
            *([("small", ("wired",), SMALL_ALONE)] if transport == "nvme-tcp" else []),
        )
    ),
)


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast, and what was measured with its change made: all in MB/s."""

    series: str
    link: str
    column: str
    workload: str
    kind: ChangeKind
    what: str
    then: LimitingResource
    before: float
    said: float
    least: float
    most: float
    measured: float

    @property
    def error(self) -> float:
        """Said / measured."""
        return self.said / self.measured

    @property
    def is_close(self) -> bool:
        return max(self.error, 1 / self.error) <= CLOSE

    @property
    def is_covered(self) -> bool:
        return self.least <= self.measured <= self.most

    @property
    def half_width(self) -> float:
        return (self.most - self.least) / 2 / self.said

    @property
    def is_kept_out(self) -> bool:
        return kept_out(self.column, self.workload)


def kept_out(column: str, workload: str) -> bool:
    """Whether a cell was kept out while the model was made: half of them, by their names."""
    return zlib.crc32(f"{column} {workload}".encode()) % 2 == 1


def run(
    folder: Path,
    series: Series,
    links: Sequence[str],
    workloads: Sequence[str],
    step: ChangeStep | None = None,
) -> None:
    """One run into ``folder``, unless it is there. ``step`` changes links and disk, not their names."""
    if folder.is_dir():
        return
    made = folder.with_name(f"{folder.name}.part")
    made.mkdir(parents=True)
    jobs = made / "jobs.fio"
    jobs.write_text(JOBS, encoding="utf-8")
    kind, value = (step.kind, step.value) if step is not None else (None, 1.0)
    page_us = round(DISK_US * (value if kind is ChangeKind.DEVICE else 1))
    (made / DISK).write_text(
        f'title = "slow"\n[flash]\npage_bytes = 262144\npage_us = {page_us}\npages_at_once = 1\n',
        encoding="utf-8",
    )
    words = [word.replace(DISK, str(made / DISK)) for word in series.words]
    words += [] if folder.name != series.name else ["--link=local"]
    for name in links:
        words.append(f"--link={_faster(made, name, 2) if kind is ChangeKind.RATE else name}")
    command = [*HARNESS, "run", f"--profile={jobs}", *words, *(f"--workload={name}" for name in workloads)]
    command += ["--repeats=2", f"--results={made / 'results'}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if not (made / "results").is_dir():
        sys.exit(f"{folder.name}: {done.stderr[-2000:]}")
    made.rename(folder)


def _faster(folder: Path, name: str, rate: int) -> Path:
    """A profile of the same name with so many times the rate."""
    profile = load_link(name)
    assert profile.rate_bit_s is not None
    lines = {
        "title": profile.title,
        "emulated": True,
        "rate_bit_s": rate * profile.rate_bit_s,
        "delay_us": profile.delay_us,
        "mtu_bytes": profile.mtu_bytes,
        "duplex": str(profile.duplex),
        "frame_overhead_bytes": profile.frame_overhead_bytes,
    }
    made = folder / f"{name}.toml"
    made.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in lines.items()), encoding="utf-8")
    return made


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def explained(folder: Path) -> dict[tuple[str, str], Explained]:
    """The cells of a run by column and workload."""
    results = [folder / "results"]
    cells = explain(open_results(results), open_plans(results), open_probes(results))
    return {(cell.evidence.name, cell.evidence.workload): cell for cell in cells}


def tried(series: Series, folder: Path) -> Iterator[Tried]:
    """Measure a series, make each change that was forecast, and measure again."""
    base = folder / series.name
    run(base, series, series.links, series.workloads)
    wanted: dict[ChangeStep, list[Explained]] = {}
    counts: dict[tuple[ChangeKind, str], int] = {}
    cells = sorted(explained(base).items(), key=lambda item: zlib.crc32(f"{item[0]}".encode()))
    for _, cell in cells:
        change = cell.verdict.change
        if change is None or cell.mb_s is None or cell.evidence.column.is_local:
            continue
        place = (change.step.kind, cell.evidence.column.link)
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= MOST:
            wanted.setdefault(change.step, []).append(cell)
    for step, those in wanted.items():
        yield from _tried(series, base, step, those)


def _tried(series: Series, base: Path, step: ChangeStep, cells: Sequence[Explained]) -> Iterator[Tried]:
    names = {cell.evidence.workload: _named(cell.evidence.workload, step) for cell in cells}
    links = list(dict.fromkeys(cell.evidence.column.link for cell in cells))
    folder = base.with_name(f"{base.name}-{step.kind}-{step.value:.4g}")
    run(folder, series, links, sorted(set(names.values())), step)
    after = explained(folder)
    for cell in cells:
        found = after.get((cell.evidence.name, names[cell.evidence.workload]))
        change = cell.verdict.change
        if found is None or found.mb_s is None or change is None or cell.mb_s is None:
            print(f"not measured: {series.name} {cell.evidence.name} {cell.evidence.workload} {step.words}")
            continue
        yield Tried(
            series=series.name,
            link=cell.evidence.column.link,
            column=cell.evidence.name,
            workload=cell.evidence.workload,
            kind=step.kind,
            what=change.what,
            then=change.then,
            before=cell.mb_s,
            said=cell.rate(change.time_ns) or 0.0,
            least=cell.rate(change.most_ns) or 0.0,
            most=cell.rate(change.least_ns) or 0.0,
            measured=found.mb_s,
        )


def _named(workload: str, step: ChangeStep) -> str:
    """The workload with a deeper queue, if that is the step."""
    name, _, _ = workload.rpartition("-depth")
    return f"{name}-depth{step.value:.0f}" if step.kind is ChangeKind.DEPTH else workload


def summary(found: Sequence[Tried], name: str) -> str:
    """One line: how many there are, close, covered, and how far the worst is."""
    if not found:
        return f"{name}: none"
    close, covered = (
        sum(flags) / len(found)
        for flags in zip(*((one.is_close, one.is_covered) for one in found), strict=True)
    )
    worst = max(max(one.error, 1 / one.error) for one in found)
    half = stats.median([one.half_width for one in found])
    return (
        f"{name}: {len(found)}, within 15 %: {close:.0%}, worst by {worst:.2f}, "
        f"measured within the interval: {covered:.0%}, median half-width {half:.0%}"
    )


def by_link(found: Sequence[Tried], style: str) -> str:
    """A line for each kind of change on each link."""
    groups: dict[tuple[str, str], list[Tried]] = {}
    for one in found:
        groups.setdefault((one.kind, one.link), []).append(one)
    rows = [
        [
            kind,
            link,
            len(those),
            sum(one.is_close for one in those),
            sum(one.is_covered for one in those),
            f"{min(one.error for one in those):.2f} to {max(one.error for one in those):.2f}",
        ]
        for (kind, link), those in sorted(groups.items())
    ]
    heads = ["change", "link", "tried", "within 15 %", "within the interval", "said / measured"]
    return tabulate(rows, heads, tablefmt=style, disable_numparse=True)


def table(found: Sequence[Tried], style: str) -> str:
    """A line for each forecast, MB/s."""
    rows = [
        [
            one.series,
            one.column,
            one.workload,
            one.what,
            f"{one.before:.4g}",
            f"{one.said:.4g} ({one.least:.4g} to {one.most:.4g})",
            f"{one.measured:.4g}",
            f"{one.error:.2f}",
            one.then,
            "kept out" if one.is_kept_out else "",
        ]
        for one in found
    ]
    heads = [
        "series",
        "column",
        "workload",
        "change",
        "before",
        "said",
        "measured",
        "said/measured",
        "then",
        "",
    ]
    return tabulate(rows, heads, tablefmt=style, disable_numparse=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=[series.name for series in SERIES])
    parser.add_argument(
        "--results", type=Path, help="where the runs are kept; what is there is not run again"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (chosen.results or Path(scratch)).resolve()
        found = [
            one
            for series in SERIES
            if not chosen.only or series.name in chosen.only
            for one in tried(series, folder)
        ]
    style = "github" if chosen.markdown else "simple"
    print(table(found, style), by_link(found, style), sep="\n\n")
    of_core = [one for one in found if one.then is LimitingResource.CORE]
    print(summary(found, "\nall"))
    print(summary([one for one in found if one.is_kept_out], "kept out while the model was made"))
    print(summary(of_core, "where the processor is next"))
    close = sum(one.is_close for one in found) >= PART * len(found)
    far = [one for one in found if max(one.error, 1 / one.error) > FAR]
    return 0 if found and close and not far else 1


if __name__ == "__main__":
    sys.exit(main())
