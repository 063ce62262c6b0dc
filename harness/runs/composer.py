"""Shared by both composers: bringing up the columns of a plan, watching its hosts, making probes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import msgspec

from harness.hosts.journal import Journal
from harness.model import Column, Plan
from harness.observe import counters, interference
from harness.probes import judged
from harness.probes.tools import ProbedPath
from harness.results.events import Emit
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.runs import leftovers
from harness.runs.columns import ColumnPath, Columns, Hosts
from harness.runs.patience import Patience


@dataclass(eq=False)
class Composer:
    """One run of a plan. ``private`` is a folder for sockets and secrets, which vanishes with the testbed."""

    plan: Plan
    folder: RunFolder
    emit: Emit
    _: KW_ONLY
    hosts: Hosts
    journal: Journal
    private: Path

    def __post_init__(self) -> None:
        self._paths = Columns(
            self.plan, self.folder.path, hosts=self.hosts, journal=self.journal, private=self.private
        )
        self._observer = counters.Observer()
        self._watch = interference.watch(self.plan, self.folder.path, self.hosts.all)
        self._patience = Patience(self._watch, self.emit)
        self._facts: dict[str, object] = {}

    def _tell_what_is_left(self, stack: contextlib.ExitStack) -> None:
        """Once all that is entered into ``stack`` from now on is down."""
        stack.callback(leftovers.tell, self.journal, self.hosts.all, self.plan, self._paths.made)

    def _note_column(self, column: Column, paths: Sequence[ColumnPath], **more: object) -> None:
        """Write down what a column that is up has, for each initiator, and what is known of it besides."""
        self._facts[f"column {column.label}"] = {
            "agreed": [up.agreed for up in paths],
            "positive_control": [msgspec.to_builtins(up.control) for up in paths],
            **more,
        }
        self.folder.save_environment(self._facts)

    def _probed(self, record: ProbeRecord, up: ColumnPath) -> ProbeRecord:
        """A probe, made on a path that is up."""
        raw = judged.raw_folder(self.folder.path, record)
        path = ProbedPath(path=up.path, raw=raw, journal=self.journal, layers=up.layers)
        record = msgspec.structs.replace(record, agreed=up.agreed)
        return judged.measure(
            record, path, observer=self._observer, watch=self._watch, folder=self.folder.path
        )
