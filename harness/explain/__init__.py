"""Whom to blame: for each cell where the time of one I/O goes, what limits it, how sure that is, what would
help.

``evidence`` is what is known of a cell, ``path`` what framing and round trips ask in closed form, ``cipher``
what ciphers take by themselves, ``waterfall`` the parts of the time, ``verdict`` the rules, ``published`` the
same for a matrix of which nothing but its figures is known, ``text`` the words. docs/explain.md has the
reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.explain import twin
from harness.explain.evidence import collect
from harness.explain.text import Explained, ExplainFormat, as_json, sentence, summary, text
from harness.explain.verdict import Limit
from harness.model import Plan, Record
from harness.results.probe_records import ProbeRecord

__all__ = ["ExplainFormat", "Explained", "Limit", "as_json", "explain", "sentence", "summary", "text"]


def explain(
    records: Sequence[Record],
    plans: Mapping[str, Plan],
    probes: Sequence[ProbeRecord] = (),
    twin_ns: Mapping[twin.Cell, float] | None = None,
) -> list[Explained]:
    """Every cell of ``records``, column by column in the order of the table; ``plans`` are by run id.

    ``probes`` are of the same paths, ``twin_ns`` is what the cells take in virtual time (``twin.times``).
    """
    evidence = twin.beside(collect(records, plans, probes), twin_ns or {})
    return [Explained.of(found) for found in evidence]
