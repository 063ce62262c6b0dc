"""Does a prediction ever get worse where less is asked of a station? All cells of a grid, with no machine.

    python bench/monotone.py               # the whole grid, some minutes on two processors
    python bench/monotone.py --cells 5000  # so many of it, by chance

Each cell of the grid (``grid``) is predicted, and once more with one thing better: a faster
link, a shorter round trip, a wider window, fewer losses, a full-duplex link, a deeper queue, a cheaper
operation, no protection. None of them may be slower, none may exceed its link's bound, and a mix of reads
and writes lies between what the two of them side by side and one after the other allow. The exit status is
1 if one is not so. A test takes a sample of it (tests/unit/analysis/test_stations.py).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from tabulate import tabulate

from harness.analysis.cpu_costs import CpuCosts
from harness.explain.predicted import Ends, NetworkPath, predict
from harness.model import KERNEL_TARGETS, Column, Duplex, Job, LinkProfile, Proposal
from harness.parse.cpu_costs import load_cpu_costs
from harness.parse.profiles import load_proposal

LISTS = ("lab-custom", "lab-debian")
UNKNOWN = ("wireguard", "nvme-tcp")
"""What the second of them has no CPU costs of."""

PROTECTIONS = ("", "aes128gcm16", "wireguard")
RATES_BIT_S = (10**8, 10**9, 2_500_000_000, 10**10, 10**11)
DELAYS_US = (1, 50, 1000, 10_000)
WINDOWS_BYTES = (None, 64 << 10, 128 << 10)
LOSSES_PERCENT = (0.0, 0.1, 1.0)
BLOCKS_BYTES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
DEPTHS = (1, 2, 4, 8, 32)
DIRECTIONS = ("read", "write")
ALMOST = 1e-9
"""Of rounding."""
CHEAPER = 0.5
"""What an operation costs that is made cheaper."""


class Place(NamedTuple):
    """A cell of the grid."""

    costs: str
    protection: str
    transport: str
    rate_bit_s: int
    delay_us: float
    window_bytes: int | None
    loss_percent: float
    block_bytes: int
    depth: int
    direction: str
    duplex: Duplex = Duplex.FULL


def grid() -> Iterator[Place]:
    """Every cell; windows and losses apart, and half duplex on the slowest two links."""
    of_path = [(None, loss) for loss in LOSSES_PERCENT] + [(window, 0.0) for window in WINDOWS_BYTES[1:]]
    of = (
        LISTS,
        PROTECTIONS,
        KERNEL_TARGETS,
        RATES_BIT_S,
        DELAYS_US,
        of_path,
        BLOCKS_BYTES,
        DEPTHS,
        DIRECTIONS,
    )
    for costs, protection, transport, rate, delay, (
        window,
        loss,
    ), block, depth, direction in itertools.product(*of):
        if costs == LISTS[1] and {protection, transport} & {*UNKNOWN}:
            continue
        place = Place(costs, protection, transport, rate, delay, window, loss, block, depth, direction)
        yield place
        if rate <= RATES_BIT_S[1] and not loss and not window:
            yield place._replace(duplex=Duplex.HALF)


_LISTS: dict[str, CpuCosts] = {}
_PROPOSALS: dict[str, Proposal] = {}


def mb_s(place: Place, *, cheaper: int | None = None, mix: int | None = None) -> tuple[float, float | None]:
    """The throughput that is predicted of a cell, and its link's bound; with the operation of that number at
    half of its cost, or so many percent of its I/Os as reads."""
    if not _LISTS:
        _LISTS.update({name: load_cpu_costs(name) for name in LISTS})
        _PROPOSALS["aes128gcm16"] = load_proposal("aes128gcm16")
    costs = _LISTS[place.costs]
    if cheaper is not None:
        made = list(costs.costs)
        ns = {name: CHEAPER * getattr(made[cheaper], name) for name in ("low", "ns", "high")}
        made[cheaper] = msgspec.structs.replace(made[cheaper], **ns)
        costs = msgspec.structs.replace(costs, costs=tuple(made))
    link = LinkProfile(
        name="grid",
        title="",
        emulated=True,
        rate_bit_s=place.rate_bit_s,
        delay_us=place.delay_us,
        tcp_window_bytes=place.window_bytes,
        loss_percent=place.loss_percent,
        duplex=place.duplex,
    )
    column = Column(
        "grid",
        (place.protection,) if place.protection else (),
        transport=place.transport,
    )
    options = {"rw": f"rand{place.direction}", "bs": str(place.block_bytes), "direct": "1"}
    options |= {"ioengine": "libaio", "iodepth": str(place.depth)}
    if mix is not None:
        options |= {"rw": "randrw", "rwmixread": str(mix)}
    path = NetworkPath(column=column, link=link, proposals=_PROPOSALS)
    (found,) = predict(Ends(target=costs), [path], [Job(name="grid", options=tuple(options.items()))])
    if found.mb_s is None:
        raise ValueError(f"{place}: {found.why_not}")
    return found.mb_s, found.bound_mb_s


def better(place: Place) -> Iterator[tuple[str, Place]]:
    """The same cell with one thing better, by what that is."""
    steps: tuple[tuple[str, str, tuple[object, ...]], ...] = (
        ("a faster link", "rate_bit_s", RATES_BIT_S),
        ("a shorter round trip", "delay_us", DELAYS_US[::-1]),
        ("a wider window", "window_bytes", (*WINDOWS_BYTES[1:], None)),
        ("fewer losses", "loss_percent", LOSSES_PERCENT[::-1]),
        ("a deeper queue", "depth", DEPTHS),
        ("full duplex", "duplex", (Duplex.HALF, Duplex.FULL)),
    )
    for name, field, values in steps:
        at = values.index(getattr(place, field))
        if at + 1 < len(values):
            yield name, Place(**{**place._asdict(), field: values[at + 1]})
    if place.protection:
        yield "no protection", place._replace(protection="")


def wrong(place: Place) -> list[tuple[str, Place, float, float]]:
    """What is wrong with a cell: which rule it breaks, and its throughput before and after."""
    now, bound = mb_s(place)
    found = [
        (name, there, now, after)
        for name, there in better(place)
        if (after := mb_s(there)[0]) < now * (1 - ALMOST)
    ]
    if bound is not None and now > bound * (1 + ALMOST):
        found.append(("the link's bound", place, now, bound))
    number = zlib.crc32(repr(place).encode()) % len(_LISTS[place.costs].costs)
    if (after := mb_s(place, cheaper=number)[0]) < now * (1 - ALMOST):
        found.append(("a cheaper operation", place, now, after))
    if place.direction == "read":
        other = mb_s(place._replace(direction="write"))[0]
        mixed = mb_s(place, mix=70)[0]
        in_turn, at_once = 1 / (0.7 / now + 0.3 / other), now / 0.7
        if mixed < in_turn * (1 - ALMOST) or mixed > at_once * (1 + ALMOST):
            found.append(("a mix", place, in_turn, mixed))
    return found


def check(places: Sequence[Place], processes: int) -> tuple[int, list[tuple[str, Place, float, float]]]:
    """How many cells were predicted, and all that is wrong."""
    with multiprocessing.Pool(processes) as pool:
        found = list(itertools.chain(*pool.imap_unordered(wrong, places, chunksize=64)))
    return len(places), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, help="so many of the grid, by chance")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    places = [*grid()]
    if asked.cells:
        places = random.Random(1).sample(places, asked.cells)  # noqa: S311
    count, found = check(places, asked.processes)
    rules = Counter(name for name, *_ in found)
    print(tabulate(rules.most_common(), ("rule", "broken"), disable_numparse=True))
    for name, place, before, after in sorted(found, key=lambda each: each[3] / each[2])[:10]:
        print(f"{name}: {before:.6g} -> {after:.6g} MB/s, {place}")
    print(f"{count} cells, {len(found)} violations")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
