"""IPsec: what ip(8) and /proc/crypto say, what is blocked, and what charon is told."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from harness.protection.xfrm import Bypass, IpsecFailClosed
from harness.protection.xfrm_listener import REQID, ListenerReport
from tests.unit.fakes import Command, World
from tests.unit.fakes.ipsec import association, state_text
from tests.unit.fakes.paths import link_path

NEAR, FAR = "198.18.3.1", "198.18.3.2"
NOWHERE = Path("/nowhere")


GCM, CBC = (
    Proposal(name=name, title=name, esp=name, ike="aes128-sha256-ecp256", kernel_algorithms=algorithms)
    for name, algorithms in (
        ("aes128gcm16", ("rfc4106(gcm(aes))",)),
        ("aes128-sha256", ("cbc(aes)", "hmac(sha256)")),
    )
)
# Of a machine with AES-NI, shortened.
PROC_CRYPTO = "\n".join(
    f"name         : {name}\ndriver       : {driver}\ntype         : aead\n"
    for name, driver in (
        ("rfc4106(gcm(aes))", "rfc4106-gcm-aesni\npriority     : 400"),
        ("rfc4106(gcm(aes))", "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))\npriority     : 100"),
        ("hmac(sha256)", "hmac(sha256-generic)\npriority     : 100"),
        ("hmac(sha256)", "hmac(sha256-ni)\npriority     : 250"),
        ("ecb(cipher_null)", "ecb-cipher_null\npriority     : 100"),
        ("equal", "first\npriority     : 100"),
        ("equal", "second\npriority     : 100"),
        ("odd", "odd-generic"),
    )
)
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


def test_the_first_driver_of_highest_priority_is_in_use() -> None:
    found = {
        ("rfc4106(gcm(aes))",): ["rfc4106-gcm-aesni"],
        ("ecb(cipher_null)", "hmac(sha256)"): ["ecb-cipher_null", "hmac(sha256-ni)"],
        ("hmac(sha256)", "ecb(cipher_null)"): ["hmac(sha256-ni)", "ecb-cipher_null"],
        ("rfc7539esp(chacha20,poly1305)",): [],
        ("odd",): ["odd-generic"],
        ("equal",): ["first"],
    }
    assert {algorithms: proc_crypto.drivers(PROC_CRYPTO, algorithms) for algorithms in found} == found


def report(algorithms: tuple[str, ...], mode: str = "transport", *, directions: int = 2) -> ListenerReport:
    """What an xfrm listener tells: an association of each direction."""
    ends = ((NEAR, FAR), (FAR, NEAR))[:directions]
    states = [association(0, *each, 0, algorithms=algorithms, mode=mode) for each in ends]
    return ListenerReport(before="", states=tuple(states), after="")


def negotiated(
    reports: Sequence[ListenerReport], wanted: Proposal, mode: IpsecMode = IpsecMode.TRANSPORT
) -> dict[str, str]:
    host = World(secret_files={"/proc/crypto": PROC_CRYPTO}).host("initiator")
    return ipsec.negotiated(host, reports, wanted, mode)


def test_algorithms_are_compared_as_names_and_not_as_parts_of_names_in_any_order() -> None:
    agreed = {"proposal": "aes128-sha256", "algorithm": "cbc(aes) + hmac(sha256)", "mode": "tunnel"}
    for algorithms in (CBC.kernel_algorithms, CBC.kernel_algorithms[::-1]):
        found = negotiated([report(algorithms, "tunnel")] * 2, CBC, IpsecMode.TUNNEL)
        assert found == agreed | {"drivers": "hmac(sha256-ni)"}
    for algorithms, mode, wanted, reason in (
        (CBC.kernel_algorithms, "tunnel", GCM, "found cbc(aes) + hmac(sha256) in tunnel mode in the kernel"),
        (CBC.kernel_algorithms, "tunnel", CBC, "expected aes128-sha256 in transport mode"),
        (("seqiv(rfc4106(gcm(aes)))",), "transport", GCM, "found seqiv(rfc4106(gcm(aes))) in"),
        (("xcbc(aes)", "hmac(sha256)"), "transport", CBC, ", found xcbc(aes) + hmac(sha256) in"),
        (("cbc(aes)", "hmac(sha256)", "x"), "transport", CBC, ", found cbc(aes) + hmac(sha256) + x"),
        (("cbc(aes)",), "transport", CBC, ", found cbc(aes) in"),
    ):
        with pytest.raises(CommandFailed, match=re.escape(reason)):
            negotiated([report(algorithms, mode)] * 2, wanted)


def test_every_association_of_both_ends_has_to_be_what_was_asked_for() -> None:
    good = report(GCM.kernel_algorithms)
    for number in range(4):
        states = [list(good.states), list(good.states)]
        states[number // 2][number % 2] = association(9, NEAR, FAR, 0, algorithms=("ecb(cipher_null)",))
        with pytest.raises(CommandFailed):
            negotiated([msgspec.structs.replace(good, states=tuple(each)) for each in states], GCM)
    for directions in (0, 1):
        with pytest.raises(CommandFailed, match="a kernel has no ESP state"):
            negotiated([report(GCM.kernel_algorithms, directions=directions)] * 2, GCM)


def test_a_fail_closed_or_clearance_is_for_the_portal_alone_in_both_directions() -> None:
    # Policies of any path come between the two.
    assert xfrm.BYPASS_PRIORITY < xfrm.POLICY_PRIORITY
    assert xfrm.POLICY_PRIORITY + 255 < xfrm.FAIL_CLOSED_PRIORITY
    # An SSH connection between the same two addresses goes on.
    kinds = ((IpsecFailClosed, 3260), (IpsecFailClosed, 3276), (Bypass, 3276))
    ends = zip(ENDS, ("out", "in"), ("in", "out"), strict=True)
    for (end, to_portal, from_portal), (kind, port) in itertools.product(ends, kinds):
        world, made = World(), kind(end, NEAR, FAR, port)
        made.acquire(world.host(end))
        there = f"src {NEAR}/32 dst {FAR}/32 proto 6 dport {port} dir {to_portal}"
        back = f"src {FAR}/32 dst {NEAR}/32 proto 6 sport {port} dir {from_portal}"
        then = f"action block priority {xfrm.FAIL_CLOSED_PRIORITY}"
        if kind is Bypass:
            then = f"action allow priority {xfrm.BYPASS_PRIORITY}"
        assert world.said == [f"ip xfrm policy add {there} {then}", f"ip xfrm policy add {back} {then}"]
        assert len(world.left) == 2
        assert carry_out(made.undo(), world.host(end).run).problems == []
        assert world.left == set()
        assert {*world.said[2:]} == {f"ip xfrm policy delete {there}", f"ip xfrm policy delete {back}"}
    # One that is not there is undone silently, and one that stays is a problem.
    fail_closed = IpsecFailClosed("target", NEAR, FAR, 3260)
    absent, stays = World(), World(broken=lambda command: "delete" in command.argv)
    assert carry_out(fail_closed.undo(), absent.host("target").run).problems == []
    (problem,) = carry_out(fail_closed.undo(), stays.host("target").run).problems
    assert "it was made to fail" in problem
    assert len(absent.said) == len(stays.said) == 2, "the second was tried, too"


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
    there = f"policy None src {NEAR}/32 dst {FAR}/32 dir out"
    others = {
        there,
        f"{there} priority {xfrm.POLICY_PRIORITY + 2}",
        f"{there.replace(FAR, '10.0.0.9')} {ours}",
    }
    for thing in others:
        world.make(thing)
    undo = SecurityAssociations(NEAR, FAR, 3, is_shared=True).undo()
    for _ in ("what is there", "what is absent needs no removal"):
        assert carry_out(undo, world.host("initiator").run).problems == []
        assert world.left == kept | others
    for step in undo:
        words = " ".join(step.argv)
        assert re.match(r"ip xfrm (policy|state) deleteall src (\S+) dst (\S+) ", words)
        assert NEAR in words and FAR in words and words.endswith((ours, f"proto esp reqid {OURS}"))


def keyless(source: str, destination: str, spi: int, *, reqid: int = 0, proto: str = "esp") -> str:
    """A state without a key, as iproute2 6.1 lists it."""
    ends = f"src {source} dst {destination}"
    return f"{ends}\n\tproto {proto} spi {0xC0000000 + spi:#x} reqid {reqid} mode tunnel\n\treplay-window 0\n"


STATES = (
    # The first and the last are reserved SPIs (``ip xfrm state allocspi``).
    f"{keyless(NEAR, FAR, 1)}\tanti-replay context: seq 0x0, oseq 0x0\n\tsel src {NEAR}/32 dst {FAR}/32\n"
    + state_text(NEAR, FAR, spi=0xC0000002, reqid=0)
    + keyless(NEAR, FAR, 3, proto="ah")
    + keyless(NEAR, FAR, 4, reqid=7)
    + keyless(FAR, NEAR, 5)
    + keyless(NEAR, FAR, 6)
    + "\tauth-trunc hmac(sha256) <<Keys hidden>> 128\n\tenc cbc(aes) <<Keys hidden>>\n"
    + keyless(NEAR, FAR, 7).replace("tunnel", "transport")
)


def test_of_states_without_a_reqid_those_without_a_key_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A charon killed while it negotiates leaves reserved SPIs, with the reqid 0 that others' have, too."""
    (tmp_path / "states").write_text(STATES, encoding="utf-8")
    fake, said = tmp_path / "ip", tmp_path / "said"
    script = f'#!/bin/sh\n[ "$3" = list ] && exec cat {tmp_path}/states\necho "$*" >> {said}\n'
    fake.write_text(script, encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    alone, shared = (set(SecurityAssociations(NEAR, FAR, 3, each).undo()) for each in (False, True))
    assert shared < alone, "where others may negotiate, theirs stay"
    for step in alone - shared:
        subprocess.run(step.argv, check=True)
    assert set(said.read_text(encoding="utf-8").splitlines()) == {
        f"xfrm state delete src {source} dst {destination} proto esp spi 0xc000000{spi}"
        for source, destination, spi in ((NEAR, FAR, 1), (FAR, NEAR, 5), (NEAR, FAR, 7))
    }


def policy(source: str, destination: str, action: str, priority: int, rest: str = "") -> str:
    """As ``ip xfrm policy list`` of iproute2 6.1 has it."""
    return f"src {source} dst {destination}\n\t{action} priority {priority} ptype main\n{rest}"


TEMPLATE = f"\ttmpl src 0.0.0.0 dst 0.0.0.0\n\t\tproto esp spi 0xc0000001 reqid {OURS} mode transport\n"
PORTAL = f"{FAR}/32 proto tcp dport 3276"
# Ours of a path and of another, a fail-closed policy, the user's, and a socket's.
POLICIES = (
    policy(f"{NEAR}/32", PORTAL, "dir out action block", 20_000)
    + policy(f"{NEAR}/32", f"{FAR}/32 proto tcp dport 3280", "dir out action block", 20_000)
    + policy(f"{NEAR}/32", PORTAL, "dir out", 10_003, TEMPLATE)
    + policy(f"{NEAR}/32", f"{FAR}/32", "dir out", 10_004)
    + policy(f"{FAR}/32", "10.0.0.9/32", "dir in", 10_003)
    + policy("198.18.0.0/16", "198.18.0.0/16", "dir out", 375_423)
    + policy("0.0.0.0/0", "0.0.0.0/0", "socket in", 0)
    + policy("::/0", "::/0", "socket out", 0)
)


def test_policies_are_read_but_those_of_sockets() -> None:
    found = xfrm.parse_policies(POLICIES)
    assert [policy.priority for policy in found] == [20_000, 20_000, 10_003, 10_004, 10_003, 375_423]
    text, near, far = f"src {NEAR}/32 dst {PORTAL}", f"{NEAR}/32", f"{FAR}/32"
    assert found[0] == xfrm.Policy(text=text, source=near, destination=far, direction="out", priority=20_000)


def saying(states: str, policies: str) -> World:
    """A world whose kernels have these states and policies."""
    of_states = (("ip", "xfrm", "state", "list", "nokeys"), (0, states, ""))
    return World(answers=[of_states, (("ip", "xfrm", "policy", "list"), (0, policies, ""))])


def test_what_is_left_of_a_path_is_distinguished_from_what_others_have_between_its_addresses() -> None:
    states = state_text(FAR, NEAR, spi=0xC0FFEE02, reqid=OURS)
    states += state_text(NEAR, FAR, spi=0xC0FFEE01, reqid=OURS)
    states += state_text(NEAR, FAR, spi=3, reqid=OURS + 1) + state_text(FAR, NEAR, spi=4, reqid=0)
    # One that waits for keys nobody can delete.
    states += state_text(NEAR, "10.0.0.9", spi=5, reqid=OURS) + state_text(NEAR, FAR, spi=0, reqid=OURS)
    states += state_text(NEAR, FAR, spi=6, reqid=OURS).replace("proto esp", "proto ah")
    world = saying(states, POLICIES)
    host = world.host("initiator")
    assert ipsec.left_over(host, [path(world, is_shared=True)]) == [
        f"the ESP state src {FAR} dst {NEAR} spi 0xc0ffee02",
        f"the ESP state src {NEAR} dst {FAR} spi 0xc0ffee01",
        *[f"the IPsec policy src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276 dir out"] * 2,
    ]
    assert ipsec.left_over(host, []) == [], "without a path nothing is the run's"
    # Between addresses of the run's own all is, and a larval state has no reqid yet.
    world = saying(keyless(FAR, NEAR, 4), POLICIES)
    found = ipsec.left_over(world.host("initiator"), [path(world)])
    assert [text.partition(" src")[0] for text in found] == ["the ESP state"] + ["the IPsec policy"] * 4


def test_ipsec_of_the_users_own_between_the_ends_is_seen() -> None:
    world = World(answers=[(("ip",), (1, "", "RTNETLINK answers: Protocol not supported"))])
    assert ipsec.left_over(world.host("initiator"), [path(world)]) == [], "a kernel without IPsec has nothing"
    assert not xfrm.is_joined(world.host("initiator"), path(world))
    for policies, is_joined in (
        (POLICIES, True),
        (POLICIES.partition("src 198.18.0.0/16")[0], False),
        (policy(f"{FAR}/32", "0.0.0.0/0", "dir in", 367231), True),
        (policy(f"{NEAR}/32", "10.0.0.0/8", "dir out", 367231), False),
        (policy("::/0", "::/0", "dir out", 399999), False),
        ("", False),
    ):
        world = saying("", policies)
        assert xfrm.is_joined(world.host("initiator"), path(world, is_shared=True)) is is_joined, policies


NAME = "harness-beef-3"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose charons can be asked."""
    made = World()
    monkeypatch.setattr(Charon, "ask", lambda charon, *words, **more: made.ask(charon, *words, **more))
    return made


def raised_tunnel(
    world: World,
    credentials: Credentials,
    mode: IpsecMode = IpsecMode.TRANSPORT,
    *,
    is_shared: bool = False,
    proposal: Proposal = GCM,
) -> tuple[Connection, Connection]:
    """What both ends were told of the connection, once it is down again."""
    link = path(world, is_shared=is_shared)
    near, far = (Charon(host=host, socket=NOWHERE, log=NOWHERE) for host in (link.initiator, link.target))
    ends = (near, far)
    world.make(f"netns {NAME}")
    tunnel = ipsec.Tunnel(path=link, name=NAME, proposal=proposal, mode=mode, credentials=credentials)
    with tunnel.up(ends):
        connections = {host: m[NAME] for host, command, m in world.vici_messages if command == "load-conn"}
    return connections["initiator"], connections["target"]


def test_further_settings_are_the_connection_s_or_its_child_s(world: World) -> None:
    settings = {"dpd_delay": "10s", "start_action": "trap"}
    here, there = raised_tunnel(world, PSK, proposal=msgspec.structs.replace(GCM, settings=settings))
    for connection in (here, there):
        assert connection["dpd_delay"] == "10s" and "start_action" not in connection
        assert connection["children"][NAME]["start_action"] == "trap"


@pytest.mark.parametrize("mode", list(IpsecMode))
@pytest.mark.parametrize("auth", list(IkeAuth))
def test_both_ends_are_reported_the_same_connection_from_their_sides(
    world: World, auth: IkeAuth, mode: IpsecMode
) -> None:
    here, there = raised_tunnel(world, PSK if auth is IkeAuth.PSK else CERTIFICATES, mode)
    # The initiator's own port is any.
    assert here["remote_port"] == ipsec.IKE_PORT and "remote_port" not in there
    sides = ((NEAR, "initiator"), (FAR, "target"))
    for conn, (local, me), (remote, peer) in ((here, *sides), (there, *sides[::-1])):
        whole = {"version": 2, "encap": "no", "mobike": "no", "proposals": ["aes128-sha256-ecp256"]}
        assert conn == conn | whole | {"local_addrs": [local], "remote_addrs": [remote]}
        assert (conn["local"]["id"], conn["remote"]["id"]) == (f"{me}-3.harness", f"{peer}-3.harness")
        child = conn["children"][NAME]
        of_child = {"esp_proposals": ["aes128gcm16"], "mode": mode.value, "reqid": OURS, "priority": 10_003}
        assert child == child | of_child | {"local_ts": [f"{local}/32"], "remote_ts": [f"{remote}/32"]}
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


def test_where_others_use_the_addresses_too_only_the_ports_of_the_path_are_covered(world: World) -> None:
    """Else an SSH connection between the same two addresses would be led through the tunnel, or cut."""
    here, there = (conn["children"][NAME] for conn in raised_tunnel(world, PSK, is_shared=True))
    portal = [f"{FAR}/32[6/3276-3279]"]
    assert (here["local_ts"], here["remote_ts"]) == ([f"{NEAR}/32[6]"], portal)
    assert (there["local_ts"], there["remote_ts"]) == (portal, [f"{NEAR}/32[6]"])


def test_the_responder_knows_the_connection_before_the_call_and_both_forget_it(world: World) -> None:
    raised_tunnel(world, PSK)
    assert [f"{host} {command}" for host, command, _ in world.vici_messages] == [
        *("target load-shared", "target load-conn", "initiator load-shared", "initiator load-conn"),
        *("initiator initiate", "initiator terminate"),
        *("initiator unload-conn", "initiator unload-shared", "target unload-conn", "target unload-shared"),
    ]
    assert world.vici_messages[5][2]["ike"] == NAME
    assert [m for *_, m in world.vici_messages[6:]] == [{"name": NAME}, {"id": NAME}] * 2


@pytest.mark.parametrize("step", ["load-shared", "load-conn", "initiate"])
def test_a_tunnel_that_fails_says_why_and_is_forgotten(world: World, step: str) -> None:
    """The first error also where charon does not answer at the end."""

    def breaks(command: Command) -> bool:
        if command.argv == ("vici", "terminate"):
            raise CommandFailed("charon was expected to answer, but: timed out")
        return command.argv in (("vici", step), ("vici", "unload-conn"))

    world.broken = breaks
    with pytest.raises(CommandFailed, match=f"did not carry out `{step}`: it was made to fail"):
        raised_tunnel(world, PSK)
    forgotten = [f"{host} {command}" for host, command, _ in world.vici_messages if "unload" in command]
    assert forgotten == [f"{end} unload-{what}" for end in ENDS for what in ("conn", "shared")]


def test_secrets_are_fresh_for_both_ends_and_never_shown(tmp_path: Path) -> None:
    world = World()
    host = world.host("initiator")
    first, second = (ipsec.make_credentials(host, IkeAuth.PSK, NOWHERE, paths=2) for _ in range(2))
    assert first.psk != second.psk and len(first.psk) == 32, "256 bits"
    assert str(first.psk) not in repr(first) + str(first)
    for name in ("initiator.crt", "initiator.key", "target.crt", "target.key", "ca.crt"):
        world.secret_files[str(tmp_path / name)] = f"PEM of {name}"
    credentials = ipsec.make_credentials(host, IkeAuth.CERT, tmp_path, paths=2)
    assert credentials == CERTIFICATES
    assert "PEM" not in repr(credentials)
    assert "target.key" not in str(credentials.certificates["target"])
