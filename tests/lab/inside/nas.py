"""Another machine: a network namespace with its own sshd, reached by name with a key.

``nas`` is it over the very network that is measured, ``nas-apart`` over another one. Both ends' interfaces
are "real": they are there before a run, with addresses, and stay. A third way leads through a router, which
somebody without rights can log in to.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lab.inside.kernel import cable, ip, modprobe, serving, sh, wait_for, within

NIC, PER_HOST, ROUTED = "nic0", "apart0", "mid0"
ROUTED_PORTAL, ROUTER = "198.51.100.130", "198.51.100.2"
CABLES = (
    (("", NIC, "192.0.2.1/25"), ("nas", "nas0", "192.0.2.2/25")),
    (("", PER_HOST, "192.0.2.129/25"), ("nas", "nas1", "192.0.2.130/25")),
)
ROUTED_CABLES = (
    (("", ROUTED, "198.51.100.1/25"), ("router", "left0", f"{ROUTER}/25")),
    (("router", "right0", "198.51.100.129/25"), ("nas", "nas2", f"{ROUTED_PORTAL}/25")),
)
"""Addresses are RFC 5737's for documentation."""

LOOKER_ON = "looker-on:x:4242:4242::/:/bin/sh\n"
SSHD_CONFIG = """\
HostKey /root/nas/host_key
AuthorizedKeysFile /run/nas_keys
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
CLIENT_CONFIG = """\
Host nas
    HostName 192.0.2.2
    User root
Host nas-apart
    HostName 192.0.2.130
    User root
Host router gateway
    HostName 198.51.100.2
"""


def join(netns: str, cables: Iterable[tuple[tuple[str, str, str], ...]]) -> None:
    ip("", f"netns add {netns}")
    ip(netns, "link set lo up")
    for ends in cables:
        cable(*ends)


def make_network() -> None:
    # Whoever uses IPv6 first would load it later, and addresses would come in the middle of a test.
    modprobe("veth", "ipv6")
    join("nas", CABLES)
    ip("", "link set lo up")
    if Path("/proc/net/if_inet6").exists():  # the custom kernel has no IPv6 unless a run asks for it
        await_addresses(NIC, PER_HOST)


def await_addresses(*ifaces: str) -> None:
    """Until IPv6's own are no longer tentative, which takes a second or two (RFC 4862, section 5.4)."""

    def is_settled(iface: str) -> bool:
        said = ip("", f"-6 address show dev {iface}")
        return "inet6" in said and "tentative" not in said

    wait_for(lambda: all(map(is_settled, ifaces)), "IPv6 addresses", deadline_s=20)


def put_a_router_between() -> None:
    join("router", ROUTED_CABLES)
    ip("", f"route add 198.51.100.128/25 via {ROUTER}")
    ip("nas", "route add 198.51.100.0/25 via 198.51.100.129")
    sh(*within("router"), "tee", "/proc/sys/net/ipv4/ip_forward", input="1")
    with Path("/etc/passwd").open("a", encoding="utf-8") as file:
        file.write(LOOKER_ON)


def shape(netem: str) -> None:
    """The same on both ends of the cable that is measured."""
    modprobe("sch_netem")
    for namespace, iface in ((), NIC), (("-n", "nas"), "nas0"):
        sh("tc", *namespace, "qdisc", "add", "dev", iface, "root", "netem", *netem.split())


def add_addresses(pattern: str) -> None:
    """To the same cable: the pattern with 1 in it at this end, and with 2 at the other."""
    for number, netns, iface in (1, "", NIC), (2, "nas", "nas0"):
        ip(netns, f"address add {pattern.format(number)} dev {iface} nodad")


def make_keys() -> None:
    place, mine = Path("/root/nas"), Path("/root/.ssh")
    for folder in (place, mine):
        folder.mkdir(mode=0o700, exist_ok=True)
    for file in (place / "host_key", mine / "id_ed25519"):
        file.unlink(missing_ok=True)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file))
    public = (mine / "id_ed25519.pub").read_text(encoding="utf-8")
    Path("/run/nas_keys").write_text(public, encoding="utf-8")  # which everybody may read who logs in
    key = " ".join((place / "host_key.pub").read_text(encoding="utf-8").split()[:2])
    known = "".join(f"{address} {key}\n" for address in ("192.0.2.2", "192.0.2.130", ROUTER))
    (mine / "known_hosts").write_text(known, encoding="utf-8")
    (mine / "config").write_text(CLIENT_CONFIG, encoding="utf-8")
    (place / "sshd_config").write_text(SSHD_CONFIG, encoding="utf-8")


def snmpd(community: str) -> contextlib.AbstractContextManager[object]:
    """Net-SNMP's agent in the router: a switch that answers whoever knows the community."""
    conf = Path("/root/nas/snmpd.conf")
    conf.write_text(f"rocommunity {community}\n", encoding="utf-8")
    ask = ("snmpget", "-v2c", "-c", community, "-m", "", ROUTER, ".1.3.6.1.2.1.1.1.0")
    return serving(
        *(*within("router"), "/usr/sbin/snmpd", "-f", "-Lo", "-C", "-c", str(conf), f"udp:{ROUTER}:161"),
        ready=lambda: "Linux" in sh(*ask, check=False),
        log=Path("/root/nas/snmpd.log"),
        deadline_s=30,
    )


@contextlib.contextmanager
def frames_that_nobody_takes(iface: str) -> Iterator[None]:
    """One each 20 ms to the other end of a cable, whose kernel drops it for want of a protocol."""
    ended = threading.Event()
    # A group address, and a type for experiments (IEEE 802).
    frame = bytes.fromhex("01005e7f000102000000000188b5") + bytes(46)

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((iface, 0))
            while not ended.wait(0.02):
                raw.send(frame)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def sshd(netns: str = "nas", login: str = "nas") -> contextlib.AbstractContextManager[object]:
    """OpenSSH's server in a namespace, which is then a machine that can be logged in to."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return serving(
        *(*within(netns), "/usr/sbin/sshd", "-D", "-e", "-f", "/root/nas/sshd_config"),
        ready=lambda: "it says so" in sh("ssh", login, "echo", "it says so", check=False),
        log=Path(f"/root/nas/{netns}.log"),
    )
