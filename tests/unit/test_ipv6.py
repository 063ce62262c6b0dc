"""Links of IPv6: their addresses and names, what tools are asked for, how frames are distinguished."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis import theory
from harness.analysis.wire import framing_of
from harness.hosts.journal import Journal
from harness.hosts.programs import netlink
from harness.model import IPV4, IPV6, BackingKind, Family, IpsecMode, LinkProfile, Plan, Record, addresses
from harness.model.errors import RequirementError, UsageError
from harness.network import links
from harness.parse.profiles import load_link, load_proposal, over_ip, real_link
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest, Version
from harness.probes import throughput
from harness.protection import fail_closed, proof, xfrm
from harness.protection.capture import FrameReader, Seen, expression
from harness.protection.ipsec import IKE_PORT
from harness.protection.ipsec.layer import EspFrames
from harness.protection.layer import Frames
from harness.protection.programs import xfrm_listener as program
from harness.results import planned, rules
from harness.runs import modules
from harness.storage.iscsi.transport import IscsiSides
from harness.storage.requests import Made
from harness.storage.transport import Export, Lun, Sides
from harness.testbeds import testbed
from harness.testbeds.lab import boot
from tests import flat
from tests.unit.fakes import World, ethernet
from tests.unit.fakes.answers import NO
from tests.unit.fakes.paths import link_path
from tests.unit.results.test_results import record

NEAR, FAR = "2001:2:0:3::1", "2001:2:0:3::2"
WIRED = over_ip(load_link("wired"), IPV6)


def path(*, is_shared: bool = False) -> links.LinkPath:
    at = {"port": 3264 if is_shared else 3260, "is_shared": is_shared}
    ends: dict[str, Any] = {"initiator_address": NEAR, "target_address": FAR, **at}
    return link_path(World(), profile=WIRED, **ends)


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, address)


def frame(protocol: int, payload: bytes, source: str = NEAR, destination: str = FAR) -> bytes:
    header = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64)
    return ethernet(0x86DD, header + packed(source) + packed(destination) + payload)


def tcp(sport: int, dport: int) -> bytes:
    return struct.pack("!HHIIBBHHH", sport, dport, 1, 1, 5 << 4, 16, 0, 0, 0) + bytes(40)


def udp(sport: int, dport: int, payload: bytes = bytes(20)) -> bytes:
    return struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload


def icmp(kind: int) -> bytes:
    return frame(58, bytes([kind]) + bytes(23))


def fragment(protocol: int, offset: int, payload: bytes) -> bytes:
    return struct.pack("!BBHI", protocol, 0, offset, 7) + payload


ESP = struct.pack("!II", 7, 256) + bytes(40)


def test_every_link_has_addresses_of_its_own() -> None:
    all_of_them, some = range(256), (0, 1, 2, 15, 16, 255)
    pairs = {(index, number) for index in all_of_them for number in some}
    pairs |= {(index, number) for index in some for number in all_of_them}
    assert len({addresses.of(IPV6, index, number) for index, number in pairs}) == len(pairs)
    assert addresses.of(IPV6, 0, 1) == "2001:2::1" and addresses.of(IPV6, 3, 2) == FAR
    assert addresses.of(IPV4, 3, 2) == "198.18.3.2"
    assert addresses.network(IPV6, 255) == "2001:2:0:ff::/64"
    assert addresses.unique_local("beef", 2, 1) == "fd48:2be7:beef:2::1", "it has the run's tag"
    assert addresses.unique_local("no tag", 2, 1) != addresses.unique_local("another", 2, 1)
    for address, bits, at_port in (("198.18.0.1", 32, "198.18.0.1:3260"), (NEAR, 128, f"[{NEAR}]:3260")):
        assert addresses.alone(address) == f"{address}/{bits}"
        assert addresses.at_port(address, 3260) == at_port


def test_a_link_and_a_record_of_ipv6_say_so_and_those_of_ipv4_are_as_they_were() -> None:
    four = load_link("wired")
    assert (WIRED.name, WIRED.title, WIRED.ip) == ("wired-ip6", "Gigabit Ethernet, IPv6", IPV6)
    assert over_ip(four, IPV4) is four and four.ip == IPV4
    assert b'"ip"' not in msgspec.json.encode(four)
    written = msgspec.json.encode(WIRED)
    assert json.loads(written)["ip"] == 6
    assert msgspec.json.decode(written, type=LinkProfile) == WIRED
    written = msgspec.json.encode(flat.changed(record(), ip=IPV6))
    assert json.loads(written)["column"]["ip"] == 6 and record().column.ip == IPV4
    assert msgspec.json.decode(written, type=Record).column.ip == IPV6


def test_a_links_file_cannot_choose_and_mtu_and_portal_are_of_the_family(tmp_path: Path) -> None:
    (tmp_path / "six.toml").write_text('title = "six"\nemulated = true\nip = 6\n')
    with pytest.raises(UsageError, match="ip"):
        load_link(str(tmp_path / "six.toml"))
    with pytest.raises(UsageError, match="1280 or more, found 1000"):
        over_ip(load_link("wired:mtu=1000"), IPV6)
    # A portal is of the link's family.
    six = real_link("wired=eth0@FD00:0::9")
    assert six.portal == "fd00::9"
    assert over_ip(six, IPV6).portal == "fd00::9"
    for spec, family in (("wired=eth0@fd00::9", IPV4), ("wired=eth0@10.0.0.9", IPV6)):
        with pytest.raises(UsageError, match=f"expected an IPv{family} address"):
            over_ip(real_link(spec), family)
    with pytest.raises(UsageError, match="without a scope"):
        real_link("wired=eth0@fe80::1%eth0")


def plan(*ip: str, **more: object) -> Plan:
    asked = {"links": ("wired",), "workloads": ("seq-read-4k",), "ip": tuple(map(Version, ip)), **more}
    return make_plan(msgspec.convert(asked, RunRequest))


def test_both_families_are_columns_unless_an_address_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan("4", "6")
    real = plan("4", "6", target="ssh://root@server", links=("wired=eth0@fd00::9",), ipsec=("off",))
    both, alone = ([column.label for column in each.columns] for each in (made, real))
    assert both == ["wired", "wired-ip6", "wired+aes128gcm16", "wired-ip6+aes128gcm16"]
    assert alone == ["wired-ip6"] and made.speaks_ipv6 and not plan().speaks_ipv6
    asked = {ip: {"ipv6", "esp6"} & set(modules.of(plan(*ip))["target"]) for ip in ("", "6")}
    assert asked == {"": set(), "6": {"ipv6", "esp6"}}, "modules are loaded where it is asked for"
    # A kernel is booted with IPv6 only if a link speaks it.
    own = boot.Kernel(binary=Path("linux"), modules=Path("modules"), options=(boot.NO_IPV6, "x"))
    monkeypatch.setattr(testbed, "_chosen", lambda _plan: own)
    assert testbed._kernel(plan()).options == (boot.NO_IPV6, "x")
    assert testbed._kernel(plan("6")).options == ("x", boot.IPV6)


def test_resuming_on_real_machines_takes_the_family_again() -> None:
    machines = {"target": "ssh://root@server", "links": ("wired=eth0",), "ipsec": ("off",)}
    made = plan("6", **machines)
    assert ("--ip", "6") in planned.outside(made) and ("--link", "wired=eth0") in planned.outside(made)
    rules.check(made, "plan.json")
    both = plan("4", "6", **machines)
    assert planned.outside(both).count(("--link", "wired=eth0")) == 1
    typed = [("--target", "ssh://root@server"), ("--link", "wired=eth0"), ("--ip", "4"), ("--ip", "6")]
    planned.require_typed(both, "run", typed)
    with pytest.raises(UsageError):
        planned.require_typed(both, "run", typed[:2])


def test_a_kernel_without_ipv6_is_refused_and_others_have_addresses_and_windows_at_once() -> None:
    without = World(answers=[((), NO)]).host("target")
    with pytest.raises(
        RequirementError, match=r"--ip 6 needs IPv6, but the target's kernel was built without it"
    ):
        links.require_ipv6(without)
    assert links.adding(NEAR, 64, "near0") == f"address add {NEAR}/64 dev near0 nodad\n"
    assert links.adding("198.18.3.1", 24, "near0") == "address add 198.18.3.1/24 dev near0\n"
    narrow = msgspec.structs.replace(WIRED, tcp_window_bytes=65536)
    route = "route replace 2001:2:0:3::/64 dev near0 proto kernel metric 256 window 65536\n"
    assert links._window(narrow, "near0", f"{NEAR}/64") == route


def test_fail_closed_are_of_the_links_family_and_a_passage_is_a_route_and_not_an_interface() -> None:
    made = fail_closed.InterfaceFailClosed("initiator", FAR, 3260)
    (step,) = made.undo()
    assert " ".join(step.argv) == f"ip xfrm policy deleteall src ::/0 dst {FAR}/128 priority 19500"
    (blocked, _) = xfrm.IpsecFailClosed("initiator", NEAR, FAR, 3260)._policies()
    assert " ".join(blocked) == f"src {NEAR}/128 dst {FAR}/128 proto 6 dport 3260 dir out"
    (end_them, *_) = fail_closed.Connections("initiator", FAR, 3260).undo()
    assert f"[{FAR}]" in end_them.argv
    passage = fail_closed.AllowOutbound("initiator", FAR, 3260, "hbeefw3")
    (step,) = passage.undo()
    assert " ".join(step.argv) == f"ip xfrm policy deleteall src 2001:2:0:3::/64 dst {FAR}/128 priority 19000"
    assert passage._device == ()
    assert fail_closed.AllowOutbound("initiator", "198.18.3.2", 3260, "w")._device == ("dev", "w")
    (step,) = fail_closed.UnreachableRoute(addresses.pair_of(FAR)).undo()
    assert " ".join(step.argv) == "ip -6 route del unreachable 2001:2:0:3::/126 metric 8192"


def test_a_portals_port_is_distinguished_from_its_address() -> None:
    host, journal = path().target, Journal(Path("unused"))
    sides = Sides(journal=journal, tag="beef", target=host, initiators=(host,), luns=(), logs=Path())
    lun = Lun(serial="s", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=1 << 27)
    wanted = Export(name="x", number=0, lun=lun, target=host, address=FAR, port=3260, parameters={})
    _, session = IscsiSides(sides, secret="s", nonce="n").connections(wanted)  # noqa: S106 (of no target)
    assert isinstance(session, Made)
    portal = {"portal": f"[{FAR}]:3260", "interface": "harness-beef-2001-2-0-3--2-3260"}
    assert portal.items() <= json.loads(session.make.input).items()
    assert throughput.client(path(), 52010, 1)[3] == "-6"


def test_policies_of_the_other_family_cover_nothing_fragments_of_both_count_and_states_are_read() -> None:
    for selector, covers in (("0.0.0.0/0", False), ("::/0", True)):
        text = f"src {selector} dst {selector} \n\tdir out priority 5 ptype main \n"
        (policy,) = xfrm.parse_policies(text)
        assert policy.covers(path()) is covers, selector
    text = "Ip: FragCreates ReasmReqds\nIp: 1 2\nIp6FragCreates                 \t3\nIp6ReasmReqds\t4\n"
    assert proof._snmp(text) == {"FragCreates": 4, "ReasmReqds": 6}
    info = bytearray(224)
    info[56:72], info[72:76], info[76] = packed(FAR), b"\0\0\0\7", 50
    info[80:96] = packed(NEAR)
    struct.pack_into("=QQ", info, 160, 1000, 10)
    struct.pack_into("=IHB", info, 208, 5, socket.AF_INET6, 0)
    algorithm = struct.pack("=HH", 4 + 72, 18) + b"rfc4106(gcm(aes))".ljust(72, b"\0")
    known = program.Associations.__new__(program.Associations)
    known.reqid, known.family = 5, socket.AF_INET6
    found = known.of(bytes(info), dict(netlink.attributes(algorithm)))
    assert found and (found["source"], found["destination"], found["bytes"]) == (NEAR, FAR, 1000)
    known.family = socket.AF_INET
    assert known.of(bytes(info), dict(netlink.attributes(algorithm))) is None


def seen(data: bytes, frames: Frames, port: int = 3260) -> Seen:
    found = Seen()
    FrameReader(frames=frames, port=port).tell(data, len(data), found)
    return found


def test_frames_are_distinguished_and_the_first_that_does_not_belong_is_named() -> None:
    for data, what in (
        *((frame(50, ESP), "protected"), (frame(44, fragment(50, 1480, bytes(100))), "protected")),
        (frame(6, tcp(40000, 3260)), "cleartext"),
        (frame(44, fragment(6, 1440, bytes(100))), "cleartext"),
        (frame(0, bytes([6, 0, 5, 2, 0, 0, 1, 0]) + tcp(3260, 40000)), "cleartext"),
        (frame(17, udp(50000, IKE_PORT)), "control"),
        (frame(17, udp(50000, IKE_PORT), "2001:db8::1"), "other"),
        *((icmp(135), "control"), (icmp(136), "control")),  # neighbour solicitation and advertisement
        (icmp(128), "other: ICMPv6 of type 128"),  # an echo request
        (frame(6, tcp(40000, 22)), "other: TCP 40000 to 22 over IPv6"),
        *((frame(50, b""), "other"), (frame(17, udp(5353, 5353)), "other: UDP 5353 to 5353 over IPv6")),
        (frame(132, bytes(20)), "other: protocol 132 over IPv6"),
        (bytes(12) + b"\x88\xcc" + bytes(40), "other: EtherType 0x88cc"),
        (bytes(12) + b"\x86\xdd" + bytes(3), "other: too short for what it claims to be"),
    ):
        found = seen(data, EspFrames.between(path()))
        kind, _, named = what.partition(": ")
        for name in ("cleartext", "control", "other"):
            assert getattr(found, name) == int(name == kind), what
        assert found.sampled == (kind == "protected"), what
        assert not named or found.first_other == named
    # And those of the other family and of other protections.
    four = EspFrames(addresses=(bytes([198, 18, 3, 1]), bytes([198, 18, 3, 2])))
    assert seen(frame(50, ESP), four).other == 1


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("protected", [False, True])
def test_libpcap_takes_every_filter(protected: bool, is_shared: bool) -> None:
    require_filter(EspFrames.between(path()), protected=protected, is_shared=is_shared)


def require_filter(frames: Frames, *, protected: bool, is_shared: bool = False) -> None:
    """It is one for libpcap, and looks into no header of IPv4."""
    text = expression(path(is_shared=is_shared), "initiator", frames, protected=protected, one_in=64)
    subprocess.run(["tcpdump", "-y", "EN10MB", "-d", text], capture_output=True, check=True)
    assert "ip[" not in text and "tcp[" not in text and "udp[" not in text


def wire(family: Family, framing: Any = None) -> theory.Wire:
    return theory.Wire(link=over_ip(load_link("wired"), family), framing=framing)


def test_headers_are_20_bytes_longer_also_within_esp() -> None:
    four, six = wire(IPV4), wire(IPV6)
    assert (four.mss_bytes, six.mss_bytes) == (1448, 1428)
    assert six.frame_bytes(1428) == four.frame_bytes(1448) == 1514
    assert theory.Wire(link=WIRED).goodput_bytes_s == pytest.approx(10**9 / 8 * 1428 / 1538)
    gcm = load_proposal("aes128gcm16")
    for family, of_transport, of_tunnel in ((IPV4, 1414, 1394), (IPV6, 1394, 1354)):
        for mode, mss in ((IpsecMode.TRANSPORT, of_transport), (IpsecMode.TUNNEL, of_tunnel)):
            within = wire(family, framing_of((gcm.name,), {gcm.name: gcm}, mode, 1500, family))
            assert within.mss_bytes == mss, (family, mode)
            assert 1500 - 4 < within.frame_bytes(mss) - 14 <= 1500, (family, mode)
