"""Real links: what ip(8) and ethtool(8) say, which link follows from it, and what is changed for it.

What a kernel makes of it is proved in the lab (``tests/lab/inside/real_interfaces.py``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.hosts.runner import Completed
from harness.model import IPV4, IPV6, LinkProfile
from harness.model.errors import CommandFailed, RequirementError, UsageError
from harness.network import interfaces, sysctls
from harness.network.interfaces import PolicyRoute
from harness.parse import ethtool
from harness.parse.profiles import over_ip

UP = ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"]
CONF = "/proc/sys/net/ipv4/conf"
SET = {f"{CONF}/{iface}/arp_ignore": "1" for iface in ("eth0", "wlan0")}
SET |= {f"{CONF}/{iface}/arp_announce": "2" for iface in ("eth0", "wlan0")}


def device(name: str, *addresses: str, **more: Any) -> dict[str, Any]:
    """An interface as ``ip -d -j address`` has it."""
    info = []
    for address in addresses:
        local, _, prefix = address.partition("/")
        scope = "link" if local.startswith("fe80") else "global"
        family = "inet6" if ":" in local else "inet"
        info.append({"family": family, "local": local, "prefixlen": int(prefix), "scope": scope})
    return {"ifname": name, "flags": UP, "operstate": "UP", "link_type": "ether", "addr_info": info, **more}


@dataclass(frozen=True, eq=False)
class Machine(NamespaceHost):
    """A machine with these interfaces, which sends through ``prefers``, and notes what it does."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    prefers: str = ""
    sysctls: dict[str, str] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    lacks_ipv6: bool = False
    ipv6_off: bool = False
    done: list[str] = field(default_factory=list)

    @property
    def kernel(self) -> object:
        return self

    def _run(self, argv: Sequence[str], input: str | None, timeout_s: float, env: object) -> Completed:
        del timeout_s, env
        text = self._answer(list(argv), input or "")
        return Completed(argv=tuple(argv), status=text is None, stdout=text or "", stderr="no")

    def _answer(self, argv: list[str], text: str) -> str | None:
        match argv:
            case ["ip", "-6", "-d", "-j", "route", "show", "root", network]:
                return "[{}]" if network in self.tables else "[]"
            case ["ip", "-6", "-d", "-j", *words]:
                return self._answer(["ip", "-d", "-j", *words], text)
            case ["test", "-e", "/proc/net/if_inet6"]:
                return None if self.lacks_ipv6 else ""
            case ["ip", "-d", "-j", "address"]:
                return json.dumps(self.devices)
            case ["ip", "-d", "-j", "-s", "link", "show", "dev", name]:
                found = [one for one in self.devices if one["ifname"] == name]
                return json.dumps(found) if found else None
            case ["ip", "-d", "-j", "route", "get", "fibmatch", to, "oif", name]:
                return "[{}]" if self._source(name, to) else None
            case ["ip", "-d", "-j", "route", "get", to, "oif", name]:
                return json.dumps([{"dev": name, "prefsrc": self._source(name, to)}])
            case ["ip", "-d", "-j", "route", "get", _, "from", source]:
                ours = [words.split() for words in self.done if " route add " in f"{words} "]
                ours += [["dev", self.prefers]] * any(source in words for words in self.done)
                chosen = [words[words.index("dev") + 1] for words in ours if source in words]
                return json.dumps([{"dev": (chosen or [self.prefers])[0]}])
            case ["ip", "-d", "-j", "rule"]:
                return json.dumps([{"priority": 32766, "table": "main"}])
            case ["ip", "-d", "-j", "route", "show", "table", number]:
                return "[{}]" if number in self.tables else None
            case ["cat", *paths]:
                return "".join(f"{self.sysctls.get(path, '0')}\n" for path in paths)
            case ["tee", path]:
                self.sysctls[path] = text
        self.done.append(" ".join([*argv, text]).strip())
        return ""

    def _source(self, name: str, to: str) -> str | None:
        (one,) = (one for one in interfaces.read_interfaces(self) if one.name == name)
        address = one.address_in(to)
        return address.local if address else None

    def clock_offset_ns(self) -> int:
        return 0

    def read_files(self, paths: Sequence[str]) -> list[str]:
        if paths[0].endswith("disable_ipv6"):
            return [f"{int(self.ipv6_off)}\n" for _ in paths]
        return ["0\n" if "/wlan0/" in path else "" for path in paths]


def machine(name: str, *devices: dict[str, Any], prefers: str = "") -> Machine:
    return Machine(name, devices=list(devices), prefers=prefers or devices[0]["ifname"])


def real(interface: str, portal: str | None = None) -> LinkProfile:
    return LinkProfile(name="wired", title="wired", emulated=False, interface=interface, portal=portal)


def six(interface: str, portal: str | None = None) -> LinkProfile:
    return over_ip(real(interface, portal), IPV6)


WIRED = real("eth0")
LO = device("lo", "127.0.0.1/8", flags=["LOOPBACK", "UP", "LOWER_UP"], link_type="loopback")
ETH0 = device("eth0", "10.0.0.1/24")
TARGET = machine("target", device("eth0", "10.0.0.9/24"), LO)
ONE_NIC = machine("initiator", ETH0, LO)
TWO_NICS = (ETH0, device("wlan0", "10.0.0.2/24"), LO)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def near() -> Machine:
    """An initiator with two interfaces in the target's network."""
    return machine("initiator", *TWO_NICS)


def test_addresses_that_others_are_reached_by() -> None:
    ppp = device("ppp0")
    ppp["addr_info"] = [{"family": "inet", "local": "10.8.0.1", "address": "10.8.0.2", "prefixlen": 32}]
    eth = device("eth0", "10.0.0.1/24", "10.0.0.2/24", "192.168.1.1/30")
    eth["addr_info"][1]["secondary"] = True
    eth["addr_info"].append({"family": "inet6", "local": "fe80::1", "prefixlen": 64})
    found = {one.name: one for one in interfaces.read_interfaces(machine("initiator", ppp, eth))}
    assert [str(address) for address in found["eth0"].of(IPV4)] == ["10.0.0.1/24", "192.168.1.1/30"]
    assert str(found["ppp0"].of(IPV4)[0].network) == "10.8.0.2/32"
    assert found["ppp0"].address_in("10.8.0.2") and not found["ppp0"].address_in("10.8.0.1")


def test_ports_of_bridges_and_bonds_but_not_of_a_vrf() -> None:
    port = device("a", master="br0", linkinfo={"info_slave_kind": "bridge"})
    of_vrf = device("b", master="blue", linkinfo={"info_kind": "veth", "info_slave_kind": "vrf"})
    # The last is what iproute2 leaves of an interface that it filtered out.
    found = interfaces.read_interfaces(machine("initiator", port, of_vrf, device("c"), {}))
    assert {one.name: one.port_of for one in found} == {"a": "br0", "b": None, "c": None}


def test_an_ip_without_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("1: lo: <LOOPBACK,UP>", "{", '[{"ifname": 1}]'):
        monkeypatch.setattr(Machine, "_answer", lambda _self, _argv, _text, text=text: text)
        with pytest.raises(RequirementError, match="iproute2") as error:
            interfaces.read_interfaces(ONE_NIC)
        assert "ip -j address" in str(error.value), text


def test_the_target_s_address_in_the_interface_s_network_is_the_portal() -> None:
    others = (device("eth1", "172.17.0.9/16"), device("eth2", "10.0.0.9/24"), LO)
    near, end = interfaces._find_ends(ONE_NIC, machine("target", *others, prefers="eth2"), real("eth0"))
    assert (near.iface.name, near.address, near.peer) == ("eth0", "10.0.0.1", "10.0.0.9")
    assert (end.iface.name, end.address, end.peer) == ("eth2", "10.0.0.9", "10.0.0.1")
    assert near.siblings == end.siblings == [] and (near.chosen, end.chosen) == ("eth0", "eth2")


def test_links_that_cannot_work_are_refused() -> None:
    port = device("eth0", master="br0", linkinfo={"info_slave_kind": "bridge"})
    elsewhere = device("eth0", "192.168.1.5/24")
    in_another = r"192\.168\.1\.5/24.*10\.0\.0\.9/24 on eth0"
    for kind, words, link, devices in (
        (UsageError, "no interface eth9, only eth0, wlan0, lo", real("eth9"), TWO_NICS),
        (UsageError, "loopback", real("lo"), TWO_NICS),
        (RequirementError, "eth0 of the initiator is down", WIRED, [device("eth0", flags=["BROADCAST"])]),
        (RequirementError, "no carrier", WIRED, [device("eth0", flags=["UP", "NO-CARRIER"])]),
        (RequirementError, "no carrier", real("wlan0"), [device("wlan0", operstate="DORMANT")]),
        (RequirementError, "no IPv4 address", WIRED, [device("eth0")]),
        (UsageError, r"port of br0.*name br0 instead", WIRED, [port]),
        (UsageError, f"{in_another}.*--link wired=eth0@ADDRESS", WIRED, [elsewhere]),
        (UsageError, r"found 10\.0\.0\.77; it has 10\.0\.0\.9/24 on eth0", real("eth0", "10.0.0.77"), [ETH0]),
        (RequirementError, "no route to 10.0.0.9", real("eth0", "10.0.0.9"), [elsewhere]),
        (UsageError, "also an address of the initiator", WIRED, [device("eth0", "10.0.0.9/24")]),
        (UsageError, "docker0", WIRED, [ETH0, device("docker0", "10.0.0.9/24")]),
    ):
        with pytest.raises(kind, match=words) as error:
            interfaces.check(machine("initiator", *devices), TARGET, link)
        assert type(error.value) is kind, words
    # Of several portals one has to be named.
    far = machine("target", device("eth0", "10.0.0.9/24"), device("eth1", "10.0.0.10/24"))
    several = r"10\.0\.0\.9 \(eth0\), 10\.0\.0\.10 \(eth1\).*wired=eth0@10\.0\.0\.9"
    with pytest.raises(UsageError, match=several):
        interfaces.check(ONE_NIC, far, WIRED)
    interfaces.check(ONE_NIC, far, real("eth0", "10.0.0.10"))


def test_where_there_is_no_choice_nothing_is_changed(journal: Journal) -> None:
    with interfaces.bring_up(journal, ONE_NIC, TARGET, WIRED, index=3, port=3261) as path:
        assert path.is_shared and (path.index, path.port) == (3, 3261)
        assert (path.initiator_iface, path.initiator_address) == ("eth0", "10.0.0.1")
        assert (path.target_iface, path.target_address) == ("eth0", "10.0.0.9")
    assert ONE_NIC.done == TARGET.done == [] and not journal.path.exists()
    # A user's own address of IPv6 is used as it is.
    near = machine("initiator", device("eth0", "10.0.0.1/24", "2001:db8::1/64"), LO)
    far = machine("target", device("eth0", "10.0.0.9/24", "2001:db8::9/64"), LO)
    with interfaces.bring_up(journal, near, far, six("eth0", "2001:db8::9"), index=0, port=3264) as path:
        assert (path.initiator_address, path.target_address) == ("2001:db8::1", "2001:db8::9")
    assert near.done == far.done == []


def test_two_interfaces_in_one_network_are_kept_apart(journal: Journal) -> None:
    for ip, net, bits, kept in (("ip", "10.0.0.", 32, SET), ("ip -6", "2001:db8::", 128, {})):
        mask = 24 if kept else 64
        near = machine("initiator", device("eth0", f"{net}1/{mask}"), device("wlan0", f"{net}2/{mask}"), LO)
        far = machine("target", device("eth0", f"{net}9/{mask}"), LO)
        link = real("wlan0") if kept else six("wlan0", f"{net}9")
        route = f"{net}9/{bits} dev wlan0 src {net}2 table 48002"
        rule = f"from {net}2/{bits} to {net}9/{bits} lookup 48002 priority 1002"
        with interfaces.bring_up(journal, near, far, link, index=1, port=3260):
            assert near.sysctls == kept
            changed = [words for words in near.done if words.startswith("ip")]
            flushed = f"{ip} neigh flush to {net}9 dev wlan0"
            assert changed == [f"{ip} route add {route}", f"{ip} rule add {rule}", flushed]
            assert len(journal.open_entries()) == (5 if kept else 1)
        assert near.sysctls == dict.fromkeys(kept, "0") and not journal.open_entries() and not journal.leaks
        assert near.done[-2:] == [f"{ip} rule del {rule}", f"{ip} route del {route}"]


def test_what_the_user_has_set_is_enough_or_comes_back(near: Machine, journal: Journal) -> None:
    announced = f"{CONF}/eth0/arp_announce"
    own = {f"{CONF}/all/arp_ignore": "2", announced: "1", f"{CONF}/wlan0/arp_announce": "2"}
    near.sysctls.update(own)
    with interfaces.bring_up(journal, near, TARGET, real("wlan0"), index=0, port=3260):
        assert near.sysctls == {**own, announced: "2"}
    assert near.sysctls == own


def test_columns_that_end_in_any_order_share_what_they_need(near: Machine, journal: Journal) -> None:
    up = [interfaces.bring_up(journal, near, TARGET, real("wlan0"), index=n, port=3260) for n in (0, 1)]
    up[0].__enter__()
    with up[1]:
        up[0].__exit__(None, None, None)
        assert near.sysctls == SET
    assert near.sysctls == dict.fromkeys(SET, "0") and not journal.open_entries()
    # As with WireGuard, and the kernel itself may have set the value meanwhile.
    path = f"{CONF}/all/send_redirects"
    for old in ("1", "0"):
        near.sysctls[path] = old
        first, second = (sysctls.set_to(journal, near, (path,), "0") for _ in range(2))
        first.__enter__()
        with second:
            assert near.sysctls[path] == "0"
            first.__exit__(None, None, None)
            assert near.sysctls[path] == "0"
        assert near.sysctls[path] == old and not journal.open_entries()
    assert not sysctls._shared


def test_what_is_somebody_else_s_or_another_run_left_is_not_taken(journal: Journal) -> None:
    for link, taken, words in (
        (real("wlan0"), "48000", "table 48000 and rule 1000 of the initiator"),
        (six("eth0"), "fd48:2be7:beef::/64", "the initiator into the run's own network"),
    ):
        near = machine("initiator", *TWO_NICS)
        near.tables.add(taken)
        with pytest.raises(RequirementError, match=words):
            interfaces.bring_up(journal, near, TARGET, link, index=0, port=3264, tag="beef").__enter__()
        assert near.done == [] and not journal.open_entries()


def test_a_gateway_and_what_undoes_it() -> None:
    route = PolicyRoute("10.0.0.1", "10.9.0.9", "eth0", "10.0.0.254", 48000, 1000)
    rule, way = (" ".join(step.argv) for step in route.undo())
    assert rule == "ip rule del from 10.0.0.1/32 to 10.9.0.9/32 lookup 48000 priority 1000"
    assert way == "ip route del 10.9.0.9/32 via 10.0.0.254 dev eth0 src 10.0.0.1 table 48000"


def test_a_link_of_ipv6_has_addresses_of_the_run_s_own(near: Machine, journal: Journal) -> None:
    far, own = machine("target", device("eth0", "10.0.0.9/24"), LO), "fd48:2be7:beef:2::"
    with interfaces.bring_up(journal, near, far, six("eth0"), index=2, port=3264, tag="beef") as path:
        assert (path.initiator_address, path.target_address) == (f"{own}1", f"{own}2")
        assert (path.initiator_iface, path.target_iface, path.ip) == ("eth0", "eth0", IPV6)
        # Nothing else: no other interface is in that network.
        assert near.done == [f"ip -6 address add {own}1/64 dev eth0 nodad"]
        assert far.done == [f"ip -6 address add {own}2/64 dev eth0 nodad"]
        assert len(journal.open_entries()) == 2
    assert near.done[1:] == [f"ip -6 address del {own}1/64 dev eth0"]
    assert not journal.open_entries() and not near.sysctls


def test_interfaces_without_ipv4_find_each_other_by_ipv6_if_their_machines_have_it() -> None:
    near = machine("initiator", device("eth0", "fe80::1/64", "2001:db8::1/64"), LO)
    far = machine("target", device("eth3", "2001:db8::9/64", "fe80::9/64"), LO)
    here, there = interfaces._find_pair(near, far, six("eth0"))
    assert (here.iface.name, there.iface.name) == ("eth0", "eth3")
    assert [str(address) for address in here.iface.of(IPV6)] == ["2001:db8::1/64"]
    with pytest.raises(RequirementError, match="no IPv4 address"):
        interfaces.check(near, far, WIRED)
    without, off = dataclasses.replace(ONE_NIC, lacks_ipv6=True), dataclasses.replace(ONE_NIC, ipv6_off=True)
    for near, words in (
        (without, "--ip 6 needs IPv6, but the initiator's kernel was built without it"),
        (off, r"eth0 of the initiator has IPv6 switched off.*sysctl net\.ipv6\.conf"),
    ):
        with pytest.raises(RequirementError, match=words):
            interfaces.check(near, TARGET, six("eth0"))


# ethtool 6.1 on virtio_net, shortened.
SETTINGS = """\
Settings for eth0:
\tSupported link modes:   10baseT/Half 1000baseT/Full
\tSpeed: 1000Mb/s
\tDuplex: Full
\tAuto-negotiation: on
"""
DRIVER = "driver: e1000e\nversion: 5.13.0-39-generic\nfirmware-version: 0.4-4\nexpansion-rom-version:\n"
FEATURES = """\
Features for eth0:
rx-checksumming: on [fixed]
tx-checksumming: on
\ttx-checksum-ipv4: off [fixed]
scatter-gather: on
tcp-segmentation-offload: on
generic-segmentation-offload: off [requested on]
generic-receive-offload: on
large-receive-offload: off [fixed]
tx-esp-segmentation: off [fixed]
esp-hw-offload: off [fixed]
"""


def test_what_ethtool_prints_is_read_and_what_a_link_does_not_tell_is_left_out() -> None:
    assert ethtool.settings(SETTINGS) == {"speed_mbit_s": 1000, "duplex": "full"}
    slow = SETTINGS.replace("1000Mb", "10Mb").replace("Full\n\tA", "Half\n\tA")
    assert ethtool.settings(slow) == {"speed_mbit_s": 10, "duplex": "half"}
    for speed in ("Unknown!", "Unknown! (65535)"):
        text = SETTINGS.replace("1000Mb/s", speed).replace("Duplex: Full", "Duplex: Unknown! (255)")
        assert ethtool.settings(text) == {}, speed
    realtek = "rtl8125b-2_0.0.2 07/13/20"
    for line, firmware in (("0.4-4", "0.4-4"), ("", None), ("N/A", None), (f"{realtek} ", realtek)):
        found = ethtool.driver(DRIVER.replace("0.4-4", line))
        assert found == {"driver": "e1000e", **({"firmware": firmware} if firmware else {})}, line
    some = {"rx-checksum": "on", "tx-checksum": "on", "sg": "on", "tso": "on", "gso": "off", "gro": "on"}
    assert ethtool.offloads(FEATURES) == {**some, "lro": "off", "esp-hw": "off", "esp-tso": "off"}
    for nothing in ("", "No data available\n", "Settings for lo:\n\tLink detected: yes\n"):
        assert ethtool.settings(nothing) == ethtool.driver(nothing) == ethtool.offloads(nothing) == {}


def test_a_description_of_what_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {
        "rx": {"bytes": 5, "packets": 1, "errors": 2, "dropped": 0, "multicast": 1},
        "tx": {"bytes": 5, "packets": 1, "errors": 0, "carrier_errors": 3},
    }
    errors = {"rx_errors": 2, "rx_dropped": 0, "tx_errors": 0, "tx_carrier_errors": 3}
    texts = {"eth0": SETTINGS, "-i": DRIVER, "-k": FEATURES}
    monkeypatch.setattr(interfaces, "_ethtool", lambda _host, *words: texts[words[0]])
    host = machine("initiator", device("eth0", mtu=9000, stats64=stats, address="02:00:00:00:00:01"))
    reported = ethtool.settings(SETTINGS) | ethtool.driver(DRIVER) | {"offloads": ethtool.offloads(FEATURES)}
    measured = {"mtu_bytes": 9000, "errors": errors}
    assert interfaces.describe(host, "eth0") == {"kind": "ethernet", **measured, **reported}


def test_kinds_of_all_but_an_absent_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "_ethtool", lambda _host, *_words: "")
    for kind, found in (
        ("wifi", device("wlan0")),
        ("bridge", device("br0", linkinfo={"info_kind": "bridge"})),
        ("bond", device("bond0", linkinfo={"info_kind": "bond"})),
        ("vlan", device("eth0.5", linkinfo={"info_kind": "vlan"})),
        ("virtual", device("wg0", link_type="none", linkinfo={"info_kind": "wireguard"})),
        ("virtual", device("tun0", link_type="none")),
    ):
        assert interfaces.describe(machine("initiator", found), found["ifname"]) == {"kind": kind}
    with pytest.raises(CommandFailed, match="eth9"):
        interfaces.describe(ONE_NIC, "eth9")
