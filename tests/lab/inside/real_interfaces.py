"""Real links on a kernel of our own: two "NICs" of the initiator and two of the target, all in one network.

A namespace stands for the target, one for the switch between them, one for a router. Traffic has to take
the named interfaces both ways, everything has to be as before afterwards, and what cannot work is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import Host, NamespaceHost, remote
from harness.hosts.journal import Journal
from harness.model import LinkProfile
from harness.model.errors import HarnessError, RequirementError, UsageError
from harness.network import interfaces
from harness.network.links import LinkPath
from harness.parse.hosts import LOCAL, parse_address
from tests.lab.inside.kernel import SERVER, exchange, modprobe, serving, sh, wait_for, within

INITIATOR = NamespaceHost("initiator")
TARGET = NamespaceHost("target", "tgt")
SWITCH = NamespaceHost("switch", "sw")
JOURNAL = Path("/root/journal.jsonl")
PORT = 3260
MOVED = 8 << 20
ASIDE = 64 << 10
"""More bytes than ARP and the like take on an interface that is not to carry the traffic."""

NETWORK = """\
netns add sw
netns add tgt
netns add rt
link add nic0 type veth peer name leg0 netns sw
link add nic1 type veth peer name leg1 netns sw
link add tnic0 netns tgt type veth peer name leg2 netns sw
link add tnic1 netns tgt type veth peer name leg3 netns sw
link add rnic0 netns rt type veth peer name leg4 netns sw
link add rnic1 netns rt type veth peer name tnic2 netns tgt
-n sw link add bridge0 type bridge
link set lo up
"""
ADDRESSES = {
    "": "nic0=10.7.0.1/24 nic1=10.7.0.2/24",
    "tgt": "tnic0=10.7.0.9/24 tnic1=10.7.0.10/24 tnic2=10.20.0.9/24",
    "rt": "rnic0=10.7.0.254/24 rnic1=10.20.0.254/24",
}

STATE = """
ip rule
ip route show table all
ip address
ip link
grep -H . /proc/sys/net/ipv4/conf/*/arp_* /proc/sys/net/ipv4/conf/*/rp_filter
"""
"""All that a link may change meanwhile and must put back."""


def make_network() -> None:
    modprobe("veth", "bridge", "dummy", "8021q", "bonding")
    for line in NETWORK.splitlines():
        sh("ip", *line.split())
    for netns, words in ADDRESSES.items():
        where = ["-n", netns] if netns else []
        for iface, address in (word.split("=") for word in words.split()):
            sh("ip", *where, "address", "add", address, "dev", iface)
            # IPv6 takes a second to be sure of its address, and then changes what is compared.
            sh("ip", *where, "link", "set", iface, "addrgenmode", "none", "up")
    for leg in range(5):
        sh("ip", "-n", "sw", "link", "set", f"leg{leg}", "master", "bridge0", "up")
    sh("ip", "-n", "sw", "link", "set", "bridge0", "up")
    sh(*within("rt"), "tee", "/proc/sys/net/ipv4/ip_forward", input="1")
    sh("ip", "route", "add", "10.20.0.0/24", "via", "10.7.0.254", "dev", "nic1")
    sh("ip", "-n", "tgt", "route", "add", "10.7.0.0/24", "via", "10.20.0.254", "dev", "tnic2", "metric", "50")


def state() -> list[str]:
    return [host.run(["sh", "-c", STATE]).stdout for host in (INITIATOR, TARGET)]


@contextlib.contextmanager
def left_as_it_was(what: str) -> Iterator[None]:
    before = state()
    yield
    for was, now in zip(before, state(), strict=True):
        assert now == was, f"{what}: {set(was.splitlines()) ^ set(now.splitlines())}"
    assert not JOURNAL.exists() or not Journal(JOURNAL).open_entries(), what


@contextlib.contextmanager
def link(way: str = "nic1@10.7.0.10", *, index: int = 0, initiator: Host = INITIATOR) -> Iterator[LinkPath]:
    journal = Journal(JOURNAL)
    with interfaces.bring_up(journal, initiator, TARGET, real(way), index=index, port=PORT) as path:
        yield path
    assert not journal.leaks, journal.leaks


def real(way: str) -> LinkProfile:
    """A link that is asked for as IFACE[@PORTAL]."""
    near, _, portal = way.partition("@")
    return LinkProfile(name="wired", title="wired", emulated=False, interface=near, portal=portal or None)


def counters() -> dict[str, tuple[int, int]]:
    found = {}
    for host in (INITIATOR, TARGET):
        (text,) = host.read_files(["/proc/net/dev"])
        for line in text.splitlines()[2:]:
            name, _, values = line.partition(":")
            found[name.strip()] = (int(values.split()[0]), int(values.split()[8]))
    return found


def server() -> contextlib.AbstractContextManager[object]:
    argv = (*within("tgt"), sys.executable, "-c", SERVER, str(PORT))
    log = Path("/root/server.log")
    return serving(*argv, ready=lambda: log.read_bytes() == b"listening\n", log=log)


def move(address: str, *, device: str = "", source: str = "") -> dict[str, tuple[int, int]]:
    """Send MOVED bytes to the target and have as many back; the bytes that each interface carried."""
    before = counters()
    with socket.socket() as client:
        client.settimeout(60)
        if device:
            # What open-iscsi does for a session of an iface with net_ifacename.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if source:
            client.bind((source, 0))
        client.connect((address, PORT))
        exchange(client, MOVED)
        exchange(client, -MOVED)
    after = counters()
    return {name: (after[name][0] - rx, after[name][1] - tx) for name, (rx, tx) in before.items()}


def carried(
    what: str, near: str = "nic1", to: str = "10.7.0.10", far: str = "tnic1", source: str = ""
) -> None:
    """What is sent from a device, or else from an address, goes over these interfaces both ways, and nothing
    to speak of over the others."""
    names = (near, far)
    for name, (received, sent) in move(to, device="" if source else near, source=source).items():
        if name in names:
            assert min(received, sent) >= MOVED, f"{what}: {name} carried {received} and {sent} bytes"
        else:
            assert max(received, sent) < ASIDE, f"{what}: {name} carried {received} and {sent} bytes"
    print(f"{what}: carried by {' and '.join(names)} alone")


def flush_neighbour_table() -> None:
    for host in (INITIATOR, TARGET):
        host.run(["ip", "neigh", "flush", "all"])


def without_it_traffic_strays() -> None:
    """What the rest of this script proves against: the first route wins, and every NIC answers ARP."""
    flush_neighbour_table()
    moved = move("10.7.0.10", source="10.7.0.2")
    assert moved["tnic0"][1] >= MOVED and moved["tnic1"][1] < ASIDE, moved
    assert moved["nic0"][1] >= MOVED, moved
    print("without it: sent by nic0 and answered by tnic0")


def named_interfaces_carry_everything() -> None:
    for near, portal, far in (
        ("nic1", "10.7.0.10", "tnic1"),
        ("nic0", "10.7.0.10", "tnic1"),
        ("nic1", "10.7.0.9", "tnic0"),
    ):
        # The neighbour tables are what the traffic before has left, wrong entries included.
        with left_as_it_was(near), link(f"{near}@{portal}") as path:
            assert (path.initiator_iface, path.target_iface, path.target_address) == (near, far, portal)
            assert path.is_shared and path.port == PORT
            carried(f"{near} to {portal} bound to the device", near, portal, far)
            carried(f"{near} to {portal} by address", near, portal, far, path.initiator_address)


def strict_reverse_path_filter_and_the_user_s_own_values() -> None:
    own = {"all/rp_filter": "1", "nic0/arp_ignore": "2", "nic0/arp_announce": "1", "nic1/arp_announce": "2"}
    set_sysctls(own)
    flush_neighbour_table()
    with left_as_it_was("values of the user's own"), link():
        found = sysctls(*own, "nic1/arp_ignore", "nic0/arp_announce")
        assert found == {**own, "nic1/arp_ignore": "1", "nic0/arp_announce": "2"}, found
        carried("strict rp_filter")
    set_sysctls(dict.fromkeys(own, "0"))


def set_sysctls(values: dict[str, str]) -> None:
    for host in (INITIATOR, TARGET):
        for name, value in values.items():
            for nic in (name, f"t{name}"):
                host.run(["tee", f"/proc/sys/net/ipv4/conf/{nic}"], input=value, check=False)


def sysctls(*names: str) -> dict[str, str]:
    paths = [f"/proc/sys/net/ipv4/conf/{name}" for name in names]
    return dict(zip(names, INITIATOR.run(["cat", *paths]).stdout.split(), strict=True))


def columns_end_in_any_order() -> None:
    with left_as_it_was("two columns, the first ended first"):
        first, second = contextlib.ExitStack(), contextlib.ExitStack()
        first.enter_context(link(index=0))
        second.enter_context(link(index=1))
        first.close()
        names = ("nic0/arp_ignore", "nic1/arp_ignore")
        assert sysctls(*names) == dict.fromkeys(names, "1")
        carried("the second column")
        first.enter_context(link("nic0@10.7.0.9", index=0))
        carried("the first, anew", "nic0", "10.7.0.9", "tnic0")
        second.close()
        carried("the first, alone", "nic0", "10.7.0.9", "tnic0")
        first.close()


def neighbours_do_not_lead_astray() -> None:
    """Neither what the ends remember of each other from before, nor what is announced meanwhile."""
    for host, peer, iface, other, found_at in (
        (INITIATOR, "10.7.0.10", "nic1", TARGET, "tnic1"),
        (TARGET, "10.7.0.2", "tnic1", INITIATOR, "nic0"),  # which is wrong
    ):
        (device,) = json.loads(other.run(["ip", "-j", "link", "show", "dev", found_at]).stdout)
        entry = [peer, "lladdr", device["address"], "dev", iface]
        host.run(["ip", "neigh", "replace", *entry, "nud", "reachable"])
    with link():
        carried("a wrong neighbour")
        # From its second address to a third machine, by the first route: through nic0.
        time.sleep(1.1)  # a younger entry of the target's would not change (locktime, arp(7))
        sh("ping", "-c", "1", "-W", "60", "-I", "10.7.0.2", "10.7.0.254")
        carried("an announcement")


def an_exception_passes() -> None:
    with left_as_it_was("an exception"), contextlib.suppress(ZeroDivisionError), link():
        raise ZeroDivisionError
    print("an exception: left as it was")


def a_killed_run_is_recovered() -> None:
    with left_as_it_was("a killed run"):
        done = subprocess.run([sys.executable, "-m", __spec__.name, "die"], check=False)
        assert done.returncode == -signal.SIGKILL
        assert sysctls("nic0/arp_ignore") == {"nic0/arp_ignore": "1"}
        removed, failed = Journal(JOURNAL).recover()
        assert not failed and len(removed) == 10, (removed, failed)
        assert not JOURNAL.exists()
    print(f"a killed run: {'; '.join(removed)}")


def die() -> None:
    with link():
        os.kill(os.getpid(), signal.SIGKILL)


def an_agent_does_the_same_and_undoes_it_if_it_is_cut_off() -> None:
    before = state()
    log = Path("/root/agent.log")
    local = parse_address(LOCAL, "initiator")
    with remote.connect(local, role="initiator", name="initiator", run_id="real", log=log) as agent:
        with link(initiator=agent):
            carried("an agent")
        assert state() == before
        with link(initiator=agent):
            assert state() != before
            agent.connection.dialogue.process.kill()
    wait_for(lambda: state() == before, "the agent to undo everything", deadline_s=30)
    print("an agent that was cut off: left as it was")


def through_a_router() -> None:
    """The portal is in another network; the target prefers another way back."""
    with left_as_it_was("a routed portal"), link("nic1@10.20.0.9") as path:
        assert path.target_iface == "tnic2"
        carried("through a router", "nic1", "10.20.0.9", "tnic2")


def a_vpn_is_passed_by_or_reported() -> None:
    """A rule behind ours loses, one in front of ours is reported; both stay."""
    sh("ip", "link", "add", "vpn0", "type", "dummy")
    sh("ip", "link", "set", "vpn0", "up")
    sh("ip", "route", "add", "10.7.0.0/24", "dev", "vpn0", "table", "99")
    with rule("to", "10.7.0.0/24", priority=5210), left_as_it_was("a VPN"), link():
        carried("past a VPN", source="10.7.0.2")
    for what, words, priority, said in (
        ("a VPN in front", ("to", "10.7.0.0/24"), 500, "go through vpn0"),
        ("a rule of our number", ("from", "10.9.9.9"), 1000, "rule 1000"),
    ):
        with rule(*words, priority=priority), left_as_it_was(what), contextlib.ExitStack() as stack:
            stack.enter_context(refused(what, RequirementError, said))
            stack.enter_context(link())
    sh("ip", "link", "del", "vpn0")


@contextlib.contextmanager
def rule(*words: str, priority: int) -> Iterator[None]:
    """The user's own, for the table that leads through the VPN."""
    sh("ip", "rule", "add", *words, "lookup", "99", "priority", str(priority))
    yield
    sh("ip", "rule", "del", *words, "lookup", "99", "priority", str(priority))


@contextlib.contextmanager
def refused(what: str, kind: type[HarnessError], *words: str) -> Iterator[None]:
    """What is done in the context is refused, in words that have all these."""
    try:
        yield
    except kind as error:
        assert type(error) is kind and all(word in str(error) for word in words), error
        print(f"{what}: {error}")
    else:
        raise AssertionError(f"{what} was not refused")


MISTAKES: dict[str, tuple[str, ...]] = {
    "absent": ("eth9", "no interface eth9", "nic0", "nic1", "--link wired=IFACE"),
    "loopback": ("lo", "loopback"),
    "port of a bond": ("slave0", "port of bond0", "name bond0"),
    "no network in common": ("alone0", "10.66.0.1/24", "10.7.0.9/24 on tnic0", "@ADDRESS"),
    "ambiguous": ("nic0", "10.7.0.9 (tnic0), 10.7.0.10 (tnic1)", "wired=nic0@10.7.0.9"),
    "not the target's": ("nic0@10.7.0.77", "found 10.7.0.77", "10.7.0.10/24 on tnic1"),
}
LACKS: dict[str, tuple[str, ...]] = {
    "down": ("nic0.5", "nic0.5 of the initiator is down", "brings no interface up"),
    "no carrier": ("bare0", "no carrier"),
    "no address": ("empty0", "no IPv4 address"),
    "no route": ("nic0@10.20.0.9", "no route to 10.20.0.9 through nic0"),
}
"""The link that is asked for, and what it is refused with."""


def what_cannot_work_is_refused() -> None:
    for line in (
        "link add bare0 type veth peer name bare1",
        "link set bare0 up",
        "link add empty0 type dummy",
        "link set empty0 up",
        "link add alone0 type dummy",
        "address add 10.66.0.1/24 dev alone0",
        "link set alone0 up",
        "link add bond0 type bond",
        "link add slave0 type dummy",
        "link set slave0 master bond0",
        "link add link nic0 name nic0.5 type vlan id 5",
    ):
        sh("ip", *line.split())
    time.sleep(0.1)
    with left_as_it_was("refusals"):
        for kind, cases in ((UsageError, MISTAKES), (RequirementError, LACKS)):
            for what, (way, *words) in cases.items():
                with refused(what, kind, *words):
                    interfaces.check(INITIATOR, TARGET, real(way))
        with refused("port of a bridge", UsageError, "port of bridge0"):
            interfaces.check(SWITCH, TARGET, real("leg0"))
        for what, way, address in (
            ("one machine", "nic0", "10.7.0.1"),
            ("its other NIC", "nic0@10.7.0.2", "10.7.0.2"),
        ):
            with refused(what, UsageError, address, "two machines"):
                interfaces.check(INITIATOR, INITIATOR, real(way))
        sh("ip", "-n", "tgt", "address", "add", "10.7.0.1/32", "dev", "tnic2")
        with refused("one address twice", UsageError, "10.7.0.1 of the initiator is also an address"):
            interfaces.check(INITIATOR, TARGET, real("nic0@10.7.0.9"))
        sh("ip", "-n", "tgt", "address", "del", "10.7.0.1/32", "dev", "tnic2")
    kinds = {name: interfaces.describe(INITIATOR, name)["kind"] for name in ("nic0", "bond0", "nic0.5")}
    kinds["bridge0"] = interfaces.describe(SWITCH, "bridge0")["kind"]
    assert kinds == {"nic0": "virtual", "bond0": "bond", "nic0.5": "vlan", "bridge0": "bridge"}, kinds
    print(f"described: {interfaces.describe(INITIATOR, 'nic0')}")


def main() -> None:
    make_network()
    with server():
        without_it_traffic_strays()
        named_interfaces_carry_everything()
        strict_reverse_path_filter_and_the_user_s_own_values()
        columns_end_in_any_order()
        neighbours_do_not_lead_astray()
        an_exception_passes()
        a_killed_run_is_recovered()
        an_agent_does_the_same_and_undoes_it_if_it_is_cut_off()
        through_a_router()
        a_vpn_is_passed_by_or_reported()
    what_cannot_work_is_refused()


if __name__ == "__main__":
    die() if sys.argv[1:] == ["die"] else main()
