"""What a volume keeps over a path: computed for disks of profiles, and for the initiator's own disk.

The path's time for one I/O was measured with memory behind it. The disk's time is added, one after the other:
of a profile in closed form (``disk_times``), of the initiator's own as the column ``local`` measured it. Only
a profile says what its disk reads ahead meanwhile; of a real disk in sequence it is not known, so bounds are
given. Profiles leave write caches out, so of them there are reads alone.

Nothing is said of more than one I/O at a time, of a path with a disk behind it, which its figure has already,
of jobs whose options say something else about places or times (``PLAIN``), and of runs that call by one name
reads in sequence and at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from tabulate import tabulate

from harness.analysis import disk_times
from harness.analysis.interval import Interval
from harness.analysis.theory import IoDirection
from harness.model import LINK_LOCAL, Column, DiskProfile, Plan, Setting, block_word
from harness.parse.disks import load_disk
from harness.parse.jobfile import described, is_past_page_cache
from harness.parse.profiles import data_folder
from harness.results.columns import by_column
from harness.results.measured import Measured

if TYPE_CHECKING:
    from harness.explain.text import Explained

DISKS = ("hdd-7200", "sata-ssd", "nvme")
"""Of profiles/disks, in the order of the answer."""

OWN, OWN_TITLE = "local-device", "The initiator's disk"

PLAIN = {
    *("rw", "bs", "ioengine", "iodepth", "direct", "numjobs", "time_based", "runtime", "ramp_time"),
    *("stonewall", "randseed", "randrepeat", "norandommap", "refill_buffers"),
}
"""Options of a job of which the sum knows what they do to a disk."""

COMPUTED = "computed"

ROUNDING = 1e-6
"""Of a sum of times."""


class VolumeOverPath(msgspec.Struct, frozen=True, kw_only=True):
    """A disk's calculated speed over a column, one I/O at a time.

    ``disk`` is the name of a profile, or ``local-device``: the initiator's own. Rates are in 10^6 bytes per
    second: ``disk_mb_s`` is the disk without a network, ``over_mb_s`` over the column, with the bounds
    ``low_mb_s`` and ``high_mb_s``; null if only the bounds are known. ``kept`` is the share of its rate that
    the disk keeps. ``is_read_ahead``: the disk works while the path does. ``is_lab_limited``: the lab limits
    the path, not the emulated link. ``mark`` is always ``computed``.
    """

    disk: str
    title: str
    setting: Setting
    column: Column
    workload: str
    direction: IoDirection
    block_bytes: int
    is_random: bool
    disk_mb_s: float
    over_mb_s: float | None
    low_mb_s: float
    high_mb_s: float
    kept: float | None
    is_read_ahead: bool
    is_lab_limited: bool
    mark: str = COMPUTED

    def is_over(self, other: VolumeOverPath) -> bool:
        """Whether the path is that of another."""
        return (self.setting, self.column) == (other.setting, other.column)


class _Sum(NamedTuple):
    """One I/O of a disk alone, and over a path, in ns; if ``is_bounded``, of the latter only bounds are
    known."""

    disk: str
    title: str
    alone_ns: float
    over_ns: Interval
    is_read_ahead: bool = False
    is_bounded: bool = False


def volumes(found: Measured, cells: Sequence[Explained]) -> list[VolumeOverPath]:
    """The disks of profiles, and the initiator's own where it was measured, over each column; ``cells`` are
    those of the same records, and the order is theirs."""
    samples = by_column(found.records)
    disks = [load_disk(name, [data_folder() / "profiles" / "disks"]) for name in DISKS]
    made = []
    for cell in cells:
        evidence = cell.evidence
        block_bytes, direction, path_ns = evidence.block_bytes, evidence.direction, evidence.time_ns
        runs = {record.run_id for record in samples[evidence.key].get(evidence.workload, ())}
        plans = [found.plans[run] for run in runs if run in found.plans]
        jobs = [job for plan in plans for job in plan.jobs if job.name == evidence.workload]
        if evidence.column.is_local or evidence.depth != 1 or not jobs or len(jobs) < len(runs):
            continue
        is_plain = all(dict(job.options).keys() <= PLAIN and is_past_page_cache(job) for job in jobs)
        if not all(map(_takes_no_time, plans)) or not is_plain:
            continue
        if block_bytes is None or direction is None or path_ns is None:
            continue
        # As planned, since records of old have no pattern.
        patterns = {described(job).pattern for job in jobs}
        if len(patterns) > 1:
            continue
        is_random = patterns == {"random"}
        times = []
        if direction == "read":
            size_bytes = max(plan.storage.backing.size_bytes for plan in plans)
            times += [_of_profile(disk, path_ns, block_bytes, is_random, size_bytes) for disk in disks]
        has_own = all(plan.storage.local_device and not plan.storage.is_memory(LINK_LOCAL) for plan in plans)
        if has_own and evidence.device_ns is not None:
            times.append(_of_own(evidence.device_ns, path_ns, is_random))
        for each in times:
            alone, over, low, high = (
                block_bytes / ns * 1e3
                for ns in (each.alone_ns, each.over_ns.mid, each.over_ns.high, each.over_ns.low)
            )
            made.append(
                VolumeOverPath(
                    disk=each.disk,
                    title=each.title,
                    setting=evidence.key.setting,
                    column=evidence.column,
                    workload=evidence.workload,
                    direction=direction,
                    block_bytes=block_bytes,
                    is_random=is_random,
                    disk_mb_s=alone,
                    over_mb_s=None if each.is_bounded else over,
                    low_mb_s=low,
                    high_mb_s=high,
                    kept=None if each.is_bounded else over / alone,
                    is_read_ahead=each.is_read_ahead,
                    is_lab_limited=cell.verdict.is_lab_limited,
                )
            )
    return made


def _takes_no_time(plan: Plan) -> bool:
    """Whether the storage of a plan is memory, so that a cell's time is the path's."""
    disk = plan.storage.disk
    return plan.storage.is_memory("") if disk is None else not (disk.flash or disk.moving)


def _of_profile(
    disk: DiskProfile, path_ns: Interval, block_bytes: int, is_random: bool, volume_bytes: int
) -> _Sum:
    alone_ns, low_ns, mid_ns, high_ns = (
        disk_times.read_ns(
            disk, block_bytes, is_random=is_random, volume_bytes=volume_bytes, elsewhere_ns=elsewhere_ns
        )
        for elsewhere_ns in (0.0, path_ns.low, path_ns.mid, path_ns.high)
    )
    is_read_ahead = mid_ns < (alone_ns + path_ns.mid) * (1 - ROUNDING)
    return _Sum(disk.name, disk.title, alone_ns, Interval(low_ns, mid_ns, high_ns), is_read_ahead)


def _of_own(own_ns: Interval, path_ns: Interval, is_random: bool) -> _Sum:
    low_ns = path_ns.low + own_ns.low if is_random else max(path_ns.low, own_ns.low)
    over_ns = Interval(low_ns, path_ns.mid + own_ns.mid, path_ns.high + own_ns.high)
    return _Sum(OWN, OWN_TITLE, own_ns.mid, over_ns, is_bounded=not is_random)


def lines(found: Sequence[VolumeOverPath], width: int) -> list[str]:
    """``tables`` in lines: with as many columns as ``width`` has room for, but for one."""
    return [line for table in tables(found, width) for line in _laid_out(table)]


def tables(found: Sequence[VolumeOverPath], width: int | None = None) -> list[list[list[str]]]:
    """The disks over the fastest column without protection, or else with it, in rows below one of headings:
    reads, and in a table of their own writes of the initiator's own. Nothing of a path that the lab limits.
    """
    shown = [each for each in found if not each.is_lab_limited]
    if not shown:
        return []
    best = max(shown, key=lambda each: (not each.column.protection, each.high_mb_s))
    made = []
    for direction in ("read", "write"):
        own = [each for each in shown if each.is_over(best) and each.direction == direction]
        workloads = _extremes(own)
        table = _table(own, workloads)
        while width is not None and len(workloads) > 1 and max(map(len, _laid_out(table))) > width:
            table = _table(own, workloads := workloads[:-1])
        made += [table] if table else []
    return made


def _extremes(own: Sequence[VolumeOverPath]) -> list[str]:
    """Workloads with the largest blocks in sequence, the smallest at random, and the smallest in sequence."""
    in_sequence = sorted((each.block_bytes, each.workload) for each in own if not each.is_random)
    at_random = sorted((each.block_bytes, each.workload) for each in own if each.is_random)
    chosen = [*in_sequence[-1:], *at_random[:1], *in_sequence[:1]]
    return list(dict.fromkeys(name for _, name in chosen))


def _table(own: Sequence[VolumeOverPath], workloads: Sequence[str]) -> list[list[str]]:
    """A row for each disk, below one with headings; none without workloads."""
    if not workloads:
        return []
    of = {(each.disk, each.workload): each for each in own}
    rows = [[f"MB/s over {own[0].column.label}, {COMPUTED}"]]
    for name in workloads:
        one = next(each for each in own if each.workload == name)
        where = "random" if one.is_random else "seq."
        rows[0].append(f"{where} {block_word(one.block_bytes).upper()} {one.direction}s")
    for disk in dict.fromkeys(each.disk for each in own):
        cells = [of.get((disk, name)) for name in workloads]
        known = [each for each in cells if each is not None]
        ahead = ", reads ahead" if any(each.is_read_ahead for each in known) else ""
        rows.append([f"{known[0].title}{ahead}", *("" if each is None else _words(each) for each in cells)])
    return rows


def _laid_out(table: Sequence[Sequence[str]]) -> list[str]:
    return tabulate(table, tablefmt="plain", disable_numparse=True).splitlines()


def _words(each: VolumeOverPath) -> str:
    """``88 of 515, 17 %``, ``78 of 78, all``, ``40 to 60 of 100``."""
    if each.over_mb_s is None or each.kept is None:
        return f"{_mb_s(each.low_mb_s)} to {_mb_s(each.high_mb_s)} of {_mb_s(each.disk_mb_s)}"
    kept = "all" if each.kept > 0.995 else f"{100 * each.kept:.{0 if each.kept > 0.0095 else 1}f} %"
    return f"{_mb_s(each.over_mb_s)} of {_mb_s(each.disk_mb_s)}, {kept}"


def _mb_s(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 9.95 else f"{rate:.2g}"
