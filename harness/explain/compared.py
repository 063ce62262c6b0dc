"""Two CPU cost files, CPU cost by CPU cost: do they agree?"""

from __future__ import annotations

from harness.analysis import stats
from harness.analysis.cpu_costs import CpuCost, CpuCosts, WhichEnd

HEADINGS = ("CPU cost of", "for each", "at", "first", "second", "second/first", "")


def of_lists(a: CpuCosts, b: CpuCosts) -> tuple[list[list[str]], str]:
    """A line of a table for each CPU cost of either, in ns, and what all of them say."""
    of_each = [{(cost.at, cost.operation): cost for cost in found.costs} for found in (a, b)]
    table, factors, apart = [], [], 0
    for key in dict.fromkeys([*of_each[0], *of_each[1]]):
        first, second = (found.get(key) for found in of_each)
        at, operation = key
        row = [f"{operation.part} {operation.direction}".strip(), operation.per.value]
        row += ["" if at is WhichEnd.NONE else at.value, _shown(first), _shown(second), "", ""]
        if first is not None and second is not None:
            differ = first.high < second.low or second.high < first.low
            apart += differ
            if first.ns and second.ns:
                row[5] = f"{second.ns / first.ns:.2f}"
                factors.append(max(first.ns, second.ns) / min(first.ns, second.ns))
            row[6] = "differ" if differ else ""
        table.append(row)
    both = sum(key in of_each[1] for key in of_each[0])
    words = f"{both - apart} of {both} CPU costs agree: their 90 % intervals overlap."
    if factors:
        words += f" The median difference is a factor of {stats.median(factors):.2f}."
    return table, words


def _shown(cost: CpuCost | None) -> str:
    return "" if cost is None else f"{cost.ns:.4g} ({cost.low:.4g} to {cost.high:.4g})"
