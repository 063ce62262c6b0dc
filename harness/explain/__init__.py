"""What limits each cell: where the time of one I/O goes, how sure that is, and what would help.

``evidence`` collects what is known of a cell. ``path`` computes the times of framing and round trips in
closed form, ``cipher`` the work of the stand-alone ciphers. ``waterfall`` splits the time into parts.
``one_end`` says what a target that was not watched takes. ``limits`` declares what may limit, and
``verdict`` finds out which of it does. ``published`` does the same for a matrix of which only the figures are
known. ``text`` has the words, and ``corrections`` what earlier versions said wrongly.
docs/explain.md gives the reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.model import Clock, Plan, Record
from harness.results.probe_records import ProbeRecord

if TYPE_CHECKING:
    from harness.analysis.limit import Limit
    from harness.analysis.schedule import Place
    from harness.explain.evidence import Evidence
    from harness.explain.text import Explained
    from harness.results.columns import CellKey


def explain(
    records: Sequence[Record],
    plans: Mapping[str, Plan],
    probes: Sequence[ProbeRecord] = (),
) -> list[Explained]:
    """Every cell of ``records``, column by column in the order of the table; ``plans`` are by run id.

    ``probes`` are those of the same paths.
    """
    from harness.explain import one_end
    from harness.explain.evidence import collect
    from harness.explain.text import Explained

    return [Explained.of(found) for found in one_end.with_targets(collect(records, plans, probes))]


def likely_limits(evidence: Sequence[Evidence]) -> dict[Place, Limit]:
    """What likely limits each cell, by the middle of the evidence: without how sure that is, which takes a
    hundred times as long."""
    from harness.explain import one_end
    from harness.explain.verdict import likely

    return {(each.key.column, each.workload): likely(each) for each in one_end.with_targets(evidence)}


def lab_limited(
    records: Sequence[Record],
    plans: Mapping[str, Plan],
    probes: Sequence[ProbeRecord] = (),
    evidence: Sequence[Evidence] | None = None,
) -> frozenset[CellKey]:
    """The cells that the lab limits, not the emulated link, for a table's marks. ``evidence`` is that of
    ``collect``, where it is known.
    """
    if not any(record.emulated and record.setting.clock is Clock.REAL for record in records):
        return frozenset()
    # A table shows none of the rest.
    from harness.explain.evidence import collect
    from harness.explain.verdict import is_lab_limited

    found = collect(records, plans, probes) if evidence is None else evidence
    return frozenset(each.cell for each in found if is_lab_limited(each))
