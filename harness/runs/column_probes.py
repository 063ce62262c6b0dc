"""The probes that ``harness run`` makes on a column's path between its cells: short, and never fatal for a
cell."""

from __future__ import annotations

import msgspec

from harness.hosts.journal import Journal
from harness.model import Cell, Plan
from harness.model.probing import Probe, Tcp
from harness.observe import counters
from harness.observe.interference import Watch
from harness.probes import cipher, judged, throughput
from harness.probes.tools import ProbedPath
from harness.results import probe_store
from harness.results.store import RunFolder
from harness.runs.measure import Nexus


class ColumnProbes:
    """The probes of one run of cells."""

    def __init__(
        self, plan: Plan, folder: RunFolder, *, journal: Journal, observer: counters.Observer, watch: Watch
    ) -> None:
        self.plan, self.folder, self.journal, self.observer = plan, folder, journal, observer
        self.watch = watch
        self._made: set[str] = set()

    def after(self, cell: Cell, nexus: Nexus) -> None:
        """Make the probes that are due with a cell: TCP once for its column, and the cipher in each of the
        first rounds. Raises HostLost only."""
        # This TCP probe is short; that of `harness probe` takes its time.
        self._once(cell, nexus, Tcp(duration_s=throughput.IN_RUN_S), 1)
        # In virtual time ciphers cost nothing.
        probe = cipher.of_protection(cell.column.protection, self.plan.proposals)
        if probe is not None and cell.repeat <= cipher.IN_RUN_REPEATS and not self.plan.setting.is_virtual:
            self._once(cell, nexus, probe, cell.repeat)

    def _once(self, cell: Cell, nexus: Nexus, probe: Probe, repeat: int) -> None:
        record = judged.blank(self.plan, cell.column, probe, repeat=repeat)
        if record.key in self._made:
            return
        self._made.add(record.key)
        record = msgspec.structs.replace(record, agreed=nexus.up.agreed, is_from_run=True)
        probed = ProbedPath(
            path=nexus.path,
            raw=judged.raw_folder(self.folder.path, record),
            journal=self.journal,
            layers=nexus.up.layers,
        )
        record = judged.measure(
            record, probed, observer=self.observer, watch=self.watch, folder=self.folder.path
        )
        probe_store.save(self.folder, record)
