"""The axes of curves: what may differ along one, as numbers of links and workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from harness.model import Column, Job, LinkProfile, Plan, Workload, block_word
from harness.model.units import format_duration, format_percent, format_rate
from harness.parse.jobfile import described


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis. ``of_link`` or ``of_workload`` gives a point's place on it, in the unit that ``shown`` writes;
    None where a link or workload does not say."""

    title: str
    shown: Callable[[float], str]
    of_link: Callable[[LinkProfile], float | None] | None = None
    of_workload: Callable[[Workload], float | None] | None = None


def _word(size_bytes: float) -> str:
    """``4K``, as it is typed."""
    return block_word(round(size_bytes)).upper()


AXES = {
    "depth": Axis(title="queue depth", shown="{:g}".format, of_workload=lambda of: of.depth),
    "block": Axis(title="block", shown=_word, of_workload=lambda of: of.block_bytes),
    "jobs": Axis(title="jobs at once", shown="{:g}".format, of_workload=lambda of: of.numjobs),
    "rtt": Axis(title="round trip", shown=format_duration, of_link=lambda of: 2 * of.path_delay_us / 1e6),
    "rate": Axis(title="rate of the link", shown=format_rate, of_link=lambda of: of.rate_bit_s),
    "loss": Axis(title="loss", shown=format_percent, of_link=lambda of: of.loss_percent / 100),
    "window": Axis(title="TCP window", shown=_word, of_link=lambda of: of.tcp_window_bytes),
    "mtu": Axis(title="MTU", shown="{:g}".format, of_link=lambda of: of.mtu_bytes),
}
"""By the word that is typed."""


class Curve(msgspec.Struct, frozen=True, order=True):
    """What the points of a curve (or surface) have in common: column and workload without what is swept.

    ``fixed`` are the places on the axes of workloads that are not swept, with their names.
    """

    column: Column
    workload: str
    fixed: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """For people: ``wired+aes128gcm16 rand-read, block 4 KiB``."""
        same = [
            f"{name} {AXES[name].shown(value)}" for name, value in self.fixed if name != "jobs" or value > 1
        ]
        return ", ".join([f"{self.column.label} {self.workload}", *same])


def curve_of(
    plan: Plan, over: Sequence[str], column: Column, workload: Workload
) -> tuple[Curve, dict[str, float]] | None:
    """Of which curve over these axes a cell of a plan is a point, and where it is on it; None if it is of
    none, as the local disk is of none over links."""
    link = plan.links.get(column.link)
    point: dict[str, float] = {}
    for name in over:
        axis = AXES[name]
        value = (
            axis.of_workload(workload)
            if axis.of_workload is not None
            else axis.of_link(link)
            if axis.of_link is not None and link is not None
            else None
        )
        if value is None:
            return None
        point[name] = float(value)
    base = msgspec.structs.replace(column, link=link.base) if link is not None and link.base else column
    fixed = tuple(
        (name, float(value))
        for name, axis in AXES.items()
        if axis.of_workload is not None
        and name not in over
        and (value := axis.of_workload(workload)) is not None
    )
    return Curve(base, workload.base, fixed), point


def workloads(jobs: Iterable[Job]) -> dict[str, Workload]:
    """What each job of a plan does, by its name."""
    return {job.name: described(job) for job in jobs}
