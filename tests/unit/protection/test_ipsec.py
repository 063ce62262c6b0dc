"""IPsec: what ip(8) and /proc/crypto say, what is blocked, and what charon is told."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from harness.hosts.undo import carry_out
from harness.model import ENDS, IkeAuth, IpsecMode, Proposal
from harness.model.errors import CommandFailed
from harness.network.links import LinkPath
from harness.parse import proc_crypto
from harness.protection import ipsec, xfrm
from harness.protection.ipsec import Certificate, Credentials, SecurityAssociations
from harness.protection.ipsec.charon import Charon
from harness.protection.witness import REQID, WitnessReport
from harness.protection.xfrm import Clearance, IpsecBarrier
from tests.unit.fakes import Command, World
from tests.unit.fakes.ipsec import association, state_text
from tests.unit.fakes.paths import link_path

NEAR, FAR = "198.18.3.1", "198.18.3.2"
GCM = Proposal(
    name="aes128gcm16",
    title="AES-128-GCM",
    esp="aes128gcm16",
    ike="aes128-sha256-ecp256",
    kernel_algorithms=("rfc4106(gcm(aes))",),
)
CBC = Proposal(
    name="aes128-sha256",
    title="AES-128-CBC",
    esp="aes128-sha256",
    ike="aes128-sha256-ecp256",
    kernel_algorithms=("cbc(aes)", "hmac(sha256)"),
)
# /proc/crypto of a machine with AES-NI, shortened; the last block has no priority of its own
PROC_CRYPTO = """\
name         : rfc4106(gcm(aes))
driver       : rfc4106-gcm-aesni
module       : aesni_intel
priority     : 400
refcnt       : 1
selftest     : passed
type         : aead

name         : rfc4106(gcm(aes))
driver       : rfc4106(gcm_base(ctr(aes-generic),ghash-generic))
module       : kernel
priority     : 100
type         : aead

name         : hmac(sha256)
driver       : hmac(sha256-generic)
priority     : 100
type         : shash

name         : hmac(sha256)
driver       : hmac(sha256-ni)
priority     : 250
type         : shash

name         : ecb(cipher_null)
driver       : ecb-cipher_null
priority     : 100

name         : odd
driver       : odd-generic
"""


OURS = REQID + 3
PSK = Credentials(psk=b"0123456789abcdefghijklmnopqrstuv")
CERTIFICATES = Credentials(
    certificates={
        end: Certificate(certificate=f"PEM of {end}.crt", key=f"PEM of {end}.key", authority="PEM of ca.crt")
        for end in ENDS
    }
)
Connection = dict[str, Any]
"""As charon is told it."""


def path(world: World, *, is_shared: bool = False) -> LinkPath:
    return link_path(world, port=3276 if is_shared else 3260, is_shared=is_shared)


# What the kernel says


@pytest.mark.parametrize(
    ("algorithms", "expected"),
    [
        (("rfc4106(gcm(aes))",), ["rfc4106-gcm-aesni"]),
        (("ecb(cipher_null)", "hmac(sha256)"), ["ecb-cipher_null", "hmac(sha256-ni)"]),
        (("hmac(sha256)", "ecb(cipher_null)"), ["hmac(sha256-ni)", "ecb-cipher_null"]),
        (("rfc7539esp(chacha20,poly1305)",), []),
        (("odd",), ["odd-generic"]),
    ],
)
def test_the_driver_of_highest_priority_is_the_one_in_use(
    algorithms: tuple[str, ...], expected: list[str]
) -> None:
    assert proc_crypto.drivers(PROC_CRYPTO, algorithms) == expected


def test_the_first_of_drivers_with_equal_priority_is_in_use() -> None:
    blocks = [f"name : cbc(aes)\ndriver : {driver}\npriority : 100\n" for driver in ("first", "second")]
    assert proc_crypto.drivers("\n".join(blocks), ("cbc(aes)",)) == ["first"]


def reports(
    algorithms: Sequence[str], mode: str = "transport", *, directions: int = 2
) -> tuple[WitnessReport, WitnessReport]:
    """What the witnesses of both ends tell: an association of each direction."""
    ends = ((NEAR, FAR), (FAR, NEAR))[:directions]
    states = tuple(
        association(spi, source, destination, 0, algorithms=algorithms, mode=mode)
        for spi, (source, destination) in enumerate(ends)
    )
    report = WitnessReport(before="", states=states, after="", snmp="")
    return report, report


class Crypto(World):
    def text_of(self, path: str) -> str:
        return PROC_CRYPTO if path == "/proc/crypto" else super().text_of(path)


@pytest.mark.parametrize(
    ("algorithms", "proposal"),
    [(("cbc(aes)", "hmac(sha256)"), CBC), (("hmac(sha256)", "cbc(aes)"), CBC)],
    ids=["in this order", "in that"],
)
def test_what_was_negotiated_is_reported_by_the_kernels(
    algorithms: Sequence[str], proposal: Proposal
) -> None:
    host = Crypto().host("initiator")
    assert ipsec.negotiated(host, reports(algorithms, "tunnel"), proposal, IpsecMode.TUNNEL) == {
        "proposal": "aes128-sha256",
        "algorithm": "cbc(aes) + hmac(sha256)",
        "mode": "tunnel",
        "drivers": "hmac(sha256-ni)",
    }


@pytest.mark.parametrize(
    ("algorithms", "mode", "proposal", "reason"),
    [
        (CBC.kernel_algorithms, "tunnel", GCM, "found cbc(aes) + hmac(sha256) in tunnel mode in the kernel"),
        (CBC.kernel_algorithms, "tunnel", CBC, "expected aes128-sha256 in transport mode"),
        (("seqiv(rfc4106(gcm(aes)))",), "transport", GCM, "found seqiv(rfc4106(gcm(aes))) in"),
        (("xcbc(aes)", "hmac(sha256)"), "transport", CBC, ", found xcbc(aes) + hmac(sha256) in"),
        (("cbc(aes)", "hmac(sha256)", "x"), "transport", CBC, ", found cbc(aes) + hmac(sha256) + x"),
        (("cbc(aes)",), "transport", CBC, ", found cbc(aes) in"),
    ],
)
def test_algorithms_are_compared_as_names_and_not_as_parts_of_names(
    algorithms: Sequence[str], mode: str, proposal: Proposal, reason: str
) -> None:
    with pytest.raises(CommandFailed, match=re.escape(reason)):
        ipsec.negotiated(World().host("initiator"), reports(algorithms, mode), proposal, IpsecMode.TRANSPORT)


def test_every_association_of_both_ends_has_to_be_what_was_asked_for() -> None:
    good = reports(GCM.kernel_algorithms)[0]
    for number in range(4):
        states = [list(good.states), list(good.states)]
        states[number // 2][number % 2] = association(9, NEAR, FAR, 0, algorithms=("ecb(cipher_null)",))
        reported = [msgspec.structs.replace(good, states=tuple(each)) for each in states]
        with pytest.raises(CommandFailed):
            ipsec.negotiated(World().host("initiator"), reported, GCM, IpsecMode.TRANSPORT)


@pytest.mark.parametrize("directions", [0, 1])
def test_a_kernel_without_states_for_both_directions_is_an_error(directions: int) -> None:
    reported = reports(GCM.kernel_algorithms, directions=directions)
    with pytest.raises(CommandFailed, match="a kernel has no ESP state"):
        ipsec.negotiated(World().host("initiator"), reported, GCM, IpsecMode.TRANSPORT)


# The barrier


@pytest.mark.parametrize(
    ("end", "to_portal", "from_portal"), [("initiator", "out", "in"), ("target", "in", "out")]
)
def test_the_barrier_blocks_the_portal_in_both_directions(
    end: Literal["initiator", "target"], to_portal: str, from_portal: str
) -> None:
    world = World()
    barrier = IpsecBarrier(end, NEAR, FAR, 3260)
    barrier.acquire(world.host(end))
    there = f"src {NEAR}/32 dst {FAR}/32 proto 6 dport 3260 dir {to_portal}"
    back = f"src {FAR}/32 dst {NEAR}/32 proto 6 sport 3260 dir {from_portal}"
    assert world.said == [
        f"ip xfrm policy add {there} action block priority {xfrm.BARRIER_PRIORITY}",
        f"ip xfrm policy add {back} action block priority {xfrm.BARRIER_PRIORITY}",
    ]
    assert len(world.left) == 2
    assert carry_out(barrier.undo(), world.host(end).run).problems == []
    assert world.left == set()
    assert {*world.said[2:]} == {f"ip xfrm policy delete {there}", f"ip xfrm policy delete {back}"}


def test_a_barrier_names_the_port_of_its_path() -> None:
    """An SSH connection between the same two addresses goes on."""
    world = World()
    IpsecBarrier("initiator", NEAR, FAR, 3276).acquire(world.host("initiator"))
    assert ["dport 3276 dir out" in line or "sport 3276 dir in" in line for line in world.said] == [
        True,
        True,
    ]
    assert all(" proto 6 " in line and f"{NEAR}/32" in line and f"{FAR}/32" in line for line in world.said)


def test_a_barrier_that_is_not_there_is_undone_silently() -> None:
    world = World()
    assert carry_out(IpsecBarrier("target", NEAR, FAR, 3260).undo(), world.host("target").run).problems == []
    assert len(world.said) == 2


def test_a_barrier_that_stays_is_a_problem() -> None:
    world = World(broken=lambda command: "delete" in command.argv)
    (problem,) = carry_out(IpsecBarrier("target", NEAR, FAR, 3260).undo(), world.host("target").run).problems
    assert "it was made to fail" in problem
    assert len(world.said) == 2, "the second was tried, too"


def test_what_a_killed_charon_left_is_removed_and_nothing_else() -> None:
    world = World()
    ours = f"priority {xfrm.POLICY_PRIORITY + 3}"
    for netns in ("None", "other"):
        for source, destination, way in ((NEAR, FAR, "out"), (FAR, NEAR, "in"), (FAR, NEAR, "fwd")):
            world.make(f"policy {netns} src {source}/32 dst {destination}/32 dir {way} {ours}")
        world.make(f"policy {netns} src {NEAR}/32 dst {FAR}/32 proto 6 dport 3276 dir out {ours}")
        for reqid in (OURS, OURS + 1):
            world.make(f"state {netns} {NEAR} {FAR} {reqid}")
            world.make(f"state {netns} {FAR} {NEAR} {reqid}")
    kept = {thing for thing in world.left if " other " in thing or thing.endswith(str(OURS + 1))}
    kept |= {
        f"policy None src {NEAR}/32 dst {FAR}/32 dir out",
        f"policy None src {NEAR}/32 dst {FAR}/32 dir out priority {xfrm.POLICY_PRIORITY + 2}",
        f"policy None src {NEAR}/32 dst 10.0.0.9/32 dir out {ours}",
    }
    for thing in kept - world.left:
        world.make(thing)
    undo = SecurityAssociations(NEAR, FAR, 3, is_shared=True).undo()
    assert carry_out(undo, world.host("initiator").run).problems == []
    assert world.left == kept
    for step in undo:
        words = " ".join(step.argv)
        assert re.match(r"ip xfrm (policy|state) deleteall src (\S+) dst (\S+) ", words)
        assert NEAR in words
        assert FAR in words
        assert words.endswith((ours, f"proto esp reqid {OURS}"))
    assert carry_out(undo, world.host("initiator").run).problems == [], "what is absent needs no removal"


STATES = f"""\
src {NEAR} dst {FAR}
\tproto esp spi 0xc0000001 reqid 0 mode tunnel
\treplay-window 0
\tanti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000
\tsel src {NEAR}/32 dst {FAR}/32
src {NEAR} dst {FAR}
\tproto esp spi 0xc0000002 reqid 0 mode tunnel
\treplay-window 0
\taead rfc4106(gcm(aes)) <<Keys hidden>> 128
\tanti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000
\tsel src 0.0.0.0/0 dst 0.0.0.0/0
src {NEAR} dst {FAR}
\tproto ah spi 0xc0000003 reqid 0 mode tunnel
\treplay-window 0
src {NEAR} dst {FAR}
\tproto esp spi 0xc0000004 reqid 7 mode tunnel
\treplay-window 0
src {FAR} dst {NEAR}
\tproto esp spi 0xc0000005 reqid 0 mode tunnel
\treplay-window 0
src {NEAR} dst {FAR}
\tproto esp spi 0xc0000006 reqid 0 mode tunnel
\treplay-window 0
\tauth-trunc hmac(sha256) <<Keys hidden>> 128
\tenc cbc(aes) <<Keys hidden>>
src {NEAR} dst {FAR}
\tproto esp spi 0xc0000007 reqid 0 mode transport
\treplay-window 0
"""
"""As iproute2 6.1 lists them; the first and the last are reserved SPIs (``ip xfrm state allocspi``)."""


def test_of_states_without_a_reqid_those_without_a_key_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A charon killed while it negotiates leaves reserved SPIs, with the reqid 0 that others' have, too."""
    (tmp_path / "states").write_text(STATES, encoding="utf-8")
    fake = tmp_path / "ip"
    fake.write_text(
        f'#!/bin/sh\n[ "$3" = list ] && exec cat {tmp_path}/states\necho "$*" >> {tmp_path}/said\n',
        encoding="utf-8",
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    alone = SecurityAssociations(NEAR, FAR, 3, is_shared=False).undo()
    shared = SecurityAssociations(NEAR, FAR, 3, is_shared=True).undo()
    assert set(shared) < set(alone), "where others may negotiate, theirs stay"
    for step in set(alone) - set(shared):
        subprocess.run(step.argv, check=True)
    said = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    assert set(said) == {
        f"xfrm state delete src {NEAR} dst {FAR} proto esp spi 0xc0000001",
        f"xfrm state delete src {FAR} dst {NEAR} proto esp spi 0xc0000005",
        f"xfrm state delete src {NEAR} dst {FAR} proto esp spi 0xc0000007",
    }


# What is left, and what is not ours


# ip xfrm policy list, iproute2 6.1: ours of a path and of another, a barrier, the user's, and a socket's
POLICIES = f"""\
src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276
\tdir out action block priority {xfrm.BARRIER_PRIORITY} ptype main
src {NEAR}/32 dst {FAR}/32 proto tcp dport 3280
\tdir out action block priority {xfrm.BARRIER_PRIORITY} ptype main
src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276
\tdir out priority {xfrm.POLICY_PRIORITY + 3} ptype main
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp spi 0xc0000001 reqid {OURS} mode transport
src {NEAR}/32 dst {FAR}/32
\tdir out priority {xfrm.POLICY_PRIORITY + 4} ptype main
src {FAR}/32 dst 10.0.0.9/32
\tdir in priority {xfrm.POLICY_PRIORITY + 3} ptype main
src 198.18.0.0/16 dst 198.18.0.0/16
\tdir out priority 375423 ptype main
src 0.0.0.0/0 dst 0.0.0.0/0
\tsocket in priority 0 ptype main
src ::/0 dst ::/0
\tsocket out priority 0 ptype main
"""


def test_policies_are_read_but_those_of_sockets() -> None:
    found = xfrm.parse_policies(POLICIES)
    assert [policy.priority for policy in found] == [20_000, 20_000, 10_003, 10_004, 10_003, 375_423]
    assert found[0] == xfrm.Policy(
        text=f"src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276",
        source=f"{NEAR}/32",
        destination=f"{FAR}/32",
        direction="out",
        priority=20_000,
    )


def saying(states: str, policies: str) -> World:
    """A world whose kernels have these states and policies."""
    of_states = (("ip", "xfrm", "state", "list", "nokeys"), (0, states, ""))
    return World(answers=[of_states, (("ip", "xfrm", "policy", "list"), (0, policies, ""))])


def test_what_is_left_of_a_path_is_distinguished_from_what_others_have_between_its_addresses() -> None:
    states = state_text(FAR, NEAR, spi=0xC0FFEE02, reqid=OURS)
    states += state_text(NEAR, FAR, spi=0xC0FFEE01, reqid=OURS)
    states += state_text(NEAR, FAR, spi=3, reqid=OURS + 1) + state_text(FAR, NEAR, spi=4, reqid=0)
    states += state_text(NEAR, "10.0.0.9", spi=5, reqid=OURS)
    states += state_text(NEAR, FAR, spi=6, reqid=OURS).replace("proto esp", "proto ah")
    world = saying(states, POLICIES)
    host = world.host("initiator")
    assert ipsec.left_over(host, [path(world, is_shared=True)]) == [
        f"the ESP state src {FAR} dst {NEAR} spi 0xc0ffee02",
        f"the ESP state src {NEAR} dst {FAR} spi 0xc0ffee01",
        f"the IPsec policy src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276 dir out",
        f"the IPsec policy src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276 dir out",
    ]
    assert ipsec.left_over(host, []) == [], "without a path nothing is the run's"


def test_whatever_is_left_between_addresses_that_are_the_runs_own_is_reported() -> None:
    """A larval state has no reqid yet."""
    larval = re.sub(r"\taead.*\n", "", state_text(FAR, NEAR, spi=4, reqid=0))
    world = saying(larval, POLICIES)
    found = ipsec.left_over(world.host("initiator"), [path(world)])
    assert [text.partition(" src")[0] for text in found] == ["the ESP state"] + ["the IPsec policy"] * 4


def test_a_kernel_without_ipsec_has_nothing_left_and_joins_nothing() -> None:
    world = World(answers=[(("ip",), (1, "", "RTNETLINK answers: Protocol not supported"))])
    host = world.host("initiator")
    assert ipsec.left_over(host, [path(world)]) == []
    assert not xfrm.is_joined(host, path(world))


@pytest.mark.parametrize(
    ("policies", "is_joined"),
    [
        (POLICIES, True),
        (POLICIES.partition("src 198.18.0.0/16")[0], False),
        (f"src {FAR}/32 dst 0.0.0.0/0\n\tdir in priority 367231 ptype main\n", True),
        (f"src {NEAR}/32 dst 10.0.0.0/8\n\tdir out priority 367231 ptype main\n", False),
        ("src ::/0 dst ::/0\n\tdir out priority 399999 ptype main\n", False),
        ("", False),
    ],
)
def test_ipsec_of_the_users_own_between_the_ends_is_seen(policies: str, is_joined: bool) -> None:
    world = saying("", policies)
    assert xfrm.is_joined(world.host("initiator"), path(world, is_shared=True)) is is_joined


def test_a_clearance_comes_before_every_policy_of_the_users_own_and_is_for_the_portal_alone() -> None:
    world = World()
    clearance = Clearance("target", NEAR, FAR, 3276)
    clearance.acquire(world.host("target"))
    assert world.said == [
        f"ip xfrm policy add src {NEAR}/32 dst {FAR}/32 proto 6 dport 3276 dir in "
        f"action allow priority {xfrm.CLEARANCE_PRIORITY}",
        f"ip xfrm policy add src {FAR}/32 dst {NEAR}/32 proto 6 sport 3276 dir out "
        f"action allow priority {xfrm.CLEARANCE_PRIORITY}",
    ]
    assert carry_out(clearance.undo(), world.host("target").run).problems == []
    assert world.left == set()


# What charon is told


NAME = "harness-beef-3"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose charons can be asked."""
    made = World()
    monkeypatch.setattr(Charon, "ask", lambda charon, *words, **more: made.ask(charon, *words, **more))
    return made


def raised_tunnel(
    world: World, credentials: Credentials, mode: IpsecMode = IpsecMode.TRANSPORT, *, is_shared: bool = False
) -> tuple[Connection, Connection]:
    """What both ends were told of the connection, once it is down again."""
    link = path(world, is_shared=is_shared)
    ends = (
        Charon(host=link.initiator, socket=Path("/nowhere")),
        Charon(host=link.target, socket=Path("/nowhere")),
    )
    world.make(f"netns {NAME}")
    with ipsec.tunnel(link, ends, name=NAME, proposal=GCM, mode=mode, credentials=credentials):
        connections = {host: m[NAME] for host, command, m in world.vici_messages if command == "load-conn"}
    return connections["initiator"], connections["target"]


@pytest.mark.parametrize("mode", list(IpsecMode))
@pytest.mark.parametrize("auth", list(IkeAuth))
def test_both_ends_are_reported_the_same_connection_from_their_sides(
    world: World, auth: IkeAuth, mode: IpsecMode
) -> None:
    credentials = PSK if auth is IkeAuth.PSK else CERTIFICATES
    here, there = raised_tunnel(world, credentials, mode)
    for conn, local, remote, me, peer in (
        (here, NEAR, FAR, "initiator", "target"),
        (there, FAR, NEAR, "target", "initiator"),
    ):
        assert conn["version"] == 2
        assert (conn["local_addrs"], conn["remote_addrs"]) == ([local], [remote])
        assert (conn["local"]["id"], conn["remote"]["id"]) == (f"{me}-3.harness", f"{peer}-3.harness")
        assert conn["proposals"] == ["aes128-sha256-ecp256"]
        assert (conn["encap"], conn["mobike"]) == ("no", "no")
        child = conn["children"][NAME]
        assert child["esp_proposals"] == ["aes128gcm16"]
        assert child["mode"] == mode.value
        assert (child["local_ts"], child["remote_ts"]) == ([f"{local}/32"], [f"{remote}/32"])
        assert child["reqid"] == OURS
        assert child["priority"] == xfrm.POLICY_PRIORITY + 3
        reported = {command: m for host, command, m in world.vici_messages if host == me}
        if auth is IkeAuth.PSK:
            assert conn["local"]["auth"] == conn["remote"]["auth"] == "psk"
            owners = ["initiator-3.harness", "target-3.harness"]
            shared = {"id": NAME, "type": "IKE", "data": PSK.psk.decode(), "owners": owners}
            assert reported["load-shared"] == shared
        else:
            assert conn["local"]["auth"] == conn["remote"]["auth"] == "pubkey"
            assert conn["local"]["certs"] == [f"PEM of {me}.crt"]
            assert conn["remote"]["cacerts"] == ["PEM of ca.crt"]
            assert reported["load-key"] == {"type": "any", "data": f"PEM of {me}.key"}
            assert reported["load-cert"] == {"type": "X509", "flag": "CA", "data": "PEM of ca.crt"}
            assert "load-shared" not in reported


def test_the_initiator_calls_the_port_on_which_the_target_listens(world: World) -> None:
    here, there = raised_tunnel(world, PSK)
    assert here["remote_port"] == ipsec.IKE_PORT
    assert "remote_port" not in there, "the initiator's own port is any"


def test_where_others_use_the_addresses_too_only_the_ports_of_the_path_are_covered(world: World) -> None:
    """Else an SSH connection between the same two addresses would be led through the tunnel, or cut."""
    here, there = (conn["children"][NAME] for conn in raised_tunnel(world, PSK, is_shared=True))
    portal = [f"{FAR}/32[6/3276-3279]"]
    assert (here["local_ts"], here["remote_ts"]) == ([f"{NEAR}/32[6]"], portal)
    assert (there["local_ts"], there["remote_ts"]) == (portal, [f"{NEAR}/32[6]"])


def test_policies_come_before_the_barrier_whatever_the_path() -> None:
    assert xfrm.CLEARANCE_PRIORITY < xfrm.POLICY_PRIORITY
    assert xfrm.POLICY_PRIORITY + 255 < xfrm.BARRIER_PRIORITY


def test_the_responder_knows_the_connection_before_the_initiator_calls_and_both_forget_it(
    world: World,
) -> None:
    raised_tunnel(world, PSK)
    assert [(host, command) for host, command, _ in world.vici_messages] == [
        ("target", "load-shared"),
        ("target", "load-conn"),
        ("initiator", "load-shared"),
        ("initiator", "load-conn"),
        ("initiator", "initiate"),
        ("initiator", "terminate"),
        ("initiator", "unload-conn"),
        ("initiator", "unload-shared"),
        ("target", "unload-conn"),
        ("target", "unload-shared"),
    ]
    (ended,) = (m for _, command, m in world.vici_messages if command == "terminate")
    assert ended["ike"] == NAME
    assert [m for _, command, m in world.vici_messages if command == "unload-conn"] == [{"name": NAME}] * 2
    assert [m for _, command, m in world.vici_messages if command == "unload-shared"] == [{"id": NAME}] * 2


@pytest.mark.parametrize("step", ["load-shared", "load-conn", "initiate"])
def test_a_tunnel_that_fails_says_why_and_is_forgotten(world: World, step: str) -> None:
    world.broken = lambda command: command.argv in (("vici", step), ("vici", "terminate"))
    with pytest.raises(CommandFailed, match=f"did not carry out `{step}`: it was made to fail"):
        raised_tunnel(world, PSK)
    forgotten = [host for host, command, _ in world.vici_messages if command == "unload-conn"]
    assert forgotten == ["initiator", "target"]


def test_a_charon_that_does_not_answer_at_the_end_does_not_hide_the_first_error(world: World) -> None:
    def hangs(command: Command) -> bool:
        if command.argv[0] == "vici" and command.argv[1] not in ("load-shared", "load-conn", "initiate"):
            raise CommandFailed("charon was expected to answer, but: timed out")
        return command.argv == ("vici", "initiate")

    world.broken = hangs
    with pytest.raises(CommandFailed, match=r"did not carry out `initiate`"):
        raised_tunnel(world, PSK, IpsecMode.TUNNEL)


# Secrets


def test_a_fresh_psk_has_256_bits_and_is_never_shown() -> None:
    first, second = (
        ipsec.make_credentials(World().host("initiator"), IkeAuth.PSK, Path("/nowhere"), paths=2)
        for _ in range(2)
    )
    assert first.psk != second.psk
    assert len(first.psk) == 32
    assert str(first.psk) not in repr(first)
    assert str(first.psk) not in str(first)


def test_certificates_are_made_for_both_ends_and_their_keys_never_shown(tmp_path: Path) -> None:
    world = World()
    for name in ("initiator.crt", "initiator.key", "target.crt", "target.key", "ca.crt"):
        world.secret_files[str(tmp_path / name)] = f"PEM of {name}"
    credentials = ipsec.make_credentials(world.host("initiator"), IkeAuth.CERT, tmp_path, paths=2)
    assert credentials == CERTIFICATES
    assert "PEM" not in repr(credentials)
    assert "target.key" not in str(credentials.certificates["target"])
