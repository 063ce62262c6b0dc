"""The plan for ``harness sweep --over depth=1..64``: a grid of which a run measures a part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import msgspec

from harness.model import LINK_LOCAL, PROTECTION_OFF, Plan
from harness.model.errors import UsageError
from harness.model.units import (
    format_percent,
    parse_duration_s,
    parse_percent,
    parse_size,
    shown,
    unknown_name,
)
from harness.parse.modifiers import QUANTITIES
from harness.parse.profiles import load_link
from harness.planning import plan
from harness.planning.request import RunRequest, goal, require_not_given
from harness.questions.sweep.section import SECTION, Sweep
from harness.results import rules
from harness.results.axes import AXES

OF_WORKLOADS = {"depth": "depths", "block": "blocks", "jobs": "numjobs"}
"""The fields of a request for axes of workloads; the others are links' modifiers (``parse.modifiers``)."""

RATIOS = {"depth": math.sqrt(2), "jobs": math.sqrt(2)}
"""From each point of a range to the next; 2 on the other axes."""


WRITTEN: Mapping[Callable[..., float], Callable[[float], str]] = {
    parse_duration_s: lambda value: f"{value * 1e6:.0f}us",
    parse_percent: format_percent,
}
"""Quantities that are no whole numbers, by how they are read."""

OF_RUNS = {"confidence": "--confidence", "repeats": "--repeats", "max_repeats": "--max-repeats"}
"""Options that set in another way how often a point is measured; a sweep refuses them."""


class SweepRequest(RunRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness sweep`` is asked for."""

    over: Annotated[
        tuple[str, ...],
        goal(
            metavar="AXIS=VALUES",
            help=f"Vary this: depth=1..64, rtt=0.1ms..50ms, block=4K,64K. Axes: {', '.join(AXES)}.",
        ),
    ] = ()
    error: Annotated[
        str,
        goal(metavar="PERCENT", help="Stop when unmeasured points are predicted within this error."),
    ] = "5%"
    repeats: int = 1

    shown_defaults: ClassVar[Mapping[str, str]] = {"links": "wired", "ipsec": PROTECTION_OFF}


def make_plan(request: SweepRequest) -> Plan:
    """Check and resolve a request. UsageError for the first thing that is wrong."""
    if not request.over or len({text.partition("=")[0] for text in request.over}) < len(request.over):
        raise UsageError(
            f"expected each axis once after --over, found {' '.join(request.over) or 'none'}",
            hint="try --over depth=1..64 --over block=4K..1M",
        )
    axes = dict(map(_axis, request.over))
    require_not_given(
        request,
        OF_RUNS,
        found="a sweep",
        hint="a sweep measures each point once; --error says how exactly it predicts the others",
    )
    specs = [spec for spec in request.links or ("wired",) if spec != LINK_LOCAL]
    of_links = [
        [f"{name}={text}" for text in texts] for name, texts in axes.items() if name not in OF_WORKLOADS
    ]
    points = {
        spec: [":".join((spec, *changes)) for changes in itertools.product(*of_links)] for spec in specs
    }
    local = [LINK_LOCAL] if LINK_LOCAL in request.links else []
    changes = {field: (",".join(axes[name]),) for name, field in OF_WORKLOADS.items() if name in axes}
    made = plan.make_plan(
        msgspec.structs.replace(
            request,
            links=(*local, *itertools.chain.from_iterable(points.values())),
            protect=request.protect or (() if request.ipsec or request.portal else (PROTECTION_OFF,)),
            max_time=None,
            **changes,
        )
    )
    # Links of real machines, which are no profiles alone, are swept over workloads only.
    bases = {
        load_link(each).name: load_link(spec).name
        for spec, found in points.items()
        for each in found
        if of_links
    }
    max_s = None if request.max_time is None else parse_duration_s(request.max_time, what="--max-time")
    made = msgspec.structs.replace(
        made,
        links={
            name: msgspec.structs.replace(link, base=_base(link.name, bases)) if of_links else link
            for name, link in made.links.items()
        },
        sections=SECTION.within(
            Sweep(over=tuple(axes), error=parse_percent(request.error, what="--error"), max_s=max_s)
        ),
    )
    rules.check(made)
    return made


def _base(name: str, bases: dict[str, str]) -> str:
    """Links get endings that say their version of IP, or how they are secured."""
    point = max((each for each in bases if name.startswith(each)), key=len, default=name)
    return bases.get(point, name) + name[len(point) :]


def _axis(text: str) -> tuple[str, list[str]]:
    """The axis of ``depth=1..64``, and its values as they are typed."""
    name, _, values = text.partition("=")
    if name not in AXES:
        raise unknown_name("axis", name, AXES)
    first, dots, last = values.partition("..")
    if not dots:
        listed = list(dict.fromkeys(word.strip() for word in values.split(",")))
        if len(listed) < 2:
            raise UsageError(
                f"--over {shown(text)}: expected several values", hint=f"try --over {name}=VALUE,VALUE"
            )
        return name, listed
    low, high = (_number(name, word) for word in (first, last))
    if not 0 < low < high:
        raise UsageError(
            f"--over {shown(text)}: expected a range from less to more",
            hint=f"try --over {name}={last}..{first}",
        )
    return name, _between(name, low, high)


def _number(name: str, text: str) -> float:
    if name == "block":
        return parse_size(text, what="--over block")
    if name in QUANTITIES:
        return QUANTITIES[name].parse(text, what=f"--over {name}")
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(
            f"--over {name}: expected a whole number, found {shown(text)}", hint=f"try {name}=1..64"
        )
    return int(text)


def _between(name: str, low: float, high: float) -> list[str]:
    """The values from the one to the other, each typed as ``harness run`` takes it."""
    steps = max(1, math.ceil(math.log(high / low, RATIOS.get(name, 2)) - 1e-9))
    values = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    write = WRITTEN.get(QUANTITIES[name].parse) if name in QUANTITIES else None
    written = (str(round(each)) if write is None else write(float(f"{each:.2g}")) for each in values)
    return list(dict.fromkeys(written))
