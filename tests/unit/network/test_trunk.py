"""Links between kernels per host: one macvlan at each end, shaped as the profile says, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model.errors import RequirementError
from harness.network import trunk
from tests.unit.fakes import World
from tests.unit.fakes.answers import DONE, Answer
from tests.unit.network.worlds import link_place, said, shipped


def reported(
    folder: Path, spec: str, *answers: tuple[tuple[str, ...], Answer]
) -> tuple[list[str], list[str]]:
    """What both ends were told of a link that came up and went."""
    # The model knows links by their names alone, and both ends are first namespaces here.
    world = World(answers=[*answers, (("ip", "link", "add"), DONE)])
    ends = {"initiator_trunk": "vec0", "target_trunk": "vec3"}
    with (
        link_place(world, folder, shipped(spec), index=255) as place,
        trunk.bring_up(place, world.host("target"), **ends) as path,
    ):
        assert (path.initiator_iface, path.target_iface) == ("hbeefi255", "hbeeft255")
        assert (path.initiator_address, path.target_address) == ("198.18.255.1", "198.18.255.2")
        assert not path.is_shared
    return said(world, "initiator"), said(world, "target")


def test_a_link_is_shaped_at_both_ends_or_at_one(tmp_path: Path) -> None:
    ends = (("hbeefi255", "vec0", "198.18.255.1"), ("hbeeft255", "vec3", "198.18.255.2"))
    for lines, (iface, parent, address) in zip(reported(tmp_path, "wired:jumbo"), ends, strict=True):
        wanted = [
            f"ip link add link {parent} name {iface} mtu 9000 type macvlan mode private",
            f"link set dev {iface} up",
            f"address add {address}/24 dev {iface}",
            f"tc qdisc add dev {iface} root netem limit 10000 delay 50us rate 997344545bit",
            f"ip link del dev {iface}",
        ]
        assert [line for line in lines if line in wanted] == wanted

    # For half duplex there is one queue at the target's end.
    near, far = reported(tmp_path, "wifi")
    assert not any(line.startswith("tc ") for line in near)
    for way in ("egress", "ingress"):
        assert f"filter add dev hbeeft255 {way} matchall action mirred egress redirect dev hbeefa255" in far
    (shape,) = [line for line in far if "netem" in line]
    assert shape == "tc qdisc add dev hbeefa255 root netem limit 10000 delay 700us rate 50000000bit"
    gone = [line for line in far if line.startswith("ip link del")]
    assert gone == ["ip link del dev hbeefa255", "ip link del dev hbeeft255"]


def test_a_network_in_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    route = (("ip", "route"), (0, "198.18.255.0/24 dev eth1 scope link\n", ""))
    refused = r"expected no route into the benchmark network 198\.18\.255\.0/24"
    with pytest.raises(RequirementError, match=refused):
        reported(tmp_path, "wired", route)
    assert not (tmp_path / "journal.jsonl").exists()
