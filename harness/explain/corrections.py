"""What the answers of earlier versions said that was wrong, of stored runs that are explained anew.

A run's folder keeps no answer but that in its report.html, so this goes by the version that planned it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from harness.model import LINK_LOCAL, Plan


def _has_network(plan: Plan) -> bool:
    return any(column.link != LINK_LOCAL for column in plan.columns)


def _is_next_to_memory(plan: Plan) -> bool:
    return plan.storage.is_memory(LINK_LOCAL) and any(column.link == LINK_LOCAL for column in plan.columns)


WRONG: tuple[tuple[str, Callable[[Plan], bool], str], ...] = (
    ("0.1.1", _is_next_to_memory, 'losses "beside the local disk", which is memory'),
    (
        "0.1.1",
        lambda plan: any(column.protection for column in plan.columns),
        '"no difference shown" of cells of which some were inconclusive',
    ),
    ("0.1.1", _has_network, '"would lift ... to about ...", up to 1.9 times too high'),
)
"""The first version that does not say it, the runs of which it was said, and what was said."""


def corrections(plans: Iterable[Plan]) -> list[str]:
    """A sentence for each version whose answers about some of these runs had wrong sentences."""
    found: dict[str, tuple[list[str], dict[str, None]]] = {}
    for plan in plans:
        wrong = [
            words
            for since, is_concerned, words in WRONG
            if _order(plan.harness_version) < _order(since) and _has_network(plan) and is_concerned(plan)
        ]
        if wrong:
            runs, said = found.setdefault(plan.harness_version, ([], {}))
            runs.append(plan.run_id)
            said.update(dict.fromkeys(wrong))
    return [
        f"{_listed(runs)} explained by {f'version {version}' if version else 'an earlier version'} when "
        f"measured; of that answer, sentences of these kinds were wrong: {'; '.join(said)}."
        for version, (runs, said) in found.items()
    ]


def _listed(runs: list[str]) -> str:
    return f"Run {runs[0]} was" if len(runs) == 1 else f"{len(runs)} runs ({runs[0]}, ...) were"


def _order(version: str) -> tuple[int, ...]:
    """For comparing versions; an unknown one comes first."""
    return tuple(map(int, re.findall("[0-9]{1,9}", version)))
