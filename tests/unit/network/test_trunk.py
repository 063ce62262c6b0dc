"""Links between kernels apart: one macvlan at each end, shaped as the profile says, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.hosts.journal import Journal
from harness.model.errors import RequirementError
from harness.network import trunk
from harness.network.links import LinkPlace
from harness.parse.profiles import data_folder, load_link
from tests.unit.fakes import World


def bring_up(world: World, place: Path, spec: str) -> None:
    profile = load_link(spec, [data_folder() / "profiles" / "links"])
    journal = Journal(place / "journal.jsonl")
    with trunk.bring_up(
        LinkPlace(journal, world.host("initiator"), profile, tag="beef", index=255),
        world.host("target"),
        initiator_trunk="vec0",
        target_trunk="vec3",
    ) as path:
        assert (path.initiator_iface, path.target_iface) == ("hbeefi255", "hbeeft255")
        assert (path.initiator_address, path.target_address) == ("198.18.255.1", "198.18.255.2")
        assert not path.is_shared
    assert journal.leaks == []
    assert not journal.open_entries()


def said(world: World, host: str) -> list[str]:
    return [
        line
        for command in world.commands
        if command.host == host
        for line in (" ".join(command.argv), *(command.input or "").splitlines())
    ]


@pytest.fixture
def world() -> World:
    # The model knows links by their names alone, and both ends are first namespaces here.
    return World(answers=[(("ip", "link", "add"), (0, "", ""))])


def test_a_full_duplex_link_is_shaped_at_both_ends(world: World, tmp_path: Path) -> None:
    bring_up(world, tmp_path, "wired:jumbo")
    for host, iface, parent, address in (
        ("initiator", "hbeefi255", "vec0", "198.18.255.1"),
        ("target", "hbeeft255", "vec3", "198.18.255.2"),
    ):
        lines = said(world, host)
        wanted = [
            f"ip link add link {parent} name {iface} mtu 9000 type macvlan mode private",
            f"link set dev {iface} up",
            f"address add {address}/24 dev {iface}",
            f"tc qdisc add dev {iface} root netem limit 10000 delay 50us rate 997344545bit",
            f"ip link del dev {iface}",
        ]
        assert [line for line in lines if line in wanted] == wanted


def test_a_half_duplex_link_shares_one_queue_at_the_target_s_end(world: World, tmp_path: Path) -> None:
    bring_up(world, tmp_path, "wifi")
    near, far = said(world, "initiator"), said(world, "target")
    assert [line for line in near if line.startswith("tc ")] == []
    for way in ("egress", "ingress"):
        assert f"filter add dev hbeeft255 {way} matchall action mirred egress redirect dev hbeefa255" in far
    (shape,) = [line for line in far if "netem" in line]
    assert shape == "tc qdisc add dev hbeefa255 root netem limit 10000 delay 700us rate 50000000bit"
    gone = [line for line in far if line.startswith("ip link del")]
    assert gone == ["ip link del dev hbeefa255", "ip link del dev hbeeft255"]


def test_a_network_in_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    world = World(answers=[(("ip", "route"), (0, "198.18.255.0/24 dev eth1 scope link\n", ""))])
    with pytest.raises(
        RequirementError, match=r"expected no route into the benchmark network 198\.18\.255\.0/24"
    ):
        bring_up(world, tmp_path, "wired")
    assert not (tmp_path / "journal.jsonl").exists()
