"""The one composer: testbed → storage → link → protection → target → initiator → workload.

It runs inside a testbed (``harness.runs.executor``) and knows hosts, but not where they are. It brings up a
column with the column's first cell and leaves it up, so that cells of all columns can alternate.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.analysis import disturbance, sanity
from harness.analysis.schedule import Schedule
from harness.hosts import Host, of_each
from harness.model import (
    LINK_LOCAL,
    PROTECTION_OFF,
    AttachedVolume,
    Backing,
    BackingKind,
    Cell,
    Column,
    Job,
    LinkProfile,
    Record,
    Status,
)
from harness.model.errors import (
    CellInvalid,
    CommandFailed,
    HarnessError,
    HostLost,
    RequirementError,
    UsageError,
)
from harness.model.ranges import out_of_range
from harness.model.reread import Reread
from harness.model.telemetry import RoundTrips, Telemetry
from harness.network import links, wireless
from harness.observe import conditions, connections, environment
from harness.observe.counters import Counted
from harness.observe.kernellog import complaints
from harness.parse.jobfile import (
    described,
    is_open_loop,
    is_repeatable,
    job_file,
    moves_write,
    repeat_seed,
    wall_estimate_s,
)
from harness.parse.open_loop import trial_s
from harness.probes import echo, in_run, judged
from harness.results import bandwidth_series
from harness.results.events import TAKING_DOWN, CellEnded, CellStarted, CellWithdrawn, Phase, Spent, ago_s
from harness.results.machine import MACHINE, TOOLS
from harness.runs import around, fio_startup, measure, reread, spent
from harness.runs.columns import ColumnPath
from harness.runs.composer import Composer
from harness.runs.measure import ConnectedLun
from harness.storage import backing, chap, guard, transports
from harness.storage.backing import ReadyStorage
from harness.storage.reread import COMMAND_REPEATS
from harness.storage.transport import Disk, Export, Lun, NoAnswer, Shared, Sides

FIO_GRACE_S = 30.0
"""How long fio may take beyond its own run time before it counts as hung."""

HARDWARE = ("initiator_hardware", "target_hardware")
"""The environment's keys for what real interfaces report about themselves."""

SIMULATED_CPU_COSTS = Path("/sys/module/charge/parameters/prices")
"""Of kernels with ``charge.patch``: what each operation takes, for virtual time with simulated CPU costs."""

FILLING = "filling the region that writes will overwrite"
BRING_UP_ATTEMPTS = 2
"""How often a column is brought up before all its remaining cells are given up."""


def _describe(path: links.LinkPath) -> dict[str, object]:
    """The link of a connected LUN as it was made, and what real interfaces report about themselves."""
    reported: dict[str, object] = {**links.describe(path)}
    if path.profile.interface is not None:
        from harness.network import interfaces  # here, because most links are emulated

        ends = {
            host: (name, iface)
            for name, (_, host, iface, *_) in zip(HARDWARE, links.ends(path), strict=False)
        }
        found = of_each([*ends], lambda host: interfaces.describe(host, ends[host][1]))
        reported |= {name: each for (name, _), each in zip(ends.values(), found, strict=True)}
    return reported


@dataclass(kw_only=True)
class ColumnUp:
    """A column that is ready to be measured: its connected LUNs, or the disk itself for the column
    ``local``."""

    stack: contextlib.ExitStack
    connected_luns: tuple[ConnectedLun, ...] = ()
    link: LinkProfile | None = None
    tcp: list[str] = field(default_factory=list)
    """What TCP said of each connected LUN after the column's last cell."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Those of its sessions that the plan does not have."""


@dataclass(frozen=True, kw_only=True)
class LocalDisk:
    """What the column ``local`` measures, and on which host."""

    host: Host
    storage: ReadyStorage
    title: str


class CellComposer(Composer):
    """One run of a plan of cells."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unavailable: Mapping[str, RequirementError] = {}
        """The transports that a kernel does not support, and why: their columns are skipped."""
        self._transports: dict[str, Shared] = {}
        self._troubles = [line for name in self.plan.transports for line in transports.named(name).troubles]
        self._storage: list[ReadyStorage] = []
        self._local: LocalDisk | None = None
        self._columns: dict[Column, ColumnUp] = {}
        self._newest: dict[Column, Record] = {}
        self._broken: dict[tuple[Column, tuple[tuple[str, str], ...]], tuple[int, Exception | None]] = {}
        self._jobs = {job.name: job for job in self.plan.jobs}
        self._lost: HostLost | None = None
        self._fio = fio_startup.Fio()
        self._conditions: conditions.ConditionsWatch | None = None
        self._measured_locally: dict[str, list[Record]] = {}
        self._attempts = itertools.count(1)
        self._probes_made: set[str] = set()
        self._reread: Reread | None = None
        self._commanded: set[tuple[Column, int]] = set()
        self._is_filled = False
        self._spent = spent.Stopwatch(is_virtual=self.plan.setting.is_virtual)

    def refuse_storage(self) -> None:
        """DeviceRefused if the storage belongs to somebody else, before anything is brought up."""
        if self.plan.storage.disk is None and self.plan.sees_target:
            backing.refuse_foreign(self.hosts.target, self.plan.storage.backing, count=self._luns)
        if self.plan.storage.local_device is not None:
            backing.refuse_foreign(self.hosts.initiators[0], self.plan.storage.local_device)

    @property
    def _remote(self) -> list[Column]:
        return [column for column in self.plan.columns if column.has_path]

    @property
    def _luns(self) -> int:
        return (
            1
            if self.plan.storage.shared_lun
            else max((column.initiators for column in self._remote), default=1)
        )

    def execute(self, schedule: Schedule) -> None:
        """Measure the cells that remain, in the schedule's order, and write a record for each.

        Raises HarnessError only if the run as a whole cannot go on.
        """
        try:
            with self.shared():
                number = 0
                for order, cell in schedule:
                    if schedule.is_again(cell) and not self._wait_for_idle():
                        schedule.give_up()
                        continue
                    number += 1
                    self.emit(CellStarted(cell.key, number, number - 1 + schedule.expected))
                    record = self.record(cell, order)
                    schedule.take(record)
                    self.emit(
                        CellEnded(
                            cell.key,
                            record.status,
                            record.reason,
                            record.fio_ns,
                            ago_s(record.started_unix_s),
                            disturbance.described(record),
                            sum(io.bytes_per_s for io in (record.read, record.write) if io is not None)
                            or None,
                        )
                    )
                    if self._lost is not None:
                        raise self._lost
                self.emit(TAKING_DOWN)
        finally:
            if self._spent.parts_s:
                self.emit(Spent(self._spent.parts_s, spent.CELLS))

    def _wait_for_idle(self) -> bool:
        with self._spent.on(spent.OTHERS):
            return self._patience.wait_for_idle()

    def record(self, cell: Cell, order: int) -> Record:
        """Measure a cell and keep its record, which may be withdrawn until its column is taken down."""
        record = self._newest[cell.column] = self._save(self.measure(cell, order))
        return record

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """What all columns share, and every column that is brought up within, until the end."""
        plan, target = self.plan, self.hosts.target
        remote = self._remote
        with contextlib.ExitStack() as stack:
            self._tell_what_is_left(stack)
            if plan.sees_target:
                self.emit(Phase("making and filling the disk"))
                self._storage = self._make_storage(stack)
            if (volume := plan.storage.volume) is not None:
                host = self.hosts.initiators[0]
                there = stack.enter_context(self._volume(host, volume, plan.storage.backing))
                self._local = LocalDisk(host=host, storage=there, title=volume.title)
            elif plan.storage.local_device is not None:
                host = self.hosts.initiators[0]
                (own,) = stack.enter_context(backing.bring_up(self.journal, host, plan.storage.local_device))
                self._local = LocalDisk(host=host, storage=own, title=f"{own.path} of the initiator")
            elif self._storage:
                title = "local disk" if target.kernel == self.hosts.initiators[0].kernel else "target's disk"
                title = plan.storage.disk.title if plan.storage.disk is not None else title
                self._local = LocalDisk(host=target, storage=self._storage[0], title=title)
            if not plan.setting.is_virtual:  # there a second look would change the run
                self._conditions = conditions.ConditionsWatch(self.hosts.all)
            if plan.setting.is_virtual:
                for host in {host.kernel: host for host in self.hosts.all}.values():
                    self._fio = fio_startup.in_virtual_time(host, self.private)
            elif plan.capabilities.boots_one_kernel:
                self._fio = fio_startup.fio()
                self._facts["fio"] = self._fio.described
            if plan.probes or not plan.setting.is_virtual:
                self._observer = self.hosts.observer(self.emit, energy=plan.probes)
            self._facts |= environment.describe(
                self.hosts.all, self.hosts.hops, tools=self._tools(), more=transports.versions()
            )
            local = self._local.storage if self._local is not None else None
            for name, storage in (("device", next(iter(self._storage), None)), ("local_device", local)):
                if storage is not None and storage.device is not None:
                    self._facts[name] = msgspec.to_builtins(storage.device)
            self.folder.save_environment(self._facts)
            if remote:
                self._start_sides(stack)
            stack.callback(self._close_columns)
            yield

    @contextlib.contextmanager
    def _volume(self, host: Host, volume: AttachedVolume, part: Backing) -> Iterator[ReadyStorage]:
        """What is attached already, or a new file there."""
        if not volume.is_new:
            from harness.storage import attached  # here and below, because a run makes most disks

            if part.destroy is not None:
                self.emit(Phase(FILLING))
            with attached.there(host, volume, part) as ready:
                yield ready
            return
        self.emit(Phase("making and filling the file"))
        new = Backing(kind=BackingKind.FILE, size_bytes=part.size_bytes, path=volume.path)
        with backing.bring_up(self.journal, host, new) as (ready,):
            yield ready

    def _tools(self) -> dict[str, str] | None:
        """The versions of tools, if the machine below the lab has reported them."""
        if not self.plan.capabilities.boots_one_kernel:
            return None
        tools: object = None
        with contextlib.suppress(UsageError):  # a damaged file of a resumed run, which is written anew
            machine = self.folder.load_environment().get(MACHINE)
            tools = machine.get(TOOLS) if isinstance(machine, dict) else None
        return {str(name): str(tools[name]) for name in tools} if isinstance(tools, dict) else None

    def _make_storage(self, stack: contextlib.ExitStack) -> list[ReadyStorage]:
        plan, target = self.plan, self.hosts.target
        if plan.storage.disk is None:
            return stack.enter_context(
                backing.bring_up(self.journal, target, plan.storage.backing, count=self._luns)
            )
        log = self.folder.path / "disk.log"
        made = backing.model(
            self.journal,
            target,
            plan.storage.disk,
            plan.storage.backing.size_bytes,
            count=self._luns,
            folder=self.private,
            log=log,
        )
        return stack.enter_context(made)

    def _kernel_messages(self) -> list[str]:
        """The messages of all hosts' kernels since the last call."""
        kernels = {host.kernel: host for host in self.hosts.all}
        return [line for host in kernels.values() for line in host.kernel_messages()]

    def _save(self, record: Record) -> Record:
        """Keep a record. If the disk is full, this cell has no figure, and the earlier ones stay.

        A record with an impossible figure could not be read again, so it is kept without any.
        """
        if wrong := out_of_range(record):
            reason = f"the cell has an impossible figure: {wrong}"
            record = msgspec.structs.replace(
                record,
                status=Status.FAILED,
                reason=reason,
                read=None,
                write=None,
                sync_latency=None,
                fio_ns=0,
                proof=None,
                clients=(),
                wifi=(),
                telemetry=None,
            )
        try:
            self.folder.save_record(record)
        except OSError as error:
            reason = f"its record could not be written: {error.strerror}"
            return msgspec.structs.replace(record, status=Status.INVALID, reason=reason)
        return record

    def _start_sides(self, stack: contextlib.ExitStack) -> None:
        """What all columns over a network share: what their transports share, and (when needed) charons."""
        for name in self.plan.transports:
            if name in self.unavailable:
                continue
            initiators = max(column.initiators for column in self._remote if column.transport == name)
            sides = Sides(
                journal=self.journal,
                tag=self.plan.tag,
                target=self.hosts.target,
                initiators=self.hosts.initiators[:initiators],
                luns=tuple(map(self._lun, range(len(self._storage)))),
                logs=self.folder.path,
                black_box=self.plan.storage.black_box,
                secrets=chap.known(),
            )
            self._transports[name] = stack.enter_context(transports.named(name).shared(sides))
        stack.enter_context(self._paths.shared())

    def _lun(self, number: int) -> Lun:
        """A piece of storage as it is exported; of somebody else's target only its size is known."""
        if not self._storage:
            size_bytes = self.plan.storage.backing.size_bytes
            return Lun(serial="", kind=BackingKind.BLOCK, path="", size_bytes=size_bytes)
        storage = self._storage[number]
        kind = BackingKind.FILE if self.plan.storage.backing.kind is BackingKind.FILE else BackingKind.BLOCK
        serial = f"harness-{self.plan.tag}-{number}"
        return Lun(serial=serial, kind=kind, path=storage.path, size_bytes=storage.size_bytes)

    def _close_columns(self) -> None:
        with self._spent.on(spent.COLUMNS_DOWN), contextlib.ExitStack() as stack:
            for column in self._columns.values():
                stack.push(column.stack)
            self._columns.clear()

    def column(self, column: Column, parameters: Mapping[str, str] = {}) -> ColumnUp:
        """The column with these ``parameters`` besides the plan's, brought up if necessary; HarnessError if
        that fails."""
        if column in self._columns and self._columns[column].parameters != parameters:
            self.take_down(column)
        if column in self._columns:
            return self._columns[column]
        if column.transport is not None and column.transport in self.unavailable:
            raise self.unavailable[column.transport]
        key = column, tuple(parameters.items())
        attempts, broken = self._broken.get(key, (0, None))
        if attempts >= BRING_UP_ATTEMPTS:
            kind = RequirementError if isinstance(broken, RequirementError) else CommandFailed
            raise kind(f"given up after {attempts} attempts: {broken}")
        black_box = self.plan.storage.black_box
        if black_box is not None and (black_box.swanctl or any(each.initiators > 1 for each in self._remote)):
            # A connection protects all ways to the portal: also that of a column that is without. And an
            # initiator has one session with a portal, which columns of one and of several would share.
            for other in [*self._columns]:
                self.take_down(other)
        try:
            profile = self.plan.links.get(column.link)
            with contextlib.ExitStack() as stack:
                connected_luns: list[ConnectedLun] = []
                # Entered first, so that it runs when all else is down.
                stack.callback(self._judge_what_is_left, column, connected_luns)
                numbers = range(column.initiators if column.has_path else 0)
                # All paths before the first portal, because the target's canary needs its address and port.
                paths = [self._paths.bring_up(column, number, stack) for number in numbers]
                connected_luns.extend(
                    self._log_in(column, number, up, stack, parameters)
                    for number, up in zip(numbers, paths, strict=True)
                )
                described = [_describe(connected_lun.link) for connected_lun in connected_luns]
                if profile is not None:
                    ends = (each.get(name) for each in described for name in HARDWARE)
                    profile = sanity.pre_existing(profile, [end for end in ends if isinstance(end, dict)])
                up = ColumnUp(
                    stack=stack.pop_all(),
                    connected_luns=tuple(connected_luns),
                    link=profile,
                    parameters=parameters,
                )
        except HostLost:
            raise
        except (HarnessError, OSError) as error:
            self._broken[key] = (attempts + 1, error)
            raise
        self._columns[column] = up
        if connected_luns:
            associations = [
                connected_lun.up.air_path.association
                for connected_lun in connected_luns
                if connected_lun.up.air_path
            ]
            self._note_column(
                column,
                paths,
                link=described,
                session=[connected_lun.session for connected_lun in connected_luns],
                association=msgspec.to_builtins(associations),
            )
        return up

    def take_down(self, column: Column) -> None:
        """Take down a column that is up. The end of the run reports what could not be taken down."""
        try:
            with self._spent.on(spent.COLUMNS_DOWN):
                self._columns.pop(column).stack.close()
        except (HarnessError, OSError) as error:
            self.journal.leaks.append(f"column {column.label} was not taken down: {error}")

    def _judge_what_is_left(self, column: Column, connected_luns: list[ConnectedLun]) -> None:
        """For a column that is down: judge what its captures saw after its last cell."""
        late = (
            measure.judge_late(connected_lun, [each.capture.last for each in connected_lun.up.watched])
            for connected_lun in connected_luns
        )
        self._judge_newest(column, list(itertools.chain.from_iterable(late)))

    def _judge_newest(self, column: Column, reasons: list[str]) -> None:
        """The column's newest record counts for good, or not any more if there are reasons."""
        record = self._newest.pop(column, None)
        if reasons and record is not None and record.status is Status.OK:
            reason = "; ".join(reasons)
            record = msgspec.structs.replace(record, status=Status.INVALID, reason=reason)
            self._save(record)
            key = Cell(column=column, workload=record.workload.name, repeat=record.repeat).key
            self.emit(CellWithdrawn(key, reason))

    def _log_in(
        self,
        column: Column,
        number: int,
        up: ColumnPath,
        stack: contextlib.ExitStack,
        parameters: Mapping[str, str],
    ) -> ConnectedLun:
        """The connected LUN of one initiator over a path that is up: target, session, disk."""
        plan, host, path = self.plan, self.hosts.initiators[number], up.path
        name = ".".join((column.link, *(column.protection or (PROTECTION_OFF,))))
        if column.initiators > 1:
            name += f".{column.initiators}.{number + 1}"
        transport = column.transport or ""
        wanted = Export(
            name=name,
            number=number,
            lun=self._lun(0 if plan.storage.shared_lun else number),
            target=path.target,
            address=path.target_address,
            port=path.port,
            bound_to=path.initiator_iface if path.is_shared else None,
            read_only=plan.storage.shared_lun,
            tls=up.has_tls,
            parameters={**plan.parameters_of(transport), **parameters},
        )
        try:
            session = stack.enter_context(self._transports[transport].attach(wanted))
        except NoAnswer as error:
            what = " or ".join(layer.title for layer in up.layers) or f"TCP port {path.port}"
            raise CommandFailed(error.message, hint=f"does a firewall in between drop {what}?") from error
        disk, device = session.disk, None
        if plan.storage.black_box is not None and not plan.only_reads:
            disk, device = self._open(host, disk)
        return ConnectedLun(
            up=up,
            disk=disk,
            device=device,
            session=session.agreed,
            outages={} if plan.storage.black_box else self._transports[transport].outages(wanted),
            is_wireless=wireless.is_wireless(host, up.link.initiator_iface),
        )

    def _open(self, host: Host, disk: Disk) -> tuple[Disk, guard.Device]:
        """A LUN of somebody else's that is written to: guarded, and filled once in a run."""
        from harness.storage import attached

        part = self.plan.storage.backing
        disk, device = attached.opened(host, disk, part, ours=self._own_paths)
        if not self._is_filled:
            self.emit(Phase(FILLING))
            backing.fill(host, disk.device, part.size_bytes, offset_bytes=part.offset_bytes)
            self._is_filled = True
        disk.check()
        return disk, device

    @property
    def _own_paths(self) -> list[str]:
        """The disks of all sessions that are up."""
        return [
            connected_lun.disk.device for up in self._columns.values() for connected_lun in up.connected_luns
        ]

    def measure(self, cell: Cell, order: int) -> Record:
        """Measure one cell. Whatever goes wrong becomes the cell's status and reason."""
        column, plan = cell.column, self.plan
        job = self._jobs[cell.workload]
        apart = around.of(plan, cell)
        profile: LinkProfile | None = plan.links.get(column.link)
        began = time.monotonic_ns()
        record = Record(
            run_id=plan.run_id,
            setting=plan.setting,
            column=column,
            workload=described(job),
            repeat=cell.repeat,
            order=order,
            status=Status.FAILED,
            started_unix_s=time.time(),
            emulated=profile.emulated if profile else False,
            link_title=profile.title if profile else self._local.title if self._local else "",
            encrypts=plan.encrypts(column),
            overrides=plan.overrides,
        )
        try:
            with self._spent.on(spent.COLUMNS_UP):
                up = self.column(column, apart.parameters if apart is not None else {})
            self._kernel_messages()
            if up.connected_luns:
                first = up.connected_luns[0]
                record = msgspec.structs.replace(record, session=first.session, agreed=first.up.agreed)
                if up.link is not None and up.link.interface is not None:
                    record = msgspec.structs.replace(record, link_rate_bit_s=up.link.rate_bit_s)
            record = msgspec.structs.replace(record, reread=self._reread_of(up))
            self._recheck_device(up, job)
            with self._spent.on(spent.CELLS), self._charged(column, job):
                record = self._measure(cell, job, up, record)
            with self._spent.on(spent.PROBES):
                self._probe(cell, up, record)
        except RequirementError as error:
            record = msgspec.structs.replace(record, status=Status.SKIPPED, reason=str(error))
        except CellInvalid as error:
            record = msgspec.structs.replace(record, status=Status.INVALID, reason=str(error))
        except (HarnessError, OSError) as error:
            self._lost = error if isinstance(error, HostLost) else None
            record = msgspec.structs.replace(record, status=Status.FAILED, reason=str(error))
        if (record.status is not Status.OK or apart is not None) and column in self._columns:
            # What broke may still be broken, so the next cell of this column starts from scratch. If this one
            # ended before the one before it was judged, what the captures see until then counts for that one.
            self.take_down(column)
        return msgspec.structs.replace(record, wall_ns=time.monotonic_ns() - began)

    def _reread_of(self, up: ColumnUp) -> Reread | None:
        """Whether a disk answers reads of a black-box target; None for storage that is known."""
        if self.plan.sees_target:
            return None
        if up.connected_luns:
            host, path = up.connected_luns[0].path.initiator, up.connected_luns[0].disk.device
        elif self.plan.storage.volume is not None and self._local is not None:
            host, path = self._local.host, self._local.storage.path
        else:
            return None
        if self._reread is None:
            self._reread = reread.of_volume(host, path, self.plan, self.folder.path, self.emit)
        return self._reread

    def _commands(self, cell: Cell, connected_luns: tuple[ConnectedLun, ...]) -> RoundTrips | None:
        """How long commands take that need no disk, once for a column in each of the first rounds; None where
        it was taken, the transport has none, or both ends are one core in real time."""
        due = cell.column, cell.repeat
        is_one_core = self.plan.capabilities.shares_kernel and not self.plan.setting.is_virtual
        if not connected_luns or due in self._commanded or cell.repeat > COMMAND_REPEATS or is_one_core:
            return None
        self._commanded.add(due)
        return reread.of_commands(connected_luns[0].path.initiator, connected_luns[0].disk.device)

    def _probe(self, cell: Cell, up: ColumnUp, record: Record) -> None:
        """Make the probes that are due with a cell, after it: so the first cell of a run begins sooner. They
        are short, and never fatal for a cell."""
        if not up.connected_luns or record.status is not Status.OK:
            return
        for probe, repeat in in_run.due(self.plan, cell.column, cell.repeat):
            blank = judged.blank(self.plan, cell.column, probe, repeat=repeat)
            if blank.key in self._probes_made:
                continue
            self._probes_made.add(blank.key)
            blank = msgspec.structs.replace(blank, is_from_run=True)
            try:
                self.folder.save_probe(self._probed(blank, up.connected_luns[0].up))
            except HostLost as error:  # the cell has been measured before
                self._lost = error
                return

    def _over_time(self, host: Host, log: Path, raw: Path) -> tuple[str, ...]:
        """Keep fio's bandwidth log from its host, and return the doubts that it raises."""
        (text,) = host.read_files([f"{log}_bw.log"])
        if not text:
            return ()
        (raw / bandwidth_series.LOG).write_text(text, encoding="utf-8")
        job = (raw / "job.fio").read_text(encoding="utf-8")
        try:
            return bandwidth_series.doubts(bandwidth_series.of_log(text, job)[1])
        except UsageError as error:
            return (f"fio's log of bandwidth cannot be read: {error.message}",)

    def _sane(self, record: Record, up: ColumnUp) -> Record:
        """The record, checked against what its link and its disk can do."""
        local = self._measured_locally.setdefault(record.workload.name, [])
        record = sanity.check(record, link=up.link, disk=self.plan.storage.disk, local=local)
        # The initiator's own disk says nothing about the target's.
        if record.column.link == LINK_LOCAL and self.plan.storage.local_device is None:
            local.append(record)
        return record

    def _no_round_trips(self, cell: Cell, record: Record) -> str | None:
        """Why none are measured before a cell. What a lab emulates is the same in each round."""
        if not record.emulated:
            return None
        if not self.plan.probes_paths:
            return "not requested for emulated links"
        if self._is_lab_owned and cell.repeat > echo.IN_RUN_REPEATS:
            return f"they were measured in the first {echo.IN_RUN_REPEATS} rounds"
        return None

    @property
    def _is_lab_owned(self) -> bool:
        """In the lab's kernel in real time nobody else uses a session; in virtual time a program that is left
        out would change the run."""
        return self.plan.capabilities.boots_one_kernel and not self.plan.setting.is_virtual

    def _connections(self, connected_luns: tuple[ConnectedLun, ...]) -> list[str]:
        """What TCP says of each connected LUN; nothing in a run without probes."""
        return [
            connections.look(
                path.initiator,
                path.initiator_address,
                path.target_address,
                path.port,
                is_here=self._is_lab_owned,
            )
            if self.plan.probes
            else ""
            for path in (connected_lun.path for connected_lun in connected_luns)
        ]

    def _sources_of_randomness(self, cell: Cell, job: Job) -> list[str]:
        """Why a cell would not repeat exactly in virtual time."""
        if not self.plan.setting.is_virtual:
            return []
        link = self.plan.links.get(cell.column.link)
        found = []
        if link is not None and link.loss_percent:
            found.append("its link loses packets at random")
        if link is not None and link.jitter_us:
            found.append("its link has random jitter")
        if not is_repeatable(job):
            found.append("its workload has randrepeat=0")
        return [f"this cell is not repeatable to the last digit: {what}" for what in found]

    def _recheck_device(self, up: ColumnUp, job: Job) -> None:
        """Check before each job that writes that a device of the user's is still the one that was named."""
        local = self._local
        host, storage = self.hosts.target, next(iter(self._storage), None)
        if not up.connected_luns and local is not None:
            host, storage = local.host, local.storage
        if not moves_write(job):
            return
        if up.connected_luns and (device := up.connected_luns[0].device) is not None:
            guard.recheck(up.connected_luns[0].disk.host, device, ours=self._own_paths)
        elif storage is not None and storage.device is not None:
            is_unit = self.plan.storage.volume is not None
            guard.recheck(host, storage.device, ours=() if is_unit else None)

    @contextlib.contextmanager
    def _charged(self, column: Column, job: Job) -> Iterator[None]:
        """Have each kernel charge what operations take in this cell, and nothing before and after it; without
        a program, because one more to start is another order in it. RequirementError if a kernel cannot."""
        simulated_cpu_costs = self.plan.simulated_cpu_costs.get(column.label, {})
        hosts = (self.hosts.target, *self.hosts.initiators[: column.initiators])
        with contextlib.ExitStack() as stack:
            for host in {host.kernel: host for host in hosts if self.plan.setting.predicted_from}.values():
                end = "target" if host is self.hosts.target else "initiator"
                costs = (
                    simulated_cpu_costs.get(f"both {job.name}")
                    or simulated_cpu_costs.get(f"{end} {job.name}")
                    or ("none",)
                )
                try:
                    host.write_secret(SIMULATED_CPU_COSTS, ",".join(map(str, costs)))
                except (CommandFailed, OSError) as error:
                    raise RequirementError(
                        f"expected {SIMULATED_CPU_COSTS} in the {host.name}'s kernel: {error}",
                        hint="plan it anew, with --cpu-costs and without --lab-kernel",
                    ) from error
                stack.callback(host.write_secret, SIMULATED_CPU_COSTS, ",".join("0" * len(costs)))
            try:
                yield
            except HostLost:
                stack.pop_all()  # a kernel that is lost charges nothing, and who asks it hides why
                raise

    def _measure(self, cell: Cell, job: Job, up: ColumnUp, record: Record) -> Record:
        """Let fio do the workload on the column's disk, and add the result to the record."""
        plan, local = self.plan, self._local
        raw = self.folder.new_raw_folder(cell.key)
        connected_luns = up.connected_luns
        # Of each attempt another one, because fio appends to a log that is there.
        name = f"{cell.key}.{next(self._attempts)}"
        log = self.private / name if len(connected_luns) < 2 and not plan.setting.is_virtual else None
        apart = around.of(plan, cell)
        # A load around something is none of a search, which has short ones first.
        is_trial = is_open_loop(job) and apart is None

        def job_on(device: str) -> str:
            return job_file(
                job,
                device=device,
                size_bytes=plan.storage.backing.size_bytes,
                offset_bytes=plan.storage.backing.offset_bytes,
                seed=repeat_seed(plan.seed, cell.repeat, cell.workload),
                runtime_s=trial_s(job, cell.repeat) if is_trial else plan.runtime_s,
                clock=plan.setting.clock,
                has_tested_clock=self._fio.has_tested_clock,
                log=None if log is None else str(log),
            )

        program = fio_startup.open_loop() if is_open_loop(job) else self._fio
        program = apart.program if apart is not None else program
        if plan.only_reads and not is_open_loop(job):
            # What is read there is somebody's, and stays as it is (fio(1)).
            program = program.read_only()
        lasts_s = wall_estimate_s(job, plan.runtime_s)
        timeout_s = lasts_s + FIO_GRACE_S
        protected = bool(cell.column.protection)
        telemetry = Telemetry()
        if plan.probes and connected_luns:
            found, reason = None, self._no_round_trips(cell, record)
            if reason is None:
                found, reason = echo.before_cell(connected_luns[0].path, protected=protected)
            telemetry = Telemetry(
                round_trips=found,
                no_round_trips=reason,
                emulation_round_trip_ns=self._paths.emulation_ns.get(cell.column.link),
            )
        record = msgspec.structs.replace(record, started_unix_s=time.time())
        before = self._conditions.look() if self._conditions is not None else {}
        # Between its cells a session of the lab's moves nothing but a NOP now and then.
        tcp_before = up.tcp if up.tcp and self._is_lab_owned else self._connections(connected_luns)
        watching, counts = self._watch(), list[Counted]()

        @contextlib.contextmanager
        def during() -> Iterator[None]:
            # Inside of who looks at other programs: on real machines that is a program, which works there.
            with watching, contextlib.ExitStack() as stack:
                count = self._observer.watch()
                if apart is not None:
                    stack.enter_context(apart.while_it_runs(connected_luns[0], self.journal, raw))
                yield
                counts.append(count())

        if connected_luns:
            done = measure.on_connected_luns(
                connected_luns,
                job_on,
                raw,
                timeout_s=timeout_s,
                apart=not plan.capabilities.shares_kernel,
                may=apart.may if apart is not None else measure.Meanwhile(),
                is_brief=self._is_lab_owned and lasts_s < wireless.INTERVAL_S,
                program=program,
                during=during(),
                judge_previous=functools.partial(self._judge_newest, cell.column),
            )
        elif local is not None:
            path = local.storage.path
            with during():
                done = measure.on_disk(local.host, job_on(path), raw, timeout_s=timeout_s, program=program)
        (counted,) = counts
        tcp_after = up.tcp = self._connections(connected_luns)
        done.warnings += (*conditions.saturated(counted.processors), *counted.warnings)
        if self._conditions is not None:
            done.warnings += conditions.changed(before, self._conditions.look())
        if log is not None and local is not None:
            done.warnings += self._over_time(
                connected_luns[0].path.initiator if connected_luns else local.host, log, raw
            )
        if plan.probes:
            telemetry = msgspec.structs.replace(
                telemetry,
                processors=counted.processors,
                interfaces=(*(use for part in done.parts for use in part.interfaces), *counted.interfaces),
                tcp=tuple(
                    use
                    for connected_lun, *looks in zip(connected_luns, tcp_before, tcp_after, strict=True)
                    if (use := connections.between(connected_lun.path.initiator.name, *looks)) is not None
                ),
                commands=self._commands(cell, connected_luns),
                lost_hops=dict(counted.lost_hops),
            )
        done.warnings += self._sources_of_randomness(cell, job)
        if apart is None:
            done.reasons += complaints(self._kernel_messages(), self._troubles)
        record = measure.summarise(done, job, record)
        busy = max((use.busy for use in counted.processors if use.busy is not None), default=1.0)
        telemetry = msgspec.structs.replace(
            telemetry, background_load=watching.taken(record.fio_ns, busy=busy)
        )
        record = msgspec.structs.replace(record, telemetry=telemetry if telemetry != Telemetry() else None)
        record = self._sane(record, up)
        if apart is not None:
            record = apart.judged(record, connected_luns[0], raw)
        return msgspec.structs.replace(
            record,
            raw=tuple(str(f.relative_to(self.folder.path)) for f in sorted(raw.rglob("*")) if f.is_file()),
        )
