"""Paths through an OpenFlow switch: its flows, its controller and that one's link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.model.errors import UsageError
from harness.network import links, paths
from harness.network.paths.openflow import kind
from harness.parse.profiles import data_folder, load_link
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import ipsec
from harness.results.store import RunFolder
from harness.runs import modules
from tests.unit.fakes import Failure, World
from tests.unit.fakes.answers import DONE
from tests.unit.network.paths.building import assert_nothing_is_left, lines_of


def connected(place: Path, **more: Any) -> World:
    """The switch has its sockets and its controller, which listens."""
    asked = ("ovs-vsctl", f"--db=unix:{place}/private/db.sock", "--timeout=20", "get")
    listens = (0, "LISTEN 0 10 198.18.3.254:6653 0.0.0.0:*", "")
    answers = {("test", "-S"): DONE, ("ss", "-ltnH"): listens}
    return World(answers=[*answers.items(), (asked, (0, "true\n", ""))], **more)


@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
@pytest.mark.parametrize("spec", ["openflow:flows", "openflow:cpu=25"])
def test_nothing_is_left_wherever_it_breaks(spec: str, failure: Failure, tmp_path: Path) -> None:
    assert_nothing_is_left(spec, failure, tmp_path, connected)


def test_a_controllers_link_is_shaped_as_its_profile_says(tmp_path: Path) -> None:
    switch, controller = lines_of(
        "openflow:controller=fast-ethernet", connected(tmp_path), tmp_path, "switch", "controller"
    )
    (asked,) = (line for line in switch if "netem" in line and " control " in line)
    (answered,) = (line for line in controller if "netem" in line and " control " in line)
    assert "limit 1000 delay 50us" in asked and "rate 98439532bit" in asked
    assert "limit 1000 delay 50us" in answered and "rate" not in answered, "24 bytes for a packet"
    assert any("--hub --noflow" in line for line in controller if line.startswith("daemon "))
    assert any("datapath_type=system fail_mode=secure" in line for line in switch if "add-br" in line)

    # Hosts are on Fast Ethernet with queues as long as Linux has them.
    ends = lines_of(
        "openflow:controller", connected(tmp_path), tmp_path, "initiator", "target", frame_by_frame=True
    )
    for lines, iface in zip(ends, ("hbeefi3", "hbeeft3"), strict=True):
        assert f"tc qdisc add dev {iface} root netem limit 1000 rate 100000000bit 24" in lines


@pytest.mark.parametrize("is_virtual", [False, True])
def test_a_slow_switch_takes_its_time_for_each_packet_of_both_hosts(tmp_path: Path, is_virtual: bool) -> None:
    (switch,) = lines_of(
        "openflow:controller:cpu=50", connected(tmp_path), tmp_path, "switch", frame_by_frame=is_virtual
    )
    leads = "ingress matchall action mirred egress redirect dev processor"
    wanted = [f"filter add dev {iface} {leads}" for iface in ("near", "far")]
    assert [line for line in switch if "mirred" in line] == wanted
    (shaped,) = [line for line in switch if "netem" in line and " processor " in line]
    # One cell for a packet of any size, which takes twice 55 us.
    words = shaped.split()
    rate, cell_bytes = int(words[words.index("rate") + 1].removesuffix("bit")), int(words[-1])
    assert "limit 1000" in shaped and cell_bytes > 65535
    assert 8e6 * cell_bytes / rate == pytest.approx(110)


def test_flows_are_the_controllers_to_install(tmp_path: Path) -> None:
    controller, near = lines_of("openflow:flows", connected(tmp_path), tmp_path, "controller", "initiator")
    assert "ping -q -c 1 -W 5 198.18.3.2" in near, "so that they are there before anything is measured"
    assert any("--hub --wildcards --max-idle=permanent" in line for line in controller)
    assert not any("--noflow" in line for line in controller)


def test_a_run_takes_the_modules_and_comes_back(tmp_path: Path) -> None:
    plan = make_plan(RunRequest(links=("wired", "openflow"), ipsec=("both",)))
    both = {*links.MODULES, *ipsec.MODULES, *kind.MODULES}
    assert [set(wanted) for wanted in modules.of(plan).values()] == [both, both]
    assert not paths.private_folders(plan.links.values())
    folder = RunFolder(tmp_path)
    folder.save_plan(plan)
    assert folder.load_plan() == plan


def test_how_long_a_controller_thinks_is_not_known() -> None:
    hops = load_link("openflow").hops
    assert hops is not None and not hops.is_timed and not hops.is_routed


def refused(spec: str) -> str:
    with pytest.raises(UsageError) as error:
        load_link(spec)
    return str(error.value)


def test_only_such_links_have_modifiers_and_a_table_of_their_own(tmp_path: Path) -> None:
    for spec, name, title in (
        ("openflow:flows", "openflow-flows", "Open vSwitch, flows"),
        ("openflow:cpu=25", "openflow-controller-cpu25", "Open vSwitch, controller, 25% CPU"),
    ):
        profile = load_link(spec)
        assert (profile.name, profile.title) == (name, title)
        assert profile.hops is not None and profile.hops.count == 1
    profile = load_link("openflow:controller=fast-ethernet")
    assert (profile.name, profile.rate_bit_s) == ("openflow-controller-fast-ethernet", 10**8)
    assert profile.hops is not None and profile.hops.openflow is not None
    assert (profile.hops.openflow.rate_bit_s, profile.hops.openflow.flows) == (10**8, False)
    unshaped = load_link("openflow:unshaped").hops
    assert unshaped is not None and unshaped.openflow is not None
    assert (unshaped.openflow.rate_bit_s, unshaped.openflow.delay_us) == (None, 0)
    for spec, said in (
        ("openflow:flows:controller", "'controller', 'controller=LINK' or 'flows'"),
        ("openflow:cpu=0", "'cpu=N' (1 to 100 percent)"),
        ("openflow:cpu=101", "'cpu=N' (1 to 100 percent)"),
        ("openflow:controller=nothing", "there is no link 'nothing'"),
        ("openflow:controller=local", "the disk without a network"),
        ("switched:flows", "found 'flows'"),
    ):
        assert said in refused(spec)
    shipped = (data_folder() / "profiles/links/openflow.toml").read_text(encoding="utf-8")
    without = shipped.partition("[hops.openflow]")[0]
    table = '[hops.openflow]\ncontroller = "wired"\n'
    file = tmp_path / "bad.toml"
    for text, said in (
        (without, "a table openflow"),
        (f"{without}{table}packet_us = -1\n", "packet_us of 0 to"),
        (f"{without}{table}cpu_percent = 101\n", "cpu_percent of 1 to"),
        (f"{without}{table}".replace('kind = "openflow"', 'kind = "switch"'), "a table openflow"),
    ):
        file.write_text(text, encoding="utf-8")
        assert said in refused(str(file)) and str(file) in refused(str(file))


def test_a_share_of_a_switchs_processor_needs_a_cost(tmp_path: Path) -> None:
    text = (data_folder() / "profiles/links/openflow.toml").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    for instead, spec, said in (
        ("cpu_percent = 50", "", "expected packet_us with"),
        ("", ":cpu=50", "'cpu=50'"),
    ):
        file.write_text(text.replace("packet_us = 55", instead), encoding="utf-8")
        assert said in refused(f"{file}{spec}")
