"""Records by what they have in common: the columns, rows and cells that tables and verdicts are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.model import LINK_LOCAL, Column, IpsecMode, Job, Plan, Record, Setting, Workload, is_unencrypted
from harness.parse import jobfile
from harness.results.machine import side_of, without_side
from harness.results.metrics import Direction, Metric, directions_of, parts_of

BASIC_WORKLOADS = {
    f"{pattern}-{operation}-{size.lower()}": (group, f"Uncached {operation.title()} [{size} blocks]")
    for pattern, group in (("seq", "Sequential"), ("rand", "Random"))
    for operation in ("write", "read")
    for size in ("4K", "256K")
}
"""The article's eight rows in its order: group and operation, in the article's words."""

_KNOWN_LINKS = (LINK_LOCAL, "wired", "wifi")


class ColumnKey(msgspec.Struct, frozen=True):
    """What the samples of a column have in common."""

    setting: Setting
    column: Column
    is_unencrypted: bool = False

    @property
    def is_encrypted(self) -> bool | None:
        """None without protection, and where nobody can tell."""
        return not self.is_unencrypted if self.column.has_known_cipher else None

    @property
    def mode(self) -> str:
        """ESP's mode, for people: empty where it is the usual one, or where there is none."""
        return "" if self.column.mode in (None, IpsecMode.TRANSPORT) else f"{self.column.mode}"

    @property
    def label(self) -> str:
        """The name for people, without the setting."""
        return f"{self.column.shown(is_unencrypted=self.is_unencrypted)} {self.mode}".rstrip()


class CellKey(msgspec.Struct, frozen=True):
    """What is measured, repeatedly: a workload on a column."""

    key: ColumnKey
    workload: str


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """``group`` and ``operation`` are the article's words for its eight workloads; only CSV still has
    them."""

    workload: str
    direction: Direction | None
    group: str
    operation: str

    @property
    def name(self) -> str:
        """The workload, with the direction if a workload has a row for each, or both added up."""
        direction = f"({self.direction})"
        return f"{self.workload} {direction}" if self.operation.endswith(direction) else self.workload


def by_column(records: Iterable[Record]) -> dict[ColumnKey, dict[str, list[Record]]]:
    """The records of each column, by workload, in their order."""
    samples: dict[ColumnKey, dict[str, list[Record]]] = {}
    keys: dict[tuple[Setting, Column], ColumnKey] = {}
    for record in records:
        facts = (record.setting, record.column)
        key = keys.get(facts)
        if key is None:
            key = keys[facts] = ColumnKey(record.setting.distinct, record.column)
        samples.setdefault(key, {}).setdefault(record.workload.name, []).append(record)
    # A column's first record may have failed before anything was negotiated.
    return {
        msgspec.structs.replace(
            key,
            is_unencrypted=any(
                is_unencrypted(record.encrypts, record.agreed) for of in cells.values() for record in of
            ),
        ): cells
        for key, cells in samples.items()
    }


def in_order(found: Iterable[ColumnKey], plans: Iterable[Plan]) -> list[ColumnKey]:
    """By setting and link, so that what a link costs with and without protection stands side by side: local,
    wired, wifi and the rest as planned; then by transport; then without protection, and with each. Of two
    runs that are compared the same columns stand side by side."""
    keys = list(found)
    columns = [column for plan in plans for column in plan.columns] + [key.column for key in keys]
    links = list(dict.fromkeys(column.link for column in columns))
    protections = list(dict.fromkeys(column.protection for column in columns))
    transports = list(dict.fromkeys([None, *(column.transport for column in columns)]))

    def place(key: ColumnKey) -> tuple[object, ...]:
        column = key.column
        name = column.link.partition(":")[0]
        known = _KNOWN_LINKS.index(name) if name in _KNOWN_LINKS else len(_KNOWN_LINKS)
        return (
            without_side(key.setting),
            known,
            links.index(column.link),
            transports.index(column.transport),
            bool(column.protection),
            protections.index(column.protection),
            key.column.mode or "",
            column.initiators,
            side_of(key.setting),
        )

    return sorted(keys, key=place)


def workload_of(record: Record, job: Job | None) -> Workload:
    """What a record's workload was, by its plan's ``job`` if the record is of a version that did not say."""
    return record.workload if record.workload.depth or job is None else jobfile.described(job)


def origins(keys: Iterable[ColumnKey]) -> dict[Setting, str]:
    """What is said of each setting before the name of a column: nothing of a plain one that is the only
    one."""
    settings = dict.fromkeys(key.setting for key in keys)
    return {each: each.name if len(settings) > 1 or not each.is_plain else "" for each in settings}


def is_memory(key: ColumnKey, plans: Sequence[Plan]) -> bool:
    """Whether a column's storage is memory, by the plans of its runs; what has no plan may be a disk."""
    return bool(plans) and all(plan.storage.is_memory(key.column.link) for plan in plans)


def rate_bit_s(records: Iterable[Record], plans: Iterable[Plan]) -> int | None:
    """The rate of the link of a column, by its records: as planned, or as the slower card of a real one
    says."""
    known = list(records)
    runs, links = {record.run_id for record in known}, {record.column.link for record in known}
    said = [
        plan.links[link].rate_bit_s for plan in plans if plan.run_id in runs for link in links & {*plan.links}
    ]
    return min(filter(None, (*said, *(record.link_rate_bit_s for record in known))), default=None)


def rows_of(records: Iterable[Record], metric: Metric, plans: Iterable[Plan]) -> list[TableRow]:
    """The article's rows first, in its order; then others as planned, then as found."""
    shown: dict[str, set[frozenset[Direction]]] = {}
    for record in records:
        found = shown.setdefault(record.workload.name, set())
        if directions := directions_of(record):
            found.add(directions)
    planned = [workload.name for plan in plans for workload in plan.jobs]
    names = [name for name in dict.fromkeys([*BASIC_WORKLOADS, *planned, *shown]) if name in shown]
    articles = any(name in BASIC_WORKLOADS for name in names)
    rows = []
    for name in names:
        group, operation = BASIC_WORKLOADS.get(name, ("Other" if articles else "", name))
        parts = parts_of(shown[name], metric)
        # Without a good record the workload's directions are unknown: one row gives the reason.
        for direction in parts or (None,):
            suffix = f" ({direction})" if len(parts) > 1 or direction is Direction.BOTH else ""
            rows.append(
                TableRow(workload=name, direction=direction, group=group, operation=f"{operation}{suffix}")
            )
    return rows
