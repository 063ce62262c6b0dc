"""The one composer: testbed → storage → link → protection → target → initiator → workload.

It runs inside a testbed (``harness.inside``) and knows of hosts, not of where they are. Columns are
brought up when their first cell comes and stay up, so that cells of all columns can alternate.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness import backing, capture, environment, guard, initiator, ipsec, leftovers, links, proof
from harness.backing import Storage
from harness.errors import CellInvalid, CommandFailed, HarnessError, RequirementError
from harness.events import CellEnded, CellStarted, Emit, Phase
from harness.hosts import Host, NamespaceHost
from harness.jobfile import block_bytes, job_file, moves_read, moves_write, repeat_seed, wall_estimate_s
from harness.journal import Journal
from harness.kernellog import complaints
from harness.model import (
    IPSEC_OFF,
    LINK_LOCAL,
    BackingKind,
    Cell,
    Column,
    Io,
    LinkProfile,
    Plan,
    Proof,
    Record,
    Status,
    Workload,
)
from harness.parse import fio
from harness.results import RunFolder
from harness.target import Backstore, IscsiTarget, iqn

FIO_GRACE_S = 30.0
"""How long fio may take beyond its own run time before it is taken for hung."""

BRING_UP_ATTEMPTS = 2
"""How often a column is brought up before all its remaining cells are given up."""


def order_of_cells(plan: Plan) -> list[Cell]:
    """All cells of a plan in the order they are measured: each repeat is one shuffled block."""
    cells: list[Cell] = []
    for repeat in range(1, plan.repeats + 1):
        block = [
            Cell(column=column, workload=workload.name, repeat=repeat)
            for column in plan.columns
            for workload in plan.workloads
        ]
        # Not for secrecy: a stored seed has to give the same order again.
        random.Random(f"{plan.seed}/{repeat}").shuffle(block)  # noqa: S311
        cells += block
    return cells


@dataclass(kw_only=True)
class ColumnUp:
    """A column that is ready to be measured. ``path``, ``disk`` and ``capture`` are None for local."""

    device: str
    stack: contextlib.ExitStack
    path: links.LinkPath | None = None
    disk: initiator.RemoteDisk | None = None
    capture: capture.Capture | None = None
    session: dict[str, str] = field(default_factory=dict)
    esp: dict[str, str] = field(default_factory=dict)


class Bench:
    """One run of a plan. ``private`` is a folder for sockets and secrets, gone with the testbed."""

    def __init__(self, plan: Plan, folder: RunFolder, emit: Emit, *, journal: Journal, private: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.emit = emit
        self.journal = journal
        self.private = private
        self.tag = plan.run_id.rpartition("-")[2]
        self.initiator: Host = NamespaceHost(name="initiator")
        self.target: Host = NamespaceHost(name="target")
        self.initiator_iqn = iqn(self.tag, "initiator")
        self.serial = f"harness-{self.tag}"
        self.chap_secret = secrets.token_hex(8)
        self._columns: dict[Column, ColumnUp] = {}
        self._broken: dict[Column, tuple[int, Exception | None]] = {}
        self._charon: ipsec.Charon | None = None
        self._credentials: ipsec.Credentials | None = None
        self._workloads = {workload.name: workload for workload in plan.workloads}
        self._facts: dict[str, object] = {}

    def execute(self, todo: list[tuple[int, Cell]]) -> None:
        """Measure the cells in ``todo`` (place in the order, cell) and write a record for each.

        Raises HarnessError only where the run as a whole cannot go on.
        """
        with self.shared() as storage:
            for number, (order, cell) in enumerate(todo, 1):
                self.emit(CellStarted(cell.key, number, len(todo)))
                record = self._save(self.measure(cell, order, storage))
                self.emit(
                    CellEnded(cell.key, record.status, record.reason, record.fio_ns, record.started_unix_s)
                )
            self.emit(Phase("taking everything down"))

    @contextlib.contextmanager
    def shared(self) -> Iterator[Storage]:
        """What all columns share, and every column that is brought up meanwhile, until the end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._look_for_leftovers)
            self.emit(Phase("making and filling the disk"))
            storage = stack.enter_context(backing.bring_up(self.journal, self.target, self.plan.backing))
            self._facts |= environment.describe({"initiator": self.initiator, "target": self.target})
            if storage.device is not None:
                self._facts["device"] = msgspec.to_builtins(storage.device)
            self.folder.save_environment(self._facts)
            if any(column.link != LINK_LOCAL for column in self.plan.columns):
                self._start_sides(stack, storage)
            stack.callback(self._close_columns)
            yield storage

    def _look_for_leftovers(self) -> None:
        found: list[str] = []
        for host in (self.initiator, self.target):
            try:
                found += leftovers.find(host, self.tag)
            except HarnessError:
                found.append(f"what is left on the {host.name} could not be seen")
        # Two hosts of one kernel see the same.
        self.journal.leaks += dict.fromkeys(found)

    def _save(self, record: Record) -> Record:
        """Keep a record. If the disk is full, this cell has no number, and the earlier ones stay."""
        try:
            self.folder.save_record(record)
        except OSError as error:
            reason = f"its record could not be written: {error.strerror}"
            return msgspec.structs.replace(record, status=Status.INVALID, reason=reason)
        return record

    def _start_sides(self, stack: contextlib.ExitStack, storage: Storage) -> None:
        """What all columns over a network share: the backstore, iscsid, and (lazily) one charon."""
        plan = self.plan
        kind = BackingKind.FILE if plan.backing.kind is BackingKind.FILE else BackingKind.BLOCK
        stack.enter_context(
            self.journal.hold(
                self.target,
                Backstore(self._backstore, kind, storage.path, storage.size_bytes, self.serial),
            )
        )
        stack.enter_context(
            initiator.iscsid(
                self.initiator,
                initiator_iqn=self.initiator_iqn,
                chap_user="harness",
                secret=self.chap_secret,
                log=self.folder.path / "iscsid.log",
            )
        )
        self._shared = stack.enter_context(contextlib.ExitStack())

    @property
    def _backstore(self) -> str:
        return f"harness-{self.tag}"

    def _kernel_messages(self) -> list[str]:
        """What the kernels of all hosts said since the last call."""
        kernels = {host.kernel: host for host in (self.initiator, self.target)}
        return [line for host in kernels.values() for line in host.kernel_messages()]

    def _close_columns(self) -> None:
        with contextlib.ExitStack() as stack:
            for column in self._columns.values():
                stack.push(column.stack)
            self._columns.clear()

    def column(self, column: Column, storage: Storage) -> ColumnUp:
        """The column, brought up if it is not; raises HarnessError if it cannot be."""
        if column in self._columns:
            return self._columns[column]
        attempts, broken = self._broken.get(column, (0, None))
        if attempts >= BRING_UP_ATTEMPTS:
            kind = RequirementError if isinstance(broken, RequirementError) else CommandFailed
            raise kind(f"given up after {attempts} attempts: {broken}")
        try:
            with contextlib.ExitStack() as stack:
                up = ColumnUp(device=storage.path, stack=stack)
                if column.link != LINK_LOCAL:
                    self._bring_up(column, up)
                up.stack = stack.pop_all()
        except (HarnessError, OSError) as error:
            self._broken[column] = (attempts + 1, error)
            raise
        self._columns[column] = up
        return up

    def _bring_up(self, column: Column, up: ColumnUp) -> None:
        plan, stack = self.plan, up.stack
        index = [c for c in plan.columns if c.link != LINK_LOCAL].index(column)
        raw = self.folder.path / "columns" / column.label
        raw.mkdir(parents=True, exist_ok=True)
        path = stack.enter_context(
            links.bring_up(self.journal, self.initiator, plan.links[column.link], tag=self.tag, index=index)
        )
        protected = column.ipsec != IPSEC_OFF
        up.path = path
        if protected:
            up.esp = self._protect(column, path, stack, index, raw)
        up.capture = stack.enter_context(capture.capture(path, raw, protected=protected))
        target = IscsiTarget(
            iqn=iqn(self.tag, f"{column.link}.{column.ipsec}"),
            backstore=self._backstore,
            address=path.target_address,
            initiator_iqn=self.initiator_iqn,
            chap_user="harness",
            secret=self.chap_secret,
        )
        stack.enter_context(self.journal.hold(path.target, target))
        session = stack.enter_context(
            self.journal.hold(
                self.initiator,
                initiator.IscsiSession(target.iqn, path.target_address, self.initiator_iqn),
            )
        )
        up.disk = initiator.await_disk(self.initiator, session, serial=self.serial)
        up.device = up.disk.device
        up.session = initiator.negotiated(up.disk)
        self._facts[f"column {column.label}"] = {
            "link": links.describe(path),
            "session": up.session,
            "esp": up.esp,
        }
        self.folder.save_environment(self._facts)

    def _protect(
        self,
        column: Column,
        path: links.LinkPath,
        stack: contextlib.ExitStack,
        index: int,
        raw: Path,
    ) -> dict[str, str]:
        """Close the barrier, then open the tunnel through it."""
        plan = self.plan
        plugins = sorted({name for p in plan.proposals.values() for name in p.charon_plugins})
        load = " ".join((ipsec.BASE_PLUGINS, *plugins))
        near, far = path.initiator_address, path.target_address
        stack.enter_context(self.journal.hold(path.initiator, ipsec.Barrier("initiator", near, far)))
        stack.enter_context(self.journal.hold(path.target, ipsec.Barrier("target", near, far)))
        stack.enter_context(self.journal.hold(path.initiator, ipsec.SecurityAssociations(near, far)))
        stack.enter_context(self.journal.hold(path.target, ipsec.SecurityAssociations(far, near)))
        if self._credentials is None:
            self._credentials = ipsec.make_credentials(
                self.initiator, plan.ike_auth, self.private / "certificates"
            )
        if self._charon is None or not self._charon.answers():
            self._charon = self._shared.enter_context(
                ipsec.charon(
                    self.initiator,
                    self.private / "charon-initiator",
                    log=self.folder.path / "charon-initiator.log",
                    plugins=load,
                )
            )
        responder = stack.enter_context(
            ipsec.charon(
                path.target,
                self.private / f"charon-target-{index}",
                log=raw / "charon-target.log",
                plugins=load,
            )
        )
        return stack.enter_context(
            ipsec.tunnel(
                path,
                (self._charon, responder),
                name=f"harness-{self.tag}-{index}",
                proposal=plan.proposals[column.ipsec],
                mode=plan.ipsec_mode,
                credentials=self._credentials,
                reqid=0x48000000 + index,
            )
        )

    def measure(self, cell: Cell, order: int, storage: Storage) -> Record:
        """Measure one cell. Whatever goes wrong becomes its status and reason, and stays with it."""
        column, plan = cell.column, self.plan
        workload = self._workloads[cell.workload]
        profile: LinkProfile | None = plan.links.get(column.link)
        began = time.monotonic_ns()
        record = Record(
            run_id=plan.run_id,
            testbed=plan.testbed,
            workload=cell.workload,
            link=column.link,
            ipsec=column.ipsec,
            repeat=cell.repeat,
            order=order,
            status=Status.FAILED,
            started_unix_s=time.time(),
            block_bytes=block_bytes(workload),
            emulated=profile.emulated if profile else False,
            link_title=profile.title if profile else "local disk",
            ipsec_mode=plan.ipsec_mode.value if column.ipsec != IPSEC_OFF else None,
        )
        try:
            up = self.column(column, storage)
            self._kernel_messages()
            record = msgspec.structs.replace(record, session=up.session, esp=up.esp)
            if storage.device is not None and moves_write(workload):
                guard.recheck(self.target, storage.device)
            record = self._run_fio(cell, workload, up, record)
        except RequirementError as error:
            record = msgspec.structs.replace(record, status=Status.SKIPPED, reason=str(error))
        except CellInvalid as error:
            record = msgspec.structs.replace(record, status=Status.INVALID, reason=str(error))
        except (HarnessError, OSError) as error:
            record = msgspec.structs.replace(record, status=Status.FAILED, reason=str(error))
        if record.status is not Status.OK and column in self._columns:
            # Whatever broke may still be broken: the next cell of this column starts from scratch.
            try:
                self._columns.pop(column).stack.close()
            except (HarnessError, OSError) as error:
                self.journal.leaks.append(f"column {column.label} was not taken down: {error}")
        return msgspec.structs.replace(record, wall_ns=time.monotonic_ns() - began)

    def _run_fio(self, cell: Cell, workload: Workload, up: ColumnUp, record: Record) -> Record:
        job = job_file(
            workload,
            device=up.device,
            size_bytes=self.plan.backing.size_bytes,
            seed=repeat_seed(self.plan.seed, cell.repeat, cell.workload),
            runtime_s=self.plan.runtime_s,
        )
        if up.disk is not None:
            up.disk.check()
        protected = cell.column.ipsec != IPSEC_OFF
        before = proof.snapshot(up.path, protected=protected) if up.path is not None else None
        started = time.time()
        done = self.initiator.run(
            ["fio", "--output-format=json+", "-"],
            input=job,
            timeout_s=wall_estimate_s(workload, self.plan.runtime_s) + FIO_GRACE_S,
            check=False,
        )
        after = proof.snapshot(up.path, protected=protected) if up.path is not None else None
        raw = self.folder.raw_folder(cell.key)
        raw.mkdir(parents=True, exist_ok=True)
        names = []
        for name, text in (("job.fio", job), ("fio.json", done.stdout), ("fio.stderr", done.stderr)):
            if text:
                (raw / name).write_text(text, encoding="utf-8")
                names.append(str((raw / name).relative_to(self.folder.path)))
        reasons = complaints(self._kernel_messages())
        warnings: list[str] = []
        read, write, result = self._understand(done.stdout, reasons, warnings)
        if done.status != 0:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            reasons.insert(0, f"fio ended with status {done.status}: {last}")
        evidence: Proof | None = None
        if up.path is not None and up.capture is not None and before is not None and after is not None:
            evidence, failures, doubts = proof.judge(
                before,
                after,
                up.capture,
                read_bytes=read.bytes if read else 0,
                write_bytes=write.bytes if write else 0,
                protected=protected,
            )
            reasons += failures
            warnings += doubts
        measured_ns = max((io.runtime_ns for io in (read, write) if io is not None), default=0)
        return msgspec.structs.replace(
            record,
            status=Status.INVALID if reasons else Status.OK,
            reason="; ".join(reasons) or None,
            warnings=tuple(warnings),
            # What a verification reads behind a write is proved to have moved, but is not what was asked for.
            read=read if moves_read(workload) else None,
            write=write if moves_write(workload) else None,
            sync_latency=result.sync_latency if result else None,
            started_unix_s=started,
            fio_ns=measured_ns,
            proof=evidence,
            raw=tuple(names),
        )

    @staticmethod
    def _understand(
        text: str, reasons: list[str], warnings: list[str]
    ) -> tuple[Io | None, Io | None, fio.FioJob | None]:
        """What fio's output says of the one job of a cell; ``reasons`` and ``warnings`` are added to."""
        try:
            output = fio.parse(text)
        except HarnessError as error:
            reasons.append(str(error))
            return None, None, None
        warnings += output.warnings
        if len(output.jobs) != 1:
            reasons.append(f"one job was expected in fio's output, {len(output.jobs)} were found")
            return None, None, None
        (job,) = output.jobs
        reasons += job.invalid
        if job.read is None and job.write is None and not job.invalid:
            reasons.append("fio completed no I/O")
        return job.read, job.write, job
