"""The digital twin: the same cells in virtual time, over link and disk set to what was measured.

Processors cost nothing there. So the cell's time beyond its device, minus the twin's time beyond its own, is
the cost of processors and the implementation. The twin's time with IPsec minus its time without is the cost
of IPsec itself. A twin is kept in the folder of its run, where no table looks, and is used again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

import msgspec

from harness import __version__
from harness.analysis.interval import Interval
from harness.explain.evidence import Evidence, collect, measured_link
from harness.model import (
    LINK_LOCAL,
    Backing,
    BackingKind,
    Clock,
    Column,
    DiskProfile,
    Flash,
    LabKernel,
    Plan,
    Setting,
    Status,
    Storage,
    TestbedKind,
)
from harness.model.errors import UsageError
from harness.parse.files import shown_path
from harness.results.store import RunFolder

FOLDER = "twin"
RUNTIME_S = 0.2
LARGEST_BYTES = 128 << 20
PAGE_BYTES = 4096

Cell = tuple[str, Column]
"""Workload, link, protection."""


def folder_of(run: RunFolder) -> RunFolder:
    """Where a run's twin is kept. UsageError if a symbolic link lies there."""
    path = run.path / FOLDER
    if path.is_symlink():
        raise UsageError(
            f"{shown_path(path)}: expected a folder, found a symbolic link",
            hint="remove it: the harness makes the twin again",
        )
    return RunFolder(path)


def plan_of(plan: Plan, evidence: Sequence[Evidence]) -> Plan | None:
    """The twin's plan, from the run's plan and evidence; None for a run in virtual time, and without a link.

    Links have the round trip and the rate that were found, else their profile's; columns over a real link of
    an unknown rate have no twin, as its time would be taken for the implementation's. The disk is the run's
    modelled one, or one that takes as long as the column ``local`` did (``disk_like``).
    """
    if plan.setting.is_virtual:
        return None
    measured = {
        found.column.link: found for found in evidence if found.rtt_ns is not None or found.rate_bit_s
    }
    unknown = {found.column.link for found in evidence if found.rate_unknown}
    columns = tuple(c for c in plan.columns if c.initiators == 1 and (c.is_local or c.link in plan.links))
    columns = tuple(column for column in columns if column.link not in unknown)
    if all(column.is_local for column in columns):
        return None
    links = {}
    for name, link in plan.links.items():
        found = measured.get(name)
        if found is not None:
            link = measured_link(link, found.rtt_ns, found.rate_bit_s)
        # netem's loss and jitter would be drawn anew each time in virtual time.
        links[name] = msgspec.structs.replace(
            link, interface=None, portal=None, radio=None, emulated=True, jitter_us=0.0, loss_percent=0.0
        )
    disk = plan.storage.disk or disk_like(evidence)
    return msgspec.structs.replace(
        plan,
        setting=Setting(
            testbed=TestbedKind.LAB, clock=Clock.VIRTUAL, lab_kernel=LabKernel.CUSTOM, disk=disk.name
        ),
        columns=columns,
        repeats=1,
        stop=None,
        forecasts=(),
        probes=False,
        seed=1,
        storage=Storage(
            backing=Backing(
                kind=BackingKind.RAMDISK, size_bytes=min(plan.storage.backing.size_bytes, LARGEST_BYTES)
            ),
            disk=disk,
        ),
        links=links,
        machines=None,
        runtime_s=RUNTIME_S,
        created_unix_s=0.0,
        harness_version=__version__,
    )


def why_none(plan: Plan) -> str:
    """Why a run has no twin, for people."""
    if plan.setting.is_virtual:
        return "the run itself is in virtual time"
    if all(column.is_local for column in plan.columns):
        return "it has no column over a link"
    return "no link's rate is known"


def disk_like(evidence: Sequence[Evidence]) -> DiskProfile:
    """A disk of chips that take as long as ``local`` for one I/O of the smallest and of the largest block.

    For other block sizes it is a guess. That does no harm, because only the time beyond each one's own device
    counts.
    """
    times: dict[int, list[float]] = {}
    for found in evidence:
        if found.column.is_local and found.depth == 1 and found.time_ns is not None and found.block_bytes:
            times.setdefault(found.block_bytes, []).append(found.time_ns.mid)
    title = "as the column local"
    if not times:
        return DiskProfile(name="twin", title=title)
    (small, small_ns), (large, large_ns) = (
        (block, sum(times[block]) / len(times[block])) for block in (min(times), max(times))
    )
    # null_blk takes whole pages of memory only.
    page_bytes = max(PAGE_BYTES, small - small % PAGE_BYTES)
    at_once = max(1, round(large / page_bytes * small_ns / large_ns))
    flash = Flash(page_bytes=page_bytes, page_us=round(small_ns / 1000, 3), pages_at_once=min(at_once, 1024))
    return DiskProfile(name="twin", title=title, flash=flash)


def is_current(run: RunFolder, wanted: Plan) -> bool:
    """Whether the run has exactly this twin, measured to its end. A twin of another plan is removed."""
    folder = folder_of(run)
    if not RunFolder.is_at(folder.path):
        return False
    if folder.load_plan() == wanted:
        good = sum(record.status is Status.OK for record in folder.load_records())
        return good == len(wanted.places)
    shutil.rmtree(folder.path)
    return False


def times(run: RunFolder) -> dict[Cell, float]:
    """The twin's time for each I/O, in ns, for the cells that it has."""
    folder = folder_of(run)
    if not RunFolder.is_at(folder.path) or not (records := folder.load_records()):
        return {}
    plan = folder.load_plan()
    found = collect(records, {plan.run_id: plan})
    return {(each.workload, each.column): each.time_ns.mid for each in found if each.time_ns is not None}


def with_twin(found: Evidence, twin: Mapping[Cell, float]) -> Evidence:
    """The evidence on a cell with what the twin adds."""
    own = twin.get((found.workload, found.column))
    device = twin.get((found.workload, Column(LINK_LOCAL)))
    without = twin.get((found.workload, found.column.bare))
    if found.is_virtual or found.column.is_local or own is None:
        return found
    implementation, time_ns, device_ns = None, found.time_ns, found.device_ns
    if time_ns is not None and device_ns is not None and device is not None:
        beyond_ns = own - device
        implementation = Interval(
            time_ns.low - device_ns.high - beyond_ns,
            time_ns.mid - device_ns.mid - beyond_ns,
            time_ns.high - device_ns.low - beyond_ns,
        )
    return msgspec.structs.replace(
        found,
        twin_ns=implementation,
        ipsec_itself_ns=own - without if found.column.protection and without is not None else None,
    )
