"""Paths: what is built of hops, in which order, and that nothing of it is left, wherever it breaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.journal import Journal
from harness.hosts.packages import PATHS, Package, listed
from harness.model import HopKind
from harness.model.errors import CommandFailed, HarnessError, RequirementError, UsageError
from harness.network import links, paths
from harness.network.links import LinkPath
from harness.network.paths import Folders
from harness.observe import hops
from harness.parse import pppd
from harness.parse.profiles import load_link
from tests.unit.fakes import Failure, World
from tests.unit.fakes.answers import DONE, NO
from tests.unit.network.worlds import said

SPECS = ["switched:0", "switched:2", "routed:1", "routed:3", "pppoe", "pppoe:pap"]
SPECS += ["openflow:flows", "openflow:cpu=25"]
PAP = """\
rcvd [LCP ConfReq id=0x1 <mru 1492> <auth pap> <magic 0x5eedb0b5>]
sent [LCP ConfAck id=0x1 <mru 1492> <auth pap> <magic 0x5eedb0b5>]
sent [PAP AuthReq id=0x1 user="client-3" password=<hidden>]
"""
PAP_BELIEVED = f'{PAP}rcvd [PAP AuthAck id=0x1 "Login ok"]\nPAP authentication succeeded\n'
PAP_REFUSED = f'{PAP}rcvd [PAP AuthNak id=0x1 "Login incorrect"]\nPAP authentication failed\n'
CHAP_BELIEVED = """\
sent [LCP ConfAck id=0x1 <mru 1492> <auth chap MD5> <magic 0x5eedb0b5>]
rcvd [CHAP Challenge id=0x6c <c0ffee>, name = "concentrator"]
CHAP authentication succeeded
"""


def world_that_answers(place: Path, **more: Any) -> World:
    """Programs that come up at once: discovery is heard, the session has its addresses, the switch its
    controller."""
    switch = ("ovs-vsctl", f"--db=unix:{place}/private/db.sock", "--timeout=20", "get")
    session = (0, "2: ppp0 inet 198.18.3.5 peer 198.18.3.6/32 scope global ppp0", "")
    listens = (0, "LISTEN 0 10 198.18.3.254:6653 0.0.0.0:*", "")
    answers = {("ip", "-o", "-4"): session, ("test", "-S"): DONE, ("ss", "-ltnH"): listens}
    world = World(answers=[*answers.items(), (switch, (0, "true\n", ""))], **more)
    world.secret_files["/proc/net/packet"] = "0000 3 3 8863 2 1 0 0 42\n"
    return world


@contextlib.contextmanager
def brought_up(spec: str, world: World, place: Path, journal: Journal, **more: Any) -> Iterator[LinkPath]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.hosts.packages.Package.installed", True)
        if spec.startswith("pppoe") and not (log := place / "pppd-client.log").exists():
            log.write_text(PAP_BELIEVED if ":pap" in spec else CHAP_BELIEVED, encoding="utf-8")
        link = links.LinkPlace(journal, world.host("initiator"), load_link(spec), tag="beef", index=3, **more)
        with paths.bring_up(link, Folders(private=place / "private", logs=place)) as path:
            yield path


@contextlib.contextmanager
def built(spec: str, world: World, place: Path, **more: Any) -> Iterator[LinkPath]:
    """A path of which nothing is left."""
    journal = Journal(place / "journal.jsonl")
    with brought_up(spec, world, place, journal, **more) as path:
        yield path
    assert (world.left, journal.leaks, journal.open_entries()) == (set(), [], {})


def lines_of(spec: str, place: Path, *hosts: str, **more: Any) -> list[list[str]]:
    """What hosts were told while a path was up."""
    world = world_that_answers(place)
    with built(spec, world, place, **more):
        return [said(world, host) for host in hosts]


@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
@pytest.mark.parametrize("spec", SPECS)
def test_nothing_is_left_wherever_it_breaks(spec: str, failure: Failure, tmp_path: Path) -> None:
    broken = 0
    for step in range(1, 200):
        place = tmp_path / str(step)
        place.mkdir()
        world = world_that_answers(place, fail_at=step, failure=failure)
        journal = Journal(place / "journal.jsonl")
        came_up = False
        with contextlib.suppress(HarnessError, OSError), brought_up(spec, world, place, journal) as path:
            came_up = bool(world.left)
            assert path.profile.hops is not None and len(path.hops) == path.profile.hops.count
            assert len({hop.netns for hop in path.hops} | {path.target.netns}) == len(path.hops) + 1
        # A step of the taking down that fails is reported, and what it was to remove stays written down.
        assert bool(journal.leaks) == bool(journal.open_entries())
        if not journal.leaks:
            assert world.left == set(), world.failed
        if world.failed is None:
            break
        broken += not came_up
    assert broken > 5 and came_up


def test_each_segment_is_sent_over_at_the_links_rate_and_the_ends_need_no_delay(tmp_path: Path) -> None:
    near, one, two, far = lines_of("switched:2", tmp_path, "initiator", "switch1", "switch2", "target")
    end = "root netem limit 10000 rate 1000000000bit 24"
    hop = "root netem limit 10000 delay 7us rate 1000000000bit 24"
    assert f"tc qdisc add dev hbeefi3 {end}" in near and f"tc qdisc add dev hbeeft3 {end}" in far
    for lines in (one, two):
        shaped = [line for line in lines if "netem" in line]
        assert shaped == [f"tc qdisc add dev {iface} {hop}" for iface in ("near", "far")]
        assert "link set dev near master switch" in lines and "link set dev far master switch" in lines
    # A super-packet would be stored whole at each of them; without a rate it may pass.
    assert "link set dev hbeefi3 gso_max_segs 1" in near
    (near,) = lines_of("switched:2:unshaped", tmp_path, "initiator")
    assert not any("gso_max_segs" in line or "netem" in line for line in near)


def test_routers_know_the_way_to_both_ends(tmp_path: Path) -> None:
    hosts = ("initiator", "router1", "router2", "router3", "target")
    near, *routers, far = lines_of("routed:3", tmp_path, *hosts)
    assert "ip route add 198.18.3.0/24 via 198.18.3.2" in near
    assert [[line for line in lines if "route" in line] for lines in routers] == [
        ["ip route add 198.18.3.12/30 via 198.18.3.6"],
        ["ip route add 198.18.3.0/30 via 198.18.3.5", "ip route add 198.18.3.12/30 via 198.18.3.10"],
        ["ip route add 198.18.3.0/30 via 198.18.3.9"],
    ]
    assert "ip route add 198.18.3.0/24 via 198.18.3.13" in far
    assert "address add 198.18.3.14/30 dev hbeeft3" in far


def test_the_clients_log_tells_how_it_was_proved() -> None:
    found = {
        PAP_BELIEVED: ("pap", True),
        PAP_REFUSED: ("pap", False),
        CHAP_BELIEVED: ("chap MD5", True),
        PAP: ("pap", None),
        # The last session counts, and words of another protocol do not.
        PAP_BELIEVED + CHAP_BELIEVED: ("chap MD5", True),
        CHAP_BELIEVED + PAP_REFUSED: ("pap", False),
        CHAP_BELIEVED + PAP: ("pap", None),
        f"{PAP}CHAP authentication succeeded\n": ("pap", None),
        "Timeout waiting for PADO packets\n": (None, None),
        "sent [LCP ConfAck id=0x1 <mru 1492>]\nPAP authentication succeeded\n": (None, None),
        "": (None, None),
    }
    assert {log: pppd.authentication(log) for log in found} == found


def test_the_client_is_proved_as_asked_and_its_secret_is_in_no_command(tmp_path: Path) -> None:
    secrets = set()
    for spec, agreed in (("pppoe", "chap MD5"), ("pppoe:chap", "chap MD5"), ("pppoe:pap", "pap")):
        place, way = tmp_path / spec, agreed.split()[0]
        place.mkdir()
        world = world_that_answers(place)
        with built(spec, world, place) as path:
            assert links.describe(path)["pppoe_authentication"] == agreed
            (file,) = (name for name in world.secret_files if name.endswith("-secrets"))
            secret = world.secret_files[file].split('"')[1]
        assert file == f"/etc/ppp/{way}-secrets" and secret not in str(world.commands)
        assert f"\nrequire-{way}\n" in world.secret_files[str(place / "private" / "options")]
        secrets.add(secret)
    assert len(secrets) == 3


def fails(spec: str, world: World, place: Path) -> str:
    """Why a path does not come up, after which nothing is left."""
    journal = Journal(place / "journal.jsonl")
    with pytest.raises(CommandFailed) as error, brought_up(spec, world, place, journal):
        pytest.fail("it came up")
    assert (world.left, journal.leaks) == (set(), [])
    return error.value.message


def test_a_session_that_is_refused_or_proved_otherwise_is_none(tmp_path: Path) -> None:
    log = tmp_path / "pppd-client.log"
    for spec, said_there in (("pppoe:pap", CHAP_BELIEVED), ("pppoe", PAP_BELIEVED), ("pppoe", "")):
        log.write_text(said_there, encoding="utf-8")
        expected = "expected the PPPoE client to authenticate by"
        assert expected in fails(spec, world_that_answers(tmp_path), tmp_path)
    # What both ends said is reported.
    log.write_text("CHAP authentication failed\n")
    (tmp_path / "pppd-concentrator.log").write_text("peer refused\n")
    world = world_that_answers(tmp_path)
    world.answers.insert(0, (("ip", "-o", "-4"), NO))
    reason = fails("pppoe", world, tmp_path)
    assert all(words in reason for words in ("within 20 s", "CHAP authentication failed", "peer refused"))


def test_who_proves_itself_is_part_of_the_links_name() -> None:
    assert (load_link("pppoe:pap:jumbo").name, load_link("pppoe:chap").name) == ("pppoe-pap-mtu9000", "pppoe")
    assert load_link("pppoe:pap").title.endswith(", PAP")
    for spec in ("pppoe:pap:chap", "pppoe:mschap", "routed:pap", "wired:pap"):
        with pytest.raises(UsageError, match="expected each of"):
            load_link(spec)


def test_a_session_takes_its_header_from_the_mtu(tmp_path: Path) -> None:
    for spec, mtu in (("pppoe", 1492), ("pppoe:jumbo", 1492), ("pppoe:mtu=1400", 1392)):
        (client,) = lines_of(spec, tmp_path, "pppoe-client")
        (call,) = [line for line in client if line.startswith("daemon ") and "rp-pppoe.so" in line]
        assert call.endswith(f"mtu {mtu} mru {mtu}")
        assert any("TCPMSS --clamp-mss-to-pmtu" in line for line in client)


def test_a_controllers_link_is_shaped_as_its_profile_says(tmp_path: Path) -> None:
    switch, controller = lines_of("openflow:controller=fast-ethernet", tmp_path, "switch", "controller")
    (asked,) = (line for line in switch if "netem" in line and " control " in line)
    (answered,) = (line for line in controller if "netem" in line and " control " in line)
    assert "limit 1000 delay 50us" in asked and "rate 98439532bit" in asked
    assert "limit 1000 delay 50us" in answered and "rate" not in answered, "24 bytes for a packet"
    assert any("--hub --noflow" in line for line in controller if line.startswith("daemon "))
    assert any("datapath_type=system fail_mode=secure" in line for line in switch if "add-br" in line)

    # Hosts are on Fast Ethernet with queues as long as Linux has them.
    ends = lines_of("openflow:controller", tmp_path, "initiator", "target", frame_by_frame=True)
    for lines, iface in zip(ends, ("hbeefi3", "hbeeft3"), strict=True):
        assert f"tc qdisc add dev {iface} root netem limit 1000 rate 100000000bit 24" in lines


@pytest.mark.parametrize("is_virtual", [False, True])
def test_a_slow_switch_takes_its_time_for_each_packet_of_both_hosts(tmp_path: Path, is_virtual: bool) -> None:
    (switch,) = lines_of("openflow:controller:cpu=50", tmp_path, "switch", frame_by_frame=is_virtual)
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
    controller, near = lines_of("openflow:flows", tmp_path, "controller", "initiator")
    assert "ping -q -c 1 -W 5 198.18.3.2" in near, "so that they are there before anything is measured"
    assert any("--hub --wildcards --max-idle=permanent" in line for line in controller)
    assert not any("--noflow" in line for line in controller)


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Package, "installed", property(lambda package: package.name != "pppoe"))
    host = World().host("initiator")
    place = links.LinkPlace(Journal(tmp_path / "j"), host, load_link("pppoe"), tag="beef", index=3)
    up = paths.bring_up(place, Folders(private=tmp_path, logs=tmp_path))
    with pytest.raises(RequirementError) as error, up:
        pytest.fail("it came up")
    assert error.value.message == "pppoe needs packages that are missing: pppoe"
    assert (error.value.hint or "").endswith("apt-get install --no-install-recommends pppoe")
    assert not host.world.commands
    # Every package of the list belongs to a kind of hop, or to how one is asked.
    kinds = {package.purpose.partition(":")[0] for package in listed(PATHS)}
    assert kinds <= {*HopKind, *hops.schemes()}
