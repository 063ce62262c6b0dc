"""What is known of a cell, from its own records and those of related cells. None means unknown.

Related cells are those of the same setting and workload. The column ``local`` gives the device's time, the
same link without IPsec gives what IPsec adds, and the same link with a proposal that does not encrypt gives
what the cipher adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from harness.analysis import disturbance, interval, path_demands, stats, wire
from harness.analysis.interval import Interval, exact
from harness.analysis.path_demands import LEAST_TIMEOUT_NS, Demands
from harness.analysis.theory import IoDirection, Wire
from harness.analysis.wire import framing_of_column
from harness.explain import cipher
from harness.model import (
    DEFAULT_TRANSPORT,
    FIO_SOURCE,
    TRANSPORTS,
    Column,
    Duplex,
    Job,
    LinkProfile,
    Plan,
    Record,
    Workload,
    drivers,
)
from harness.model.probing import Tcp, TcpFigures
from harness.model.reread import Reread
from harness.model.units import positive
from harness.parse.jobfile import described
from harness.results.columns import (
    CellKey,
    ColumnKey,
    by_column,
    in_order,
    is_memory,
    origins,
    rate_bit_s,
    rows_of,
    workload_of,
)
from harness.results.metrics import Metric
from harness.results.probe_records import ProbeRecord

CALIBRATION = 2.0
"""The emulation adds half to twice as much to an I/O's round trip as to the calibration's (docs/lab.md)."""

LARGEST_BLOCK_BYTES = 16 << 20
"""Of larger blocks no packets are computed: there are millions, or as many as a damaged record says."""

CACHED = 2.0
"""Repeats in the lab lie up to 12 % from their median (README)."""

TARGET = "target"
"""How that end is called in records."""
UNSEEN = "the target was not monitored, neither its disk nor its processor"
MOUNTED = "its network path is unknown, because the file system was already mounted"
UNMEASURED = "the path's throughput was not measured; measure it with iperf3 to a server near the target"
RATE_TELLS = "look up the speed of the host's NIC or the switch port"

Samples = Mapping[str, Sequence[Record]]
K = TypeVar("K")


class Baselines(msgspec.Struct, frozen=True, kw_only=True):
    """The same workload on the same link with less protection: time per I/O, and framing in it."""

    time_ns: Interval
    framing_ns: float = 0.0
    busy: Interval | None = None


class LostPackets(msgspec.Struct, frozen=True, kw_only=True):
    """That TCP sent ``resent_bytes`` again after a timeout: what waiting for it took of one I/O, and how long
    the slowest one took."""

    time_ns: Interval
    resent_bytes: int
    slowest_ns: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. All times are per I/O: run time divided by the number of I/Os, whatever the depth.

    ``origin`` is what of its setting must be said. In virtual time ``busy`` and ``busiest`` are not known,
    because processors cost nothing there.

    ``depth`` is the number of I/Os in flight. ``device_ns`` is the time in the column ``local`` at the same
    depth, ``device_alone_ns`` at depth 1. ``busy`` is the part of the cell in which the busiest core worked,
    and ``busiest`` names the host of that core (empty if there is only one kernel).

    ``work_ns`` is the core's work for one I/O as another link shows it, where the core idles here, and
    ``least_work_ns`` over the link where it is least: where it idles, or imitates radios, it does more.
    ``cipher_ns`` is the stand-alone time of cipher and check on the core that does most of it, 0 for
    protections without both. ``rtt_ns`` was measured on the link between the cells.

    ``rate_bit_s`` is the link's: of its profile, or as its interfaces say. Of a real link whose interfaces
    say none ``rate_unknown`` says what is known instead. ``stream_mb_s`` is the most that one TCP stream
    reached over a real link without protection, in the cell's direction: the link carries that or more.

    ``faster`` is the path at twice the rate. ``is_memory``: the target's storage is memory, so the device's
    time is a processor's work.

    ``goodput_mb_s`` is the link's goodput: the most TCP payload that it carries, in full frames without any
    protection.

    ``is_emulated``: the link is, in real time, so both ends share the lab's processor. ``emulation_ns`` is
    what that adds to the I/O's round trips, as the run calibrated it (``Telemetry``). ``is_half_duplex``:
    both directions share the link.

    ``lost_packets`` is known of one I/O at a time, where packets were lost.

    ``reread`` is that of reads that may come from the target's memory and not from its disk.

    ``is_one_end``: the target was not monitored. ``device_ns`` is then all that the target takes, and
    ``limit_of_target`` what of it that is, "" if its disk and its processor cannot be told apart
    (``one_end``), ``is_target_shown`` if other cells show that. ``command_ns`` is the time of a command that
    reaches no disk, and its answer has ``command_bytes``. ``is_full_alone``: more in flight was no quicker,
    so a resource is full with one I/O already. ``is_random``: the blocks lie in no order. ``first_ns`` is the
    time in the first repeat, if all others took far less.

    ``missing`` says what is unknown, and how to find out. If ``is_disturbed``, no figure of the cell counts
    but ``at_most_ns``: so long an I/O took next to other programs, and without them it takes less. Besides
    that is known what the link's plan says.
    """

    key: ColumnKey
    workload: str
    origin: str = ""
    direction: IoDirection | None = None
    block_bytes: int | None = None
    depth: int | None = None
    time_ns: Interval | None = None
    repeats: int = 0
    device_ns: Interval | None = None
    device_alone_ns: Interval | None = None
    path: Demands | None = None
    faster: Demands | None = None
    is_memory: bool = False
    rate_bit_s: int | None = None
    rate_unknown: str = ""
    rtt_ns: Interval | None = None
    stream_mb_s: float | None = None
    goodput_mb_s: float | None = None
    plain: Baselines | None = None
    null: Baselines | None = None
    cipher_ns: Interval | None = None
    busy: Interval | None = None
    busiest: str = ""
    work_ns: Interval | None = None
    least_work_ns: Interval | None = None
    driver: str = ""
    missing: tuple[str, ...] = ()
    is_disturbed: bool = False
    at_most_ns: float | None = None
    is_emulated: bool = False
    is_half_duplex: bool = False
    emulation_ns: Interval | None = None
    lost_packets: LostPackets | None = None
    reread: Reread | None = None
    is_one_end: bool = False
    limit_of_target: str = ""
    is_target_shown: bool = False
    command_ns: Interval | None = None
    command_bytes: int = 0
    is_full_alone: bool = False
    is_random: bool = False
    first_ns: float | None = None

    @property
    def cell(self) -> CellKey:
        return CellKey(self.key, self.workload)

    @property
    def column(self) -> Column:
        return self.key.column

    @property
    def is_virtual(self) -> bool:
        return self.key.setting.is_virtual

    @property
    def bound_mb_s(self) -> float | None:
        """The most that the path lets through at this depth, whatever processors and disks do."""
        return self.rate(self.path.least_ns(self.depth)) if self.path is not None and self.depth else None

    def rate(self, time_ns: float | None) -> float | None:
        """MB/s, if an I/O takes this long."""
        return self.block_bytes / time_ns * 1e3 if time_ns and self.block_bytes is not None else None

    @property
    def one_at_a_time_mb_s(self) -> float | None:
        """The same of one request at a time, which pays for its round trips and for the transfer of all its
        bytes in turn; None for greater depths."""
        return self.bound_mb_s if self.depth == 1 else None

    @property
    def implementation_ns(self) -> Interval | None:
        """What is left of one I/O's time alone without its device, link, framing and round trips: processors
        and what they run. None if that was not measured, and in virtual time."""
        time_ns, device_ns, path = self.time_ns, self.device_ns, self.path
        if time_ns is None or device_ns is None or path is None or self.depth != 1 or self.is_virtual:
            return None
        return Interval(
            time_ns.low - device_ns.high - path.alone_ns,
            time_ns.mid - device_ns.mid - path.alone_ns,
            time_ns.high - device_ns.low - path.alone_ns,
        )

    @property
    def ipsec_itself_ns(self) -> float | None:
        """How much longer the path alone takes with the protection's framing."""
        return self.path.framing_ns if self.path is not None and self.column.protection else None

    @property
    def name(self) -> str:
        """Of its column, as in the table: where it is from, if that must be said, and then the label."""
        return f"{self.origin} {self.key.label}".strip()


def collect(
    records: Sequence[Record], plans: Mapping[str, Plan], probes: Sequence[ProbeRecord] = ()
) -> list[Evidence]:
    """The evidence on every cell, column by column in the order of the table; ``plans`` are by run id.

    ``probes`` are those of the same paths: TCP, and stand-alone ciphers.
    """
    # What a CPU cost file says is explained by that list.
    records = [record for record in records if not record.setting.predicted_from]
    samples = by_column(records)
    runs = dict.fromkeys(record.run_id for record in records)
    known = [plans[run] for run in runs if run in plans]
    keys = in_order(samples, known)
    names = list(dict.fromkeys(row.workload for row in rows_of(records, Metric.MB_S, known)))
    named = origins(keys)
    # How long a core idles while fio starts and ends: at most as long as in the cell that idled least.
    idling = _least(
        (key.setting, idling_ns(record))
        for key, cells in samples.items()
        for cell in cells.values()
        for record in cell
    )
    found = []
    for key in keys:
        column = _ColumnOf(key, samples, plans, probes, idling.get(key.setting, 0.0))
        found += [column.evidence(name, named[key.setting]) for name in names if samples[key].get(name)]
    return _with_work(found)


IDLE = 0.15
"""A core that is busy for a smaller part of the time does so much else in it that its work for one I/O is
better known from another link."""


def _with_work(found: Sequence[Evidence]) -> list[Evidence]:
    """The same with the core's work for one I/O: over the link itself, or over that on which it idles least
    above ``IDLE``."""
    alike: dict[object, list[tuple[float, Interval]]] = {}
    for each in found:
        busy, time_ns = each.busy, each.time_ns
        if busy is None or time_ns is None or busy.mid < IDLE or each.column.is_local:
            continue
        low, high = busy.low * time_ns.low, busy.high * time_ns.high
        alike.setdefault(_work_of(each), []).append((busy.mid, Interval(low, busy.mid * time_ns.mid, high)))
    made = []
    for each in found:
        works = alike.get(_work_of(each))
        if works is not None and each.busy is not None:
            each = msgspec.structs.replace(
                each,
                work_ns=min(works)[1] if each.busy.mid < IDLE else None,
                least_work_ns=min((work for _, work in works), key=lambda work: work.mid),
            )
        made.append(each)
    return made


def _work_of(each: Evidence) -> object:
    """What the work for one I/O depends on, whatever the link."""
    return each.key.setting, msgspec.structs.replace(each.column, link=""), each.workload


def _least(found: Iterable[tuple[K, float | None]]) -> dict[K, float]:
    """The least of what is known, by key."""
    least: dict[K, float] = {}
    for key, value in found:
        if value is not None:
            least[key] = min(value, least.get(key, value))
    return least


class _ColumnOf:
    """A column and those that it is compared with.

    ``emulations_ns`` is what each run found that the link's emulation adds to a round trip: the least, as
    others add to it.
    """

    def __init__(
        self,
        key: ColumnKey,
        samples: Mapping[ColumnKey, Samples],
        plans: Mapping[str, Plan],
        probes: Sequence[ProbeRecord],
        idling_ns: float,
    ) -> None:
        self.key, self.samples, self.probes, self.idling_ns = key, samples, probes, idling_ns
        self.column = column = key.column
        self.streams_mb_s = streams_of(probes, column.link)
        runs = dict.fromkeys(record.run_id for cell in samples[key].values() for record in cell)
        self.plans = [plans[run] for run in runs if run in plans]
        self.link = next((p.links[column.link] for p in self.plans if column.link in p.links), None)
        self.proposals = {name: p for plan in self.plans for name, p in plan.proposals.items()}
        self.jobs = {job.name: job for plan in self.plans for job in plan.jobs}
        # The stand-alone ciphers of this proposal in the column's runs, over any link.
        self.ciphers = [p for p in probes if p.column.protection == column.protection and p.run_id in runs]
        self.commands = [
            record.telemetry.commands
            for cell in samples[key].values()
            for record in cell
            if record.telemetry is not None and record.telemetry.commands is not None
        ]
        self.local: Samples = next(
            (of for other, of in samples.items() if other.column.is_local and other.setting == key.setting),
            {},
        )
        self.emulations_ns = _least(
            (record.run_id, record.telemetry.emulation_round_trip_ns if record.telemetry else None)
            for other, cells in samples.items()
            if (other.setting, other.column.link) == (key.setting, column.link)
            for cell in cells.values()
            for record in cell
        ).values()

    def evidence(self, name: str, origin: str) -> Evidence:
        good = measured(self.samples[self.key][name])
        bare = Evidence(key=self.key, workload=name, origin=origin)
        if good:
            return _CellOf(self, name, good).evidence(bare)
        disturbed = disturbance.summary(self.samples[self.key][name])
        bare = msgspec.structs.replace(
            bare,
            missing=(disturbed or "no repeat of this cell gave a figure",),
            is_disturbed=bool(disturbed),
        )
        counted = with_time(disturbance.counting(self.samples[self.key][name]))
        return _CellOf(self, name, counted).planned(bare) if counted else bare

    def depth(self, name: str, record: Record) -> tuple[int | None, list[str]]:
        """How many I/Os are in flight, and why that is unknown."""
        words = []
        depth = depth_of(workload_of(record, self.jobs.get(name)), record)
        if depth is None:
            lacks = (
                "this fio did not report its job's options"
                if record.setting.source == FIO_SOURCE
                else "the run's plan is missing"
            )
            words.append(f"{lacks}, so the number of I/Os in flight is unknown")
        if self.column.initiators > 1:
            return None, [*words, "several initiators share the cell's time"]
        return depth, words

    def command_ns(self) -> Interval | None:
        """The mean time of a command that reaches no disk, over the rounds in which it was taken."""
        found = [each.mean_ns for each in self.commands if each.mean_ns is not None]
        return interval.of_samples(found, repeats_exactly=self.key.setting.is_virtual) if found else None

    def device_times(self, name: str) -> Interval | None:
        """The time of one I/O in the column ``local``."""
        good = measured(self.local.get(name, ()))
        return times(good) if good else None

    def device_alone(self, name: str, depth: int | None) -> Interval | None:
        """The device's time at depth 1, from a workload that differs in nothing but its depth."""
        asked = self.jobs.get(name)
        if asked is None or depth is None or not self.local:
            return None
        for other, job in self.jobs.items():
            same = _without_depth(job) == _without_depth(asked)
            if same and described(job).in_flight == 1 and (found := self.device_times(other)):
                return found
        return None

    def is_null(self, column: Column) -> bool:
        """Whether a column has the same protections, but for a proposal that does not encrypt."""
        if len(column.protection) != len(self.column.protection):
            return False
        pairs = zip(column.protection, self.column.protection, strict=True)
        differ = [pair for pair in pairs if len({*pair}) == 2]
        if len(differ) != 1:
            return False
        theirs, own = (self.proposals.get(name) for name in differ[0])
        return theirs is not None and not theirs.encrypts and own is not None

    def next_to(self, key: ColumnKey) -> _ColumnOf:
        """Another column, as this one's runs planned it."""
        plans = {plan.run_id: plan for plan in self.plans}
        return _ColumnOf(key, self.samples, plans, self.probes, self.idling_ns)

    def of_same_link(self) -> Iterator[tuple[ColumnKey, Samples]]:
        own = self.key
        for key, found in self.samples.items():
            if key != own and (key.setting, key.column.bare) == (own.setting, own.column.bare):
                yield key, found


class _CellOf:
    """A cell of a column, from its good records. ``missing`` gathers what is unknown, each reason once."""

    def __init__(self, of: _ColumnOf, name: str, good: Sequence[Record]) -> None:
        self.of, self.name, self.good, self.record = of, name, good, good[0]
        self.column = of.column
        self.is_one_end = not self.column.is_local and (
            is_one_end(good) or not all(plan.sees_target for plan in of.plans)
        )
        self.first_ns = first_alone_ns(good) if self.is_one_end else None
        if self.first_ns is not None:
            self.good = [each for each in good if each is not min(good, key=_started)]
        self.missing: dict[str, None] = {}
        self.direction = direction_of(self.record)
        self.block_bytes = self.record.workload.block_bytes
        self.rtt_ns = self._round_trip()
        self.link, self.framing = of.link, None
        if self.link is not None:
            self.framing = framing_of_column(self.column, of.proposals, self.link)
            self.link = measured_link(self.link, self.rtt_ns, rate_bit_s(self.good, of.plans))

    def planned(self, bare: Evidence) -> Evidence:
        """What the link's plan says, and what a disturbed cell's figures leave of it."""
        depth, _ = self.of.depth(self.name, self.record)
        return msgspec.structs.replace(
            bare,
            direction=self.direction,
            block_bytes=self.block_bytes,
            depth=depth,
            path=self.demands(),
            rate_bit_s=self.link.rate_bit_s if self.link is not None else None,
            goodput_mb_s=self._goodput_mb_s(),
            at_most_ns=times(self.good).mid,
        )

    def evidence(self, bare: Evidence) -> Evidence:
        of, record, is_virtual = self.of, self.record, self.of.key.setting.is_virtual
        if self.direction is None:
            self._miss("reads and writes share the cell's time, so neither has a time of its own")
        depth, words = of.depth(self.name, record)
        self._miss(*words)
        if self.block_bytes is None:
            of_fio = record.setting.source == FIO_SOURCE
            self._miss("its block size is unknown" if of_fio else "its blocks have several sizes")
        demands = self.demands()
        device = of.device_times(self.name)
        if device is None and not self.column.is_local:
            why = disturbance.summary(of.local.get(self.name, ())) or "not measured"
            self._miss(
                UNSEEN if self.is_one_end else f"the device's own time is unknown: the column local was {why}"
            )
        is_real = self.link is not None and self.link.interface is not None
        known_bit_s = self.link.rate_bit_s if self.link is not None else None
        stream_mb_s = of.streams_mb_s.get(self.direction) if is_real and self.direction else None
        rate_unknown = unknown_rate(of.streams_mb_s) if is_real and known_bit_s is None else ""
        if self.is_one_end and not of.streams_mb_s:
            self._miss(UNMEASURED)
        elif rate_unknown:
            self._miss(rate_unknown)
        self._miss(*(f"no stand-alone ciphers: {reason}" for reason in cipher.reasons(of.ciphers)))
        found = msgspec.structs.replace(
            bare,
            direction=self.direction,
            block_bytes=self.block_bytes,
            depth=depth,
            time_ns=times(self.good),
            repeats=len(self.good),
            device_ns=device,
            device_alone_ns=of.device_alone(self.name, depth),
            path=demands,
            is_half_duplex=self.link is not None and self.link.duplex is Duplex.HALF,
            faster=self.demands(rate=2),
            is_memory=is_memory(of.key, of.plans),
            rate_bit_s=known_bit_s,
            rate_unknown=rate_unknown,
            rtt_ns=self.rtt_ns,
            stream_mb_s=stream_mb_s,
            goodput_mb_s=self._goodput_mb_s(),
            driver=drivers(record.agreed),
            lost_packets=lost_packets_of(self.good) if depth == 1 else None,
            reread=next((r.reread for r in self.good if r.reread and r.reread.is_from_memory), None),
            is_one_end=self.is_one_end,
            command_ns=of.command_ns(),
            command_bytes=max((each.payload_bytes for each in of.commands), default=0),
            is_random=record.workload.pattern == "random",
            first_ns=self.first_ns,
            missing=tuple(self.missing),
        )
        if is_virtual:
            return found
        return msgspec.structs.replace(
            found,
            is_emulated=record.emulated,
            emulation_ns=self._emulation(demands.round_trips, depth) if demands else None,
            plain=self._baselines(encrypts=None),
            null=self._baselines(encrypts=False),
            cipher_ns=self._cipher_ns(demands),
            busy=busy_at_one_end(self.good, of.idling_ns)
            if self.is_one_end
            else busy_of(self.good, of.idling_ns),
            busiest=busiest_of(self.good) or ("initiator" if self.is_one_end else ""),
        )

    def _miss(self, *words: str) -> None:
        self.missing |= dict.fromkeys(words)

    def _round_trip(self) -> Interval | None:
        """The idle round trip of the link without IPsec, measured before the cells.

        The unprotected round trip is used for protected cells too: cipher time is counted separately.
        """
        records = self.good
        if self.column.protection:
            plain = (of.get(self.name) for key, of in self.of.of_same_link() if not key.column.protection)
            records = next(filter(None, plain), records)
        pings = [r.telemetry.round_trips for r in records if r.telemetry and r.telemetry.round_trips]
        found = [ping for ping in pings if ping.min_ns is not None and ping.p50_ns is not None]
        if not found:
            return least_round_trip(records) if self.is_one_end else None
        half = stats.median([ping.p50_ns or 0.0 for ping in found])
        return Interval(min(ping.min_ns or 0.0 for ping in found), half, half)

    def _emulation(self, round_trips: int, depth: int | None) -> Interval | None:
        """What the link's emulation adds to one I/O, from all runs that calibrated it.

        With more than one I/O in flight, it may be nothing: where others keep the processor awake, and netem
        has the next packet due, no timer and no wake-up is waited for.
        """
        found_ns = self.of.emulations_ns
        if not found_ns:
            return None
        low_ns = min(found_ns) / CALIBRATION if depth == 1 else 0.0
        high_ns, mid_ns = max(found_ns) * CALIBRATION, stats.median(found_ns)
        return Interval(low_ns * round_trips, mid_ns * round_trips, high_ns * round_trips)

    def demands(self, rate: int = 1) -> Demands | None:
        """What the path takes at so many times its rate; None if that is unknown, for ``missing``."""
        column, link, session = self.column, self.link, self.record.session
        if column.is_local or self.direction is None or self.block_bytes is None:
            return None
        if column.filesystem and self.record.setting.is_harness:
            self._miss(MOUNTED)
            return None
        if link is None:
            self._miss("the link's profile is unknown: the run's plan is missing")
            return None
        if rate != 1:
            if link.rate_bit_s is None:
                return None
            link = msgspec.structs.replace(link, rate_bit_s=rate * link.rate_bit_s)
        if link.interface is not None and self.rtt_ns is None:
            self._miss("the real link's round trip is unknown: no pings were made before the cells")
            return None
        transport = column.transport or DEFAULT_TRANSPORT
        window_bytes = link.tcp_window_bytes
        if window_bytes is None and self.record.emulated:
            # Here both ends are Linux with its defaults; on real machines that is not known.
            window_bytes = wire.transport(transport).window_bytes
        elif window_bytes is None and self.is_one_end and self.direction == "read":
            window_bytes = let_in_bytes(self.good)
        dialogue = path_demands.dialogue_of(transport, session, self.direction)
        if dialogue is None:
            title = TRANSPORTS.get(column.transport or "", "session")
            self._miss(f"the record lacks the negotiated {title} parameters")
            return None
        if self.block_bytes > LARGEST_BLOCK_BYTES:
            self._miss(f"blocks above {LARGEST_BLOCK_BYTES >> 20} MiB are not computed")
            return None
        if column.protection and self.framing is None:
            self._miss(f"the framing of {'+'.join(column.protection)} is unknown")
        return path_demands.of_dialogue(
            link,
            self.framing,
            dialogue,
            self.direction,
            self.block_bytes,
            command_bytes=positive(session, "max_sectors_kb") * 1024 or None,
            window_bytes=window_bytes,
        )

    def _cipher_ns(self, demands: Demands | None) -> Interval | None:
        if self.column.protection and not self.column.has_cipher:
            return exact(0.0)
        return cipher.work_ns(self.of.ciphers, demands.sealed) if demands else None

    def _goodput_mb_s(self) -> float | None:
        # That of one initiator's link.
        if self.link is None or self.column.is_local or self.column.initiators > 1:
            return None
        goodput = Wire(link=self.link).goodput_bytes_s
        return goodput and goodput / 1e6

    def _baselines(self, *, encrypts: bool | None) -> Baselines | None:
        """The next lower step: without IPsec (``encrypts`` None), or with a proposal that does not
        encrypt."""
        of = self.of
        if not self.column.protection:
            return None
        for key, found in of.of_same_link():
            good = measured(found.get(self.name, ()))
            if not good or not (not key.column.protection if encrypts is None else of.is_null(key.column)):
                continue
            step = _CellOf(of.next_to(key), self.name, good)
            step.direction = self.direction
            demands = step.demands()
            return Baselines(
                time_ns=times(good),
                framing_ns=demands.framing_ns if demands else 0.0,
                busy=busy_of(good, of.idling_ns),
            )
        return None


def measured_link(profile: LinkProfile, rtt_ns: Interval | None, rate_bit_s: int | None) -> LinkProfile:
    """A real link as it was found: half a ping's time each way, and the rate that its interfaces say.

    What one TCP stream reached is no rate of a link: a core, a window or a loss may have held it back. An
    emulated link is what its profile says. In the lab a ping takes longer than that, because the processor
    has to wake up; an I/O that follows another does not wait for that.
    """
    if profile.interface is None:
        return profile
    delay_us = profile.delay_us if rtt_ns is None else rtt_ns.mid / 2000
    return msgspec.structs.replace(profile, delay_us=delay_us, rate_bit_s=rate_bit_s)


def is_one_end(records: Sequence[Record]) -> bool:
    """Whether processors were watched, and none of the target's."""
    uses = [use for record in records if record.telemetry is not None for use in record.telemetry.processors]
    return bool(uses) and not any(TARGET in use.hosts for use in uses)


def least_round_trip(records: Sequence[Record]) -> Interval | None:
    """Where no ping is answered: what TCP saw at least. An acknowledgement may have waited for the answer
    that it came with, so the round trip may be shorter."""
    uses = [use for record in records if record.telemetry for use in record.telemetry.tcp]
    found = [use.least_round_trip_ns for use in uses if use.least_round_trip_ns]
    return Interval(min(found) / 2, min(found), min(found)) if found else None


def let_in_bytes(records: Sequence[Record]) -> int | None:
    """The most that the initiator's TCP let the target have in flight; None if it did not say."""
    found = [use.window_bytes for record in records if record.telemetry for use in record.telemetry.tcp]
    return max((window for window in found if window), default=None)


def first_alone_ns(records: Sequence[Record]) -> float | None:
    """How long an I/O took in the first of several repeats, if it was ``CACHED`` times as long in the others:
    they read what the first had read."""
    if len(records) < 2 or direction_of(records[0]) != "read":
        return None
    first, *others = (times([record]).mid for record in sorted(records, key=_started))
    return first if first >= CACHED * max(others) else None


def _started(record: Record) -> float:
    return record.started_unix_s or 0.0


def streams_of(probes: Sequence[ProbeRecord], link: str) -> dict[IoDirection, float]:
    """The most that one TCP stream without protection reached over a link, in 10^6 bytes/s, by the direction
    of I/Os whose data goes the same way. It is a lower bound of what the link carries, so the best of several
    counts."""
    found: dict[IoDirection, float] = {}
    for probe in disturbance.quiet(probes):
        asked, figures = probe.probe, probe.figures
        if not isinstance(asked, Tcp) or not isinstance(figures, TcpFigures) or not figures.received_bit_s:
            continue
        if asked.streams == 1 and (probe.column.link, probe.column.protection) == (link, ()):
            way: IoDirection = "read" if asked.reverse else "write"
            found[way] = max(figures.received_bit_s / 8e6, found.get(way, 0.0))
    return found


def unknown_rate(streams_mb_s: Mapping[IoDirection, float]) -> str:
    """What is known of a real link whose interfaces say no rate, and what would tell."""
    ways: Mapping[IoDirection, str] = {"read": "to the initiator", "write": "to the target"}
    reached = [f"{streams_mb_s[each]:.3g} MB/s {way}" for each, way in ways.items() if each in streams_mb_s]
    least = f"; one TCP stream reached {' and '.join(reached)}" if reached else ""
    return f"no interface reports the link's rate{least}; {RATE_TELLS}"


def measured(records: Sequence[Record]) -> list[Record]:
    """The records whose I/Os took some time and that were not disturbed."""
    return with_time(disturbance.quiet(records))


def with_time(records: Sequence[Record]) -> list[Record]:
    """Those whose I/Os took some time."""
    return [
        record
        for record in records
        if any(io is not None and io.ios and io.runtime_ns for io in (record.read, record.write))
    ]


def direction_of(record: Record) -> IoDirection | None:
    """The direction of a record's I/Os; None for a mix."""
    reads = record.read is not None and record.read.ios > 0
    writes = record.write is not None and record.write.ios > 0
    return None if reads == writes else "read" if reads else "write"


def times(records: Sequence[Record]) -> Interval:
    """The time of one I/O over repeats: run time divided by the number of I/Os of all kinds."""
    found = []
    for record in records:
        ios = [io for io in (record.read, record.write) if io is not None and io.ios and io.runtime_ns]
        found.append(max(io.runtime_ns for io in ios) / sum(io.ios for io in ios))
    return interval.of_samples(found, repeats_exactly=records[0].setting.is_virtual)


def lost_packets_of(records: Sequence[Record]) -> LostPackets | None:
    """What I/Os waited for TCP's timeouts; None if no repeat has one."""
    found = [_lost_packets_of(record) for record in records]
    had = [each for each in found if each is not None]
    if not had:
        return None
    times = [each.time_ns if each is not None else exact(0.0) for each in found]
    return LostPackets(
        time_ns=Interval(
            min(each.low for each in times),
            stats.median([each.mid for each in times]),
            max(each.high for each in times),
        ),
        resent_bytes=max(each.resent_bytes for each in had),
        slowest_ns=max(each.slowest_ns for each in had),
    )


def _lost_packets_of(record: Record) -> LostPackets | None:
    """Those that waited are the longest, so the squares of what they took are nearly all of the variance, and
    what they took together is between that divided by the longest time and by the least timeout."""
    uses = record.telemetry.tcp if record.telemetry is not None else ()
    resent_bytes = sum(use.retransmitted_bytes for use in uses)
    latency = next(io.latency for io in (record.read, record.write) if io is not None and io.ios)
    slowest_ns, deviation_ns = latency.max_ns or 0.0, latency.stddev_ns
    if not resent_bytes or deviation_ns is None or slowest_ns < LEAST_TIMEOUT_NS:
        return None
    # The other I/Os deviate as well, by no more than what 99 % of all take.
    others_ns = latency.p99_ns or 0.0
    others_ns = others_ns if others_ns < LEAST_TIMEOUT_NS else 0.0
    least_ns, mid_ns, most_ns = (
        max(0.0, deviation_ns**2 - others_ns**2) / slowest_ns,
        deviation_ns**2 / slowest_ns,
        deviation_ns**2 / LEAST_TIMEOUT_NS,
    )
    return LostPackets(
        time_ns=Interval(least_ns, mid_ns, most_ns), resent_bytes=resent_bytes, slowest_ns=slowest_ns
    )


def busy_of(records: Sequence[Record], around_ns: float) -> Interval | None:
    """The part of the I/O time in which the busiest core worked; None if a repeat was not watched.

    The core was watched from before fio's start until after its end. ``around_ns`` is how long it idles there
    in any case. At worst all idle time was within the I/O.
    """
    least, most = [], []
    for record in records:
        idle_ns = idling_ns(record)
        if idle_ns is None or not record.fio_ns:
            return None
        least.append(max(0.0, 1 - idle_ns / record.fio_ns))
        most.append(max(0.0, min(1.0, 1 - (idle_ns - around_ns) / record.fio_ns)))
    low, high = interval.of_samples(least), interval.of_samples(most)
    return Interval(low.low, high.mid, min(1.0, high.high))


def busy_at_one_end(records: Sequence[Record], around_ns: float) -> Interval | None:
    """The same where this end may idle in every cell of a run: no longer than it was watched around the I/O,
    and as likely within it."""
    walls = [use.wall_ns for each in records if each.telemetry for use in each.telemetry.processors]
    beyond_ns = max(walls, default=0) - min(each.fio_ns or 0 for each in records)
    found = busy_of(records, max(0.0, min(around_ns, beyond_ns)))
    return found and Interval(found.low, (found.low + found.high) / 2, found.high)


def busiest_of(records: Sequence[Record]) -> str:
    """The host or hop whose core was the busiest in most repeats; empty if there is only one kernel."""
    seen = Counter[str]()
    for record in records:
        uses = record.telemetry.processors if record.telemetry is not None else ()
        known = [(use.busiest_core, use.whose) for use in uses if use.busiest_core is not None]
        if len(known) > 1:
            seen[max(known)[1]] += 1
    return seen.most_common(1)[0][0] if seen else ""


def idling_ns(record: Record) -> float | None:
    """How long the busiest core of any host idled in the watched time; None if none was watched."""
    uses = record.telemetry.processors if record.telemetry is not None else ()
    busiest = [(use.busiest_core, use.wall_ns) for use in uses if use.busiest_core is not None]
    if not busiest:
        return None
    busiest_core, wall_ns = max(busiest)
    return (1 - busiest_core) * wall_ns


def depth_of(workload: Workload, record: Record) -> int | None:
    """I/Os in flight: as many as fio keeps, but no more than the disk's queue takes."""
    depth = workload.in_flight
    if record.column.transport is None or depth is None:
        return depth
    most = wire.transport(record.column.transport).most_commands(record.session)
    return min(depth, most) if most else depth


def _without_depth(job: Job) -> dict[str, str | None]:
    depth_alone = ("iodepth", "numjobs", "ioengine", "iodepth_batch")
    return {name: value for name, value in job.options if name not in depth_alone}
