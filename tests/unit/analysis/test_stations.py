"""One I/O as packets through stations: by hand, against an event-driven simulation, and rules that hold
for every cell."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bench import monotone
from harness.analysis import path_demands, stations
from harness.analysis.critical_path import PIECE_BYTES, Crossing, critical_path
from harness.analysis.limit import Limit
from harness.analysis.path_demands import Demands
from harness.analysis.stations import CellDemands, mean_value_ns
from harness.model import End
from harness.parse.profiles import load_link

US = 1000.0
SESSION = {
    "initial_r2t": "1",
    "immediate_data": "1",
    "first_burst_len": "65536",
    "max_burst_len": "262144",
    "max_recv_dlength": "262144",
    "max_xmit_dlength": "262144",
}


def leg(by: End = "target", size: int = 4 * PIECE_BYTES, link_us: float = 400.0, **more: Any) -> Crossing:
    fixed = {"command": 0, "round": 0, "packets": 4, "part": 1.0, "stored_ns": 0.0}
    return Crossing(by=by, bytes=size, link_ns=link_us * US, **{**fixed, **more})


def path(*legs: Crossing, one_way_us: float = 10.0, window_bytes: int | None = None) -> Demands:
    times = {name: 0.0 for name in Demands.__struct_fields__ if name.endswith("_ns")}
    busy_ns = sum(each.link_ns for each in legs)
    times |= {"one_way_ns": one_way_us * US, "busy_ns": busy_ns, "link_ns": busy_ns}
    fixed = {"r2ts": 0, "mss_bytes": 1448, "window_bytes": window_bytes}
    return msgspec.structs.replace(msgspec.convert({**times, **fixed}, Demands), legs=legs)


@pytest.mark.parametrize(
    ("target_us", "initiator_us", "whole_us"),
    [
        (0.0, 0.0, 410.0),
        # Four pieces: one crosses the cores before and after, three are hidden.
        (200.0, 100.0, 50 + 400 + 25 + 10.0),
        # The slowest station works without a break from its first piece on.
        (800.0, 100.0, 800 + 100 + 25 + 10.0),
        (100.0, 1200.0, 25 + 100 + 10 + 1200.0),
    ],
)
def test_pieces_follow_one_another_and_the_slowest_station_has_the_path(
    target_us: float, initiator_us: float, whole_us: float
) -> None:
    found = critical_path(path(leg()), {"target": target_us * US, "initiator": initiator_us * US})
    assert found.whole_ns == pytest.approx(whole_us * US)
    assert sum(found[1:]) == pytest.approx(found.whole_ns) and min(found) >= 0
    assert found.delay_ns == 10 * US


def test_one_packet_is_encrypted_while_the_one_before_it_is_on_its_way() -> None:
    one = path(leg(size=PIECE_BYTES, link_us=40.0, packets=4), one_way_us=0.0)
    clear = critical_path(one, {"target": 10 * US, "initiator": 10 * US})
    assert clear.whole_ns == pytest.approx(60 * US)
    for sealed_us in (8.0, 80.0):
        work = dict.fromkeys(("target", "initiator"), (10 + sealed_us) * US)
        found = critical_path(one, work, dict.fromkeys(work, sealed_us * US))
        first, most = (40 + 2 * sealed_us) / 4, max(40, sealed_us)
        assert found.whole_ns == pytest.approx((20 + first + 3 / 4 * most) * US)
    # With one core for both ends all of its work is one's.
    found = critical_path(one, {"core": 200 * US})
    assert found.whole_ns == pytest.approx((200 + 40) * US)


def test_a_window_lets_as_much_go_again_as_was_acknowledged() -> None:
    narrow = [critical_path(path(leg(), one_way_us=1000, window_bytes=each), {}) for each in (PIECE_BYTES, 1)]
    # Four turns, of which three wait a round trip each, and the last is sent after that.
    assert narrow[0].window_ns == pytest.approx(3 * 2000 * US)
    assert narrow[0].whole_ns == pytest.approx((6000 + 100 + 1000) * US)
    assert narrow[1].whole_ns > 1e4 * narrow[0].whole_ns
    # What was sent before counts as well.
    before = leg(size=PIECE_BYTES, link_us=100.0, command=1, part=0.0)
    found = critical_path(path(before, leg(size=PIECE_BYTES, link_us=100.0), window_bytes=PIECE_BYTES), {})
    assert found.whole_ns == pytest.approx((100 + 20 + 100 + 10) * US)


def simulated_ns(asked: Demands, work: Mapping[str, float]) -> float:
    """The same without windows, each piece by itself: whatever is there first, is served first."""
    order, heap = itertools.count(), list[tuple[float, int, int, int]]()
    free = dict[tuple[str, str], float]()
    of_command: dict[int, list[Crossing]] = {}
    for each in asked.legs:
        of_command.setdefault(each.command, []).append(each)
    left, whole_ns = dict[tuple[int, int], int](), 0.0

    def start(command: int, number: int, at_ns: float) -> None:
        left[command, number] = round(of_command[command][number].pieces)
        for _ in range(left[command, number]):
            heapq.heappush(heap, (at_ns, next(order), 3 * command * 100 + 3 * number, 0))

    for command in of_command:
        start(command, 0, 0.0)
    while heap:
        at_ns, _, place, stage = heapq.heappop(heap)
        command, number = place // 300, place % 300 // 3
        burst = of_command[command][number]
        other: End = "target" if burst.by == "initiator" else "initiator"
        station = ((burst.by, "sends"), (burst.by, "link"), (other, "receives"))[stage]
        takes = (work[burst.by] * burst.part, burst.link_ns, work[other] * burst.part)[stage] / burst.pieces
        free[station] = done_ns = max(at_ns, free.get(station, 0.0)) + takes
        if stage < 2:
            delay_ns = asked.one_way_ns if stage == 1 else 0.0
            heapq.heappush(heap, (done_ns + delay_ns, next(order), place, stage + 1))
            continue
        left[command, number] -= 1
        if not left[command, number]:
            whole_ns = max(whole_ns, done_ns)
            if number + 1 < len(of_command[command]):
                start(command, number + 1, done_ns)
    return whole_ns


def test_commands_side_by_side_are_what_a_simulation_makes_of_them() -> None:
    random_ = random.Random(3)  # noqa: S311
    for _ in range(200):
        commands = random_.randint(1, 4)
        way: tuple[End, ...] = ("initiator", "target", "initiator", "target")
        sizes = [random_.choice((1, 2, 5)) * PIECE_BYTES, 48, random_.choice((1, 3)) * PIECE_BYTES, 48]
        legs = [
            leg(
                by,
                size,
                link_us=random_.uniform(0.5, 1.5) * size / 1000,
                command=command,
                round=number,
                part=0.2,
            )
            for number, (by, size) in enumerate(zip(way, sizes, strict=True))
            for command in range(commands)
        ]
        asked = path(*legs, one_way_us=random_.choice((1.0, 300.0)))
        work: dict[str, float] = {
            "initiator": random_.uniform(0, 300) * US,
            "target": random_.uniform(0, 300) * US,
        }
        found = critical_path(asked, work)
        assert sum(found[1:]) == pytest.approx(found.whole_ns) and min(found) >= 0
        # Which of two bursts that come together is served first is all that may differ.
        assert found.whole_ns == pytest.approx(simulated_ns(asked, work), rel=0.03)


def test_many_in_flight_wait_for_what_is_full_and_for_one_another() -> None:
    def at(depth: int, waits: float = 0.5, core_us: float = 160.0) -> stations.Each:
        return stations.each([CellDemands(path=path(leg()), whole={"core": core_us * US})], depth, waits)

    alone_us = 410.0 + 160
    assert at(1).ns == pytest.approx(alone_us * US)
    # Half way from the asymptotic bound to what chance makes of them, or a batch, whose I/Os leave together.
    for depth in (2, 3):
        batch_us = (alone_us + (depth - 1) * 400) / depth
        most_us = min(batch_us, mean_value_ns(alone_us, [160, 400], depth))
        assert at(depth).ns == pytest.approx((400 + most_us) / 2 * US)
    assert at(2, waits=0.0).ns == pytest.approx(400 * US) and at(2).limited_by is Limit.LINK
    assert at(64, core_us=800).limited_by is Limit.CPU
    for depth in (1, 2, 8, 64):
        found = at(depth)
        assert sum(found.parts.values()) == pytest.approx(depth * found.ns)
        assert min(found.parts.values()) >= 0


def test_a_mix_has_both_directions_of_the_link() -> None:
    read, write = (
        CellDemands(path=replaced(by), share=share) for by, share in (("target", 0.7), ("initiator", 0.3))
    )
    found = stations.each([read, write], 64, 0.0)
    # The direction of the reads carries 70 % of the I/Os, and the other one the rest meanwhile.
    assert found.ns == pytest.approx(0.7 * 400 * US) and found.limited_by is Limit.LINK


def replaced(by: str) -> Demands:
    one = path(leg(by="target" if by == "target" else "initiator"))
    return msgspec.structs.replace(one, ways={by: one.busy_ns})


def test_losses_leave_a_window_and_what_ends_a_burst_waits_for_a_timeout() -> None:
    wired = load_link("wired")
    asked = {
        loss: path_demands.of_session(
            msgspec.structs.replace(wired, loss_percent=loss), None, "iscsi", SESSION, "read", 262144
        )
        for loss in (0.0, 0.1, 1.0)
    }
    none, few, many = (each for each in asked.values() if each is not None)
    assert none.lost_ns == 0 and none.window_bytes == 204_000
    # 12 segments at 1 % (Mathis and others); 200 ms for a lost command, and 8 for the end of an answer.
    assert many.window_bytes == pytest.approx(12.2 * 1448, rel=0.01)
    again_ns = 0.01 * 192 * 113 * US
    assert many.lost_at_ns(1) == pytest.approx(0.01 * (200 + 3 * 8) * 1e6 + again_ns, rel=0.02)
    assert few.lost_ns == pytest.approx(many.lost_ns / 10)
    # Others in flight tell of what was lost.
    assert many.lost_at_ns(8) == pytest.approx(0.01 * 4 * 8e6 / 8 + again_ns, rel=0.05)


def test_nothing_gets_worse_where_less_is_asked() -> None:
    places = random.Random(61).sample([*monotone.grid()], 400)  # noqa: S311
    assert [found for place in places for found in monotone.wrong(place)] == []
