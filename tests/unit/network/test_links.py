"""Links: how profiles become qdiscs, what is built for half duplex, and when it is not built at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from harness.model import Duplex, LinkProfile
from harness.model.errors import RequirementError
from harness.network import links
from harness.network.links import netem
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path
from tests.unit.network.worlds import link_place, said, shipped


def changed(**changes: object) -> LinkProfile:
    return msgspec.structs.replace(LinkProfile(name="x", title="X", emulated=True), **changes)


def test_a_profile_becomes_netems_parameters() -> None:
    normal = "limit 10000 delay 2000us 300us distribution normal loss random 0.25%"
    # Gigabit Ethernet carries 1500 of every 1538 bytes, of which netem counts 1514.
    for profile, parameters in (
        (shipped("wired"), f"limit 10000 delay 50us rate {1e9 * 1514 / 1538:.0f}bit"),
        (shipped("wired:jumbo"), f"limit 10000 delay 50us rate {1e9 * 9014 / 9038:.0f}bit"),
        (shipped("wifi"), "limit 10000 delay 700us rate 50000000bit"),
        (shipped("wired:unshaped"), None),
        (changed(), None),
        (changed(delay_us=0.5), "limit 10000 delay 0.5us"),
        (changed(delay_us=2000.0, jitter_us=300.0, loss_percent=0.25), normal),
        (changed(loss_percent=100.0), "limit 10000 loss random 100%"),
        (changed(rate_bit_s=10**6, frame_overhead_bytes=0), "limit 10000 rate 1000000bit"),
    ):
        assert netem(profile) == parameters


def built(profile: LinkProfile, folder: Path, world: World | None = None) -> tuple[list[str], list[str]]:
    """What both ends were told of a link that was up, and is gone."""
    world = world or World()
    with link_place(world, folder, profile) as place, links.bring_up(place) as path:
        assert {"netns harness-beef-3", "link hbeefi3"} <= world.left
        assert (path.initiator_iface, path.initiator_address) == ("hbeefi3", "198.18.3.1")
        assert (path.target_iface, path.target_address) == ("hbeeft3", "198.18.3.2")
    return said(world, "initiator"), said(world, "target")


def test_a_window_is_held_down_at_both_ends(tmp_path: Path) -> None:
    initiator, target = built(changed(tcp_window_bytes=16384), tmp_path)
    for end, lines in ((1, initiator), (2, target)):
        (route,) = [line for line in lines if line.startswith("route replace 198.18.3.0/24")]
        assert f"src 198.18.3.{end} window 16384" in route
    assert any(line.endswith("4096 32768 32768") for line in target)
    assert not any("tcp_rmem" in line for line in initiator)


def test_a_full_duplex_link_is_one_pair_shaped_at_both_ends_or_not_at_all(tmp_path: Path) -> None:
    near, far = built(shipped("wired:jumbo"), tmp_path)
    assert "ip link add hbeefi3 mtu 9000 type veth peer name hbeeft3 netns harness-beef-3 mtu 9000" in near
    for lines, iface, address in ((near, "hbeefi3", "198.18.3.1"), (far, "hbeeft3", "198.18.3.2")):
        assert f"address add {address}/24 dev {iface}" in lines
        assert f"tc qdisc add dev {iface} root netem limit 10000 delay 50us rate 997344545bit" in lines
    assert not any("ifb" in line for line in near + far)
    near, far = built(shipped("wired:unshaped"), tmp_path)
    assert not any(line.startswith("tc ") for line in near + far)


def test_a_half_duplex_link_leads_both_directions_through_one_queue(tmp_path: Path) -> None:
    near, far = built(shipped("wifi"), tmp_path)
    assert not any(line.startswith("tc ") for line in near)
    (shape,) = [line for line in far if "netem" in line]
    assert shape == "tc qdisc add dev hbeefa3 root netem limit 10000 delay 700us rate 50000000bit"
    assert far.index("ip link add hbeefa3 up type ifb") < far.index("qdisc add dev hbeeft3 clsact")
    for way in ("egress", "ingress"):
        redirect = f"filter add dev hbeeft3 {way} matchall action mirred egress redirect dev hbeefa3"
        assert far.index("qdisc add dev hbeeft3 clsact") < far.index(redirect)
    assert "ip link del dev hbeefa3" in far, "it goes as it came"
    # Without a delay the rate is shared all the same.
    _, far = built(changed(rate_bit_s=10**7, duplex=Duplex.HALF, frame_overhead_bytes=0), tmp_path)
    assert "tc qdisc add dev hbeefa3 root netem limit 10000 rate 10000000bit" in far


def test_each_frame_of_80211b_pays_for_its_own_airtime(tmp_path: Path) -> None:
    """1927 us for a packet of 1500 bytes (6.2 Mbit/s), where the overhead alone takes 810."""
    link = shipped("wifi-b")
    _, far = built(link, tmp_path)
    assert "tc qdisc add dev hbeefa3 root netem limit 10000 delay 700us rate 11000000bit 1136" in far
    assert "link set dev hbeeft3 gso_max_segs 1" in far
    mac_bytes = 24 + 8 + 4
    difs, backoff, preamble, sifs, ack = 50, 15.5 * 20, 192, 10, 192 + 8 * 14 / 2
    airtime_us = difs + backoff + preamble + sifs + ack + 8 * (mac_bytes + 1500) / 11
    charged_us = 8e6 * (14 + 1500 + link.frame_overhead_bytes) / (link.rate_bit_s or 0)
    assert charged_us == pytest.approx(airtime_us, rel=1e-3)


def test_several_links_lead_to_one_target(tmp_path: Path) -> None:
    world = World()
    with (
        link_place(world, tmp_path, shipped("wired")) as place,
        links.bring_up(place) as first,
        links.bring_up(dataclasses.replace(place, index=4), first=3) as second,
    ):
        assert first.target.netns == second.target.netns == "harness-beef-3"
        assert (first.target_address, second.target_address) == ("198.18.3.2", "198.18.4.2")
        assert first.target_iface != second.target_iface
    assert sum(line.startswith("ip netns add") for line in said(world, "initiator")) == 1


def test_a_network_in_use_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    for route in (
        *("198.18.3.0/24 dev eth1 proto kernel scope link src 198.18.3.7", "blackhole 198.18.3.0/24"),
        *("198.18.3.128/25 via 10.0.0.1 dev eth0", "198.18.3.9 dev eth0 scope link"),
        *("198.18.0.0/16 dev tun0 proto kernel scope link src 198.18.0.1", "198.18.0.0/15 dev utun"),
    ):
        world = World(answers=[(("ip", "route"), (0, f"198.18.9.0/24 dev other\n{route} \n", ""))])
        with pytest.raises(RequirementError) as refused:
            built(shipped("wired"), tmp_path, world)
        expected = "expected no route into the benchmark network 198.18.3.0/24, found: "
        assert expected + route in refused.value.message and "lab" in (refused.value.hint or "")
        assert len(world.commands) == 1 and not (tmp_path / "journal.jsonl").exists()
    # The networks of other links are not in the way.
    routes = "198.18.0.0/24 dev hbeefi0 scope link\n198.18.30.0/24 dev hbeefi30\n198.19.3.0/24 dev x\n"
    built(shipped("wired"), tmp_path, World(answers=[(("ip", "route"), (0, routes, ""))]))


def test_a_link_is_described_as_both_ends_have_it() -> None:
    world = World(answers=[(("tc", "-s", "qdisc"), (0, "qdisc netem 1: root", ""))])
    described = links.describe(link_path(world))
    assert set(described) == {"initiator_interface", "initiator_qdisc", "target_interface", "target_qdisc"}
    assert described["target_qdisc"] == "qdisc netem 1: root"
