"""Paths: what is built of hops, in which order, and that nothing of it is left, wherever it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.hosts.packages import PATHS, listed
from harness.model.kinds import HOPS
from harness.network import paths
from harness.observe import hops
from tests.unit.fakes import Failure, World
from tests.unit.network.paths.building import assert_nothing_is_left, lines_of


@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
@pytest.mark.parametrize("spec", ["switched:0", "switched:2", "routed:1", "routed:3"])
def test_nothing_is_left_wherever_it_breaks(spec: str, failure: Failure, tmp_path: Path) -> None:
    assert_nothing_is_left(spec, failure, tmp_path)


def test_each_segment_is_sent_over_at_the_links_rate_and_the_ends_need_no_delay(tmp_path: Path) -> None:
    near, one, two, far = lines_of(
        "switched:2", World(), tmp_path, "initiator", "switch1", "switch2", "target"
    )
    end = "root netem limit 10000 rate 1000000000bit 24"
    hop = "root netem limit 10000 delay 7us rate 1000000000bit 24"
    assert f"tc qdisc add dev hbeefi3 {end}" in near and f"tc qdisc add dev hbeeft3 {end}" in far
    for lines in (one, two):
        shaped = [line for line in lines if "netem" in line]
        assert shaped == [f"tc qdisc add dev {iface} {hop}" for iface in ("near", "far")]
        assert "link set dev near master switch" in lines and "link set dev far master switch" in lines
    # A super-packet would be stored whole at each of them; without a rate it may pass.
    assert "link set dev hbeefi3 gso_max_segs 1" in near
    (near,) = lines_of("switched:2:unshaped", World(), tmp_path, "initiator")
    assert not any("gso_max_segs" in line or "netem" in line for line in near)


def test_routers_know_the_way_to_both_ends(tmp_path: Path) -> None:
    hosts = ("initiator", "router1", "router2", "router3", "target")
    near, *routers, far = lines_of("routed:3", World(), tmp_path, *hosts)
    assert "ip route add 198.18.3.0/24 via 198.18.3.2" in near
    assert [[line for line in lines if "route" in line] for lines in routers] == [
        ["ip route add 198.18.3.12/30 via 198.18.3.6"],
        ["ip route add 198.18.3.0/30 via 198.18.3.5", "ip route add 198.18.3.12/30 via 198.18.3.10"],
        ["ip route add 198.18.3.0/30 via 198.18.3.9"],
    ]
    assert "ip route add 198.18.3.0/24 via 198.18.3.13" in far
    assert "address add 198.18.3.14/30 dev hbeeft3" in far


def test_each_kind_that_is_declared_can_be_brought_up() -> None:
    assert {*paths._BY_NAME} == {*HOPS}


def test_every_package_belongs_to_a_kind_of_hops_or_to_how_one_is_asked() -> None:
    kinds = {package.purpose.partition(":")[0] for package in listed(PATHS)}
    assert kinds <= {*HOPS, *hops.schemes()}
