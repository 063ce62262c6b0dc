"""Protections that are there before a run, on the way to a target of somebody else's, proved at one end.

The target is in the namespace ``nas``, to which nobody logs in. Tunnels are made by hand.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.hosts import NamespaceHost
from harness.protection import overlay
from tests.lab.inside import kernel, nas, strangers
from tests.lab.inside.kernel import RESULTS, harness, newest_records, newest_run, processes, sh, wait_for

HERE, NAS = NamespaceHost("initiator"), NamespaceHost("nas", "nas")
MOVED = 2 << 20
KEY = f"0x{'42' * 20}"
RUN = ("run", f"--results={RESULTS}", "--workload=seq-read-256k", "--repeats=1", "--no-probes")
IQN = f"--iqn={strangers.IQN}"
CABLE, INNER = ("192.0.2.1", "192.0.2.2"), ("10.9.0.1", "10.9.0.2")
"""The addresses of the two ends: on the cable, and in a tunnel."""

OVER_CABLE, OVER_INNER = (f"--portal={far}" for _, far in (CABLE, INNER))


def both(*words: str) -> None:
    """ip(8) at both ends."""
    for host in (HERE, NAS):
        host.run(["ip", *words])


ask = functools.partial(overlay.ask, room="harness.protection.wireguard", program=overlay.PROGRAM)


def tunnel() -> None:
    keys, (near, far) = {}, INNER
    both("link", "add", "wg0", "type", "wireguard")
    for host, port in ((HERE, 41820), (NAS, 51820)):
        keys[host.name] = ask(host, "open", interface="wg0", port=port)["public_key"]
    for host, peer, allowed, address, port in ((HERE, NAS, far, CABLE[1], 51820), (NAS, HERE, near, "", 0)):
        words = {"public_key": keys[peer.name], "address": address, "port": port, "allowed": allowed}
        ask(host, "peer", interface="wg0", **words)
    addresses("wg0", "wg0")


def addresses(*ifaces: str) -> None:
    """Those within the tunnel, on an interface of each end."""
    for host, own, iface in zip((HERE, NAS), INNER, ifaces, strict=True):
        host.run(["ip", "address", "add", f"{own}/24", "dev", iface])
        host.run(["ip", "link", "set", iface, "up"])


def associations(near: str, far: str, *, add: bool = True, mode: str = "transport") -> None:
    """ESP between two addresses by static keys, at both ends; policies for all that is between them."""
    for host, own in ((HERE, near), (NAS, far)):
        for number, (source, destination, way) in enumerate(((near, far, "out"), (far, near, "in"))):
            ends = ("src", source, "dst", destination)
            state = (*ends, "proto", "esp", "spi", hex(0x1000 + number))
            direction = way if own == near else {"out": "in", "in": "out"}[way]
            policy = (*ends, "dir", direction)
            if not add:
                host.run(["ip", "xfrm", "policy", "delete", *policy])
                continue
            how = ("reqid", "7", "mode", mode, "aead", "rfc4106(gcm(aes))", KEY, "128")
            host.run(["ip", "xfrm", "state", "add", *state, *how])
            template = ("tmpl", *ends, "proto", "esp", "reqid", "7", "mode", mode)
            host.run(["ip", "xfrm", "policy", "add", *policy, *template])


def flush() -> None:
    both("xfrm", "state", "flush")


def lasting() -> dict[str, Any]:
    """The state of this end, but for the numbers of the packets that its associations have carried."""
    found = kernel.snapshot()
    found["xfrm states"] = [line for line in found["xfrm states"].splitlines() if "anti-replay" not in line]
    return found


def measured(what: str, *words: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """A run that changes nothing at this end, and its records."""
    with kernel.unchanged(what, lasting):
        said = harness(*RUN, "--runtime=1s", *words)
    return said, newest_records()


def proved(what: str, found: Mapping[str, Mapping[str, Any]], protection: Sequence[str]) -> None:
    """Each cell is ok in the column that says so, with the evidence of one end."""
    assert found, what
    for record in found.values():
        proof = record["proof"]
        assert record["status"] == "ok" and record["column"]["protection"] == list(protection), record
        assert proof["at_one_end"] and not proof["cleartext_segments"], proof
        moved = record["read"]["bytes"]
        assert min(proof["protected_bytes"], proof["link_bytes_initiator"]) >= moved, proof
        assert proof["packets_sampled"] >= proof["packets_expected"], proof
    due = sum(record["proof"]["packets_expected"] for record in found.values())
    assert due or "tunnel" in protection, what
    print(f"{what}: {'+'.join(protection)} proved at one end by {len(found)} cells, {due} samples due")


def measured_and_proved(what: str, *words: str, by: Sequence[str]) -> dict[str, dict[str, Any]]:
    _, found = measured(what, *words)
    proved(what, found, by)
    return found


def received() -> int:
    return int(Path(f"/sys/class/net/{nas.NIC}/statistics/rx_bytes").read_text(encoding="ascii"))


def sessions() -> dict[Path, str]:
    """The initiators that are logged in to each of the NAS's targets without an ACL."""
    files = kernel.LIO.glob("iscsi/*/tpgt_*/dynamic_sessions")
    return {file: file.read_text(encoding="ascii").strip("\n\0") for file in files}


def broken(what: str, words: Sequence[str], act: Callable[[], None], *, label: str) -> dict[str, Any]:
    """A run of one cell, in whose middle something happens; its record."""
    with kernel.started((*RUN, "--runtime=4s", *words)) as process:
        wait_for(lambda: "fio" in processes().values() or process.poll() is not None, what, deadline_s=120)
        before = received()
        wait_for(lambda: received() > before + MOVED or process.poll() is not None, what, deadline_s=60)
        assert process.poll() is None, f"{what}: the run has ended before"
        act()
        process.wait(180)
    # The target may hear of it later, and what is compared next has its sessions.
    wait_for(lambda: not any(sessions().values()), what, deadline_s=90)
    (record,) = newest_records().values() or [{}]
    assert record["column"]["protection"], record
    assert record["status"] != "ok", record
    print(f"{what}: {label}: {record['status']}, {record['reason']}")
    return record


def wireguard() -> None:
    nothing = "no protection was found on"
    tunnel()
    strangers.make("wg", portals=f"{INNER[1]} {CABLE[1]}")
    measured_and_proved("WireGuard by route alone", OVER_INNER, IQN, by=["wireguard"])
    ways = (f"--link=wired={nas.NIC}@{CABLE[1]}", f"--link=wg0=wg0@{INNER[1]}")
    said, found = measured("with and without", OVER_INNER, IQN, *ways)
    columns = {record["column"]["link"]: record for record in found.values()}
    assert columns["wired"]["column"]["protection"] == [] and nothing in said, said
    assert all(record["status"] == "ok" for record in found.values()), found
    within = {key: record for key, record in found.items() if record["column"]["link"] == "wg0"}
    proved("with and without", within, ["wireguard"])
    print(harness("table", str(newest_run())), harness("explain", str(newest_run())))

    def replaced() -> None:
        """By a bare interface of the same name and addresses."""
        both("link", "delete", "wg0")
        sh("ip", "link", "add", "wg0", "type", "veth", "peer", "name", "bare0", "netns", "nas")
        addresses("wg0", "bare0")

    broken("WireGuard", (OVER_INNER, IQN), replaced, label="the tunnel is replaced in the middle")
    said, found = measured("the tunnel is gone", OVER_INNER, IQN)
    assert all(record["column"]["protection"] == [] for record in found.values()), found
    assert f"{nothing} this path" in said, said
    print("the tunnel is gone: no column has its name")
    sh("ip", "link", "delete", "wg0")


def esp() -> None:
    strangers.make("esp")
    associations(*CABLE)
    found = measured_and_proved("ESP by static keys", OVER_CABLE, by=["aes128gcm16"])
    agreed = next(iter(found.values()))["agreed"]["aes128gcm16"]
    assert agreed["mode"] == "transport" and agreed["drivers"], agreed

    def without() -> None:
        associations(*CABLE, add=False)

    record = broken("ESP", (OVER_CABLE,), without, label="the policies go in the middle")
    assert "cleartext segments of the portal were on the link" in record["reason"], record
    flush()


def nested() -> None:
    tunnel()
    strangers.make("nested", portals=INNER[1])
    for what, ends, by in (
        ("ESP within WireGuard", INNER, ["wireguard", "aes128gcm16"]),
        ("WireGuard within ESP", CABLE, ["aes128gcm16", "wireguard"]),
    ):
        associations(*ends)
        measured_and_proved(what, OVER_INNER, by=by)
        associations(*ends, add=False)
        flush()
    both("link", "delete", "wg0")


FORWARDER = """
import fcntl, os, select, socket, struct, sys
name, own, peer = sys.argv[1:]
with open("/proc/self/comm", "w") as comm:
    comm.write("tailscaled")
device = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))
outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
outside.bind((own, 41641))
outside.connect((peer, 41641))
turned = bytes(range(256))[::-1]
while True:
    for ready in select.select([device, outside], [], [])[0]:
        if ready is device:
            outside.send(os.read(device, 2048).translate(turned))
        else:
            try:
                os.write(device, outside.recv(2048).translate(turned))
            except ConnectionRefusedError:
                pass
"""
"""A program of Tailscale's name, whose tunnel nobody reads at a glance: TUNSETIFF with IFF_TUN and IFF_NO_PI
(Documentation/networking/tuntap.rst)."""


def has_device(host: NamespaceHost) -> bool:
    return host.run(["ip", "link", "show", "tailscale0"], check=False).status == 0


def userspace() -> None:
    """The tunnel of a program: it is told by who holds the device."""
    sh("ip", "route", "add", "default", "via", CABLE[1])
    strangers.make("userspace", portals="100.64.0.2")
    with contextlib.ExitStack() as stack:
        for host, ends, address in ((HERE, CABLE, "100.64.0.1"), (NAS, CABLE[::-1], "100.64.0.2")):
            argv = [sys.executable, "-c", FORWARDER, "tailscale0", *ends]
            log, ready = Path(f"/root/{host.name}.log"), functools.partial(has_device, host)
            stack.enter_context(host.daemon(argv, log=log, ready=ready, deadline_s=30))
            host.run(["ip", "address", "add", f"{address}/24", "dev", "tailscale0"])
            host.run(["ip", "link", "set", "tailscale0", "mtu", "1280", "up"])
        measured_and_proved("a tunnel in user space", "--portal=100.64.0.2", by=["tunnel"])
        words = ("Tailscale (WireGuard in user space)", "the capture alone")
        print(harness("table", str(newest_run()), says=words))


def macsec() -> None:
    """Static keys; the tunnel's address is that of a VLAN over it."""
    macs = {
        host: json.loads(host.run(["ip", "-j", "link", "show", "dev", nic]).stdout)[0]["address"]
        for host, nic in ((HERE, nas.NIC), (NAS, "nas0"))
    }
    for host, nic, own, peer, address in (
        (HERE, nas.NIC, "11", NAS, "10.8.0.1"),
        (NAS, "nas0", "22", HERE, "10.8.0.2"),
    ):
        other = {"11": "22", "22": "11"}[own]
        channel = f"rx port 1 address {macs[peer]}"
        host.run(
            ["ip", "-batch", "-"],
            input=f"link add link {nic} macsec0 type macsec encrypt on\n"
            f"macsec add macsec0 tx sa 0 pn 1 on key 01 {own * 16}\n"
            f"macsec add macsec0 {channel}\n"
            f"macsec add macsec0 {channel} sa 0 pn 1 on key 01 {other * 16}\n"
            "link set macsec0 up\n"
            "link add link macsec0 name macsec0.5 type vlan id 5\n"
            f"address add {address}/24 dev macsec0.5\n"
            "link set macsec0.5 up\n",
        )
    strangers.make("macsec", portals="10.8.0.2")
    measured_and_proved("MACsec below a VLAN", "--portal=10.8.0.2", by=["macsec"])
    both("link", "delete", "macsec0")


PARTS = {part.__name__: part for part in (wireguard, esp, nested, userspace, macsec)}


def main(parts: list[str]) -> None:
    strangers.prepare("macsec", "8021q", "tun", "xfrm_user")
    for part in parts:
        PARTS[part]()
        strangers.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
