"""What the answers of earlier versions said that was wrong, of stored runs that are explained anew.

A run's folder keeps no answer but that in its report.html, so this goes by the version that planned it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.model import LINK_LOCAL, Plan

SINCE = "0.1.1"
"""The first version whose answers say none of it."""


def _wrong(plan: Plan) -> list[str]:
    """What an answer about a run over a network said, of what the run has."""
    has_local = any(column.is_local for column in plan.columns)
    if all(column.is_local for column in plan.columns) or _order(plan.harness_version) >= _order(SINCE):
        return []
    said = {
        'losses "beside the local disk", which is memory': has_local and plan.storage.is_memory(LINK_LOCAL),
        '"no difference shown" of cells of which some were inconclusive': any(
            column.protection for column in plan.columns
        ),
        '"would lift ... to about ...", up to 1.9 times too high': True,
    }
    return [words for words, is_concerned in said.items() if is_concerned]


def corrections(plans: Iterable[Plan]) -> list[str]:
    """A sentence for each version whose answers about some of these runs had wrong sentences."""
    found: dict[str, tuple[list[str], dict[str, None]]] = {}
    for plan in plans:
        if wrong := _wrong(plan):
            runs, said = found.setdefault(plan.harness_version, ([], {}))
            runs.append(plan.run_id)
            said.update(dict.fromkeys(wrong))
    return [
        f"{_listed(runs)} explained by {f'version {version}' if version else 'an earlier version'} when "
        f"measured; that answer was wrong in these places: {'; '.join(said)}."
        for version, (runs, said) in found.items()
    ]


def _listed(runs: list[str]) -> str:
    return f"Run {runs[0]} was" if len(runs) == 1 else f"{len(runs)} runs ({runs[0]}, ...) were"


def _order(version: str) -> tuple[int, ...]:
    """For comparing versions; an unknown one comes first."""
    return tuple(map(int, re.findall("[0-9]{1,9}", version)))
