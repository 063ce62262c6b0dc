"""What each part is worth if it alone were faster: predicted with its price changed, and nothing else
(after Curtsinger and Berger, Coz, SOSP 2015, where all else is slowed down; prices can be changed exactly).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from harness.analysis import stats
from harness.analysis.prices import Per, PriceList
from harness.explain.predicted import Ends, Predicted, Way, predict
from harness.model import Job, LinkProfile
from harness.model.errors import UsageError
from harness.model.units import shown, unknown_name

CIPHER, RATE, ROUND_TRIP = "cipher", "rate", "rtt"
WIDEST = 40
"""Characters of the longest bar."""


class FasterPart(msgspec.Struct, frozen=True):
    """A part that is so many times as fast; of ``rtt`` so many times as long."""

    part: str
    factor: float

    @property
    def words(self) -> str:
        return f"{self.part} {self.factor:g}x"


def parts(ends: Ends) -> list[str]:
    """What can be changed: the priced parts, all ciphers as one, rate and round trip."""
    lists = [found for found in (ends.target, ends.initiator) if found is not None]
    own = [price.part for found in lists for price in found.prices if not _is_cipher(found, price.part)]
    return [*dict.fromkeys(own), CIPHER, RATE, ROUND_TRIP]


def parse(text: str, ends: Ends) -> list[FasterPart]:
    """``cipher=2x,rtt=0.5x``, or ``2x`` for each part in turn. UsageError for others."""
    known, found = parts(ends), []
    for word in text.split(","):
        name, is_named, factor = word.strip().rpartition("=")
        match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)x", factor)
        if match is None or not float(match[1]):
            raise UsageError(
                f"--what-if {shown(word)}: expected how many times as fast, such as 2x", hint="try cipher=2x"
            )
        if is_named and name not in known:
            raise unknown_name("part", name, known)
        # A round trip that is twice as fast takes half the time.
        of = [name] if is_named else known
        times = float(match[1])
        found += [
            FasterPart(each, 1 / times if each == ROUND_TRIP and not is_named else times) for each in of
        ]
    return found


def _is_cipher(found: PriceList, part: str) -> bool:
    return any(price.part == part and price.direction == "encrypt" for price in found.prices)


def _priced(found: PriceList, change: FasterPart) -> PriceList:
    if change.part in (RATE, ROUND_TRIP):
        return found
    made = []
    for price in found.prices:
        part = CIPHER if _is_cipher(found, price.part) else price.part
        if part == change.part and price.per is not Per.ROUND_TRIP:
            times = {name: getattr(price, name) / change.factor for name in ("low", "ns", "high")}
            price = msgspec.structs.replace(price, **times)
        made.append(price)
    return msgspec.structs.replace(found, prices=tuple(made))


def _linked(link: LinkProfile | None, change: FasterPart) -> LinkProfile | None:
    if link is None or change.part not in (RATE, ROUND_TRIP):
        return link
    if change.part == RATE:
        rate = link.rate_bit_s and round(link.rate_bit_s * change.factor)
        return msgspec.structs.replace(link, rate_bit_s=rate)
    hops = link.hops and msgspec.structs.replace(link.hops, delay_us=link.hops.delay_us * change.factor)
    return msgspec.structs.replace(link, delay_us=link.delay_us * change.factor, hops=hops)


def gains(
    ends: Ends, ways: Sequence[Way], jobs: Sequence[Job], base: Sequence[Predicted], change: FasterPart
) -> list[float | None]:
    """By what part each cell would be faster, with this change alone."""
    initiator = None if ends.initiator is None else _priced(ends.initiator, change)
    changed = Ends(target=_priced(ends.target, change), initiator=initiator)
    other = [msgspec.structs.replace(way, link=_linked(way.link, change)) for way in ways]
    return [
        after.mb_s / before.mb_s - 1 if after.mb_s and before.mb_s else None
        for before, after in zip(base, predict(changed, other, jobs), strict=True)
    ]


def table(
    ends: Ends,
    ways: Sequence[Way],
    jobs: Sequence[Job],
    base: Sequence[Predicted],
    changes: Sequence[FasterPart],
) -> tuple[list[list[str]], list[str]]:
    """A line for each cell, and the changes as a bar chart: first what gives most over all cells."""
    of_each = {change: gains(ends, ways, jobs, base, change) for change in changes}
    worth = {
        change: stats.median([g for g in found if g is not None] or [0.0])
        for change, found in of_each.items()
    }
    order = sorted(changes, key=lambda change: -worth[change])
    rows = [["cell", *(change.words for change in order)]]
    for place, cell in enumerate(base):
        found = [of_each[change][place] for change in order]
        rows.append([f"{cell.name} {cell.workload}", *("" if g is None else f"{g:+.1%}" for g in found)])
    most = max([*worth.values(), 1e-9])
    names = max(len(change.words) for change in order)
    lengths = {change: round(WIDEST * max(0.0, worth[change]) / most) for change in order}
    return rows, [
        f"{change.words:{names}}  {worth[change]:+7.1%}  {'#' * lengths[change]}".rstrip() for change in order
    ]
