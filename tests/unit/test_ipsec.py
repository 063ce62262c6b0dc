"""IPsec: what ip(8) and /proc/crypto say, what is blocked, and what charon is told."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from harness import ipsec
from harness.errors import CommandFailed, HarnessError
from harness.ipsec import Barrier, Charon, Credentials, SecurityAssociations
from harness.links import LinkPath
from harness.model import IkeAuth, IpsecMode, LinkProfile, Proposal
from harness.undo import carry_out
from harness.witness import REQID, Report
from tests.unit.fakes import Command, World, association

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
CBC_LINES = ("auth-trunc hmac(sha256) <<Keys hidden>> 128", "enc cbc(aes) <<Keys hidden>>")

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


def path(world: World, *, is_shared: bool = False) -> LinkPath:
    return LinkPath(
        profile=LinkProfile(name="wired", title="wired", emulated=True),
        index=3,
        port=3276 if is_shared else 3260,
        is_shared=is_shared,
        initiator=world.host("initiator"),
        target=world.host("target", "harness-beef-3"),
        initiator_iface="hbeefi3",
        target_iface="hbeeft3",
        initiator_address=NEAR,
        target_address=FAR,
    )


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
    assert ipsec.drivers(PROC_CRYPTO, algorithms) == expected


def test_the_first_of_drivers_with_equal_priority_is_in_use() -> None:
    blocks = [f"name : cbc(aes)\ndriver : {driver}\npriority : 100\n" for driver in ("first", "second")]
    assert ipsec.drivers("\n".join(blocks), ("cbc(aes)",)) == ["first"]


def reports(
    algorithms: Sequence[str], mode: str = "transport", *, directions: int = 2
) -> tuple[Report, Report]:
    """What the witnesses of both ends tell: an association of each direction."""
    ends = ((NEAR, FAR), (FAR, NEAR))[:directions]
    states = tuple(
        association(spi, source, destination, 0, algorithms=algorithms, mode=mode)
        for spi, (source, destination) in enumerate(ends)
    )
    report = Report(before="", states=states, after="", snmp="")
    return report, report


class Crypto(World):
    def text_of(self, path: str) -> str:
        return PROC_CRYPTO if path == "/proc/crypto" else super().text_of(path)


@pytest.mark.parametrize(
    ("algorithms", "proposal"),
    [(("cbc(aes)", "hmac(sha256)"), CBC), (("hmac(sha256)", "cbc(aes)"), CBC)],
    ids=["in this order", "in that"],
)
def test_what_was_negotiated_is_told_by_the_kernels(algorithms: Sequence[str], proposal: Proposal) -> None:
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
        (CBC.kernel_algorithms, "tunnel", GCM, "the kernel has cbc(aes) + hmac(sha256) in tunnel mode"),
        (CBC.kernel_algorithms, "tunnel", CBC, "aes128-sha256 in transport mode was asked for"),
        (("seqiv(rfc4106(gcm(aes)))",), "transport", GCM, "the kernel has seqiv(rfc4106(gcm(aes))) in"),
        (("xcbc(aes)", "hmac(sha256)"), "transport", CBC, "the kernel has xcbc(aes) + hmac(sha256) in"),
        (("cbc(aes)", "hmac(sha256)", "x"), "transport", CBC, "the kernel has cbc(aes) + hmac(sha256) + x"),
        (("cbc(aes)",), "transport", CBC, "the kernel has cbc(aes) in"),
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
        told = [msgspec.structs.replace(good, states=tuple(each)) for each in states]
        with pytest.raises(CommandFailed):
            ipsec.negotiated(World().host("initiator"), told, GCM, IpsecMode.TRANSPORT)


@pytest.mark.parametrize("directions", [0, 1])
def test_a_kernel_without_states_for_both_directions_is_an_error(directions: int) -> None:
    told = reports(GCM.kernel_algorithms, directions=directions)
    with pytest.raises(CommandFailed, match="a kernel has no ESP state"):
        ipsec.negotiated(World().host("initiator"), told, GCM, IpsecMode.TRANSPORT)


# The barrier


@pytest.mark.parametrize(
    ("end", "to_portal", "from_portal"), [("initiator", "out", "in"), ("target", "in", "out")]
)
def test_the_barrier_blocks_the_portal_in_both_directions(
    end: Literal["initiator", "target"], to_portal: str, from_portal: str
) -> None:
    world = World()
    barrier = Barrier(end, NEAR, FAR)
    barrier.acquire(world.host(end))
    there = f"src {NEAR}/32 dst {FAR}/32 proto tcp dport 3260 dir {to_portal}"
    back = f"src {FAR}/32 dst {NEAR}/32 proto tcp sport 3260 dir {from_portal}"
    assert [" ".join(command.argv) for command in world.commands] == [
        f"ip xfrm policy add {there} action block priority 4000000",
        f"ip xfrm policy add {back} action block priority 4000000",
    ]
    assert len(world.left) == 2
    assert carry_out(barrier.undo(), world.host(end).run) == []
    assert world.left == set()
    deleted = {" ".join(command.argv) for command in world.commands[2:]}
    assert deleted == {f"ip xfrm policy delete {there}", f"ip xfrm policy delete {back}"}


def test_a_barrier_names_the_port_of_its_path() -> None:
    """Beside it an SSH connection between the same two addresses goes on."""
    world = World()
    Barrier("initiator", NEAR, FAR, 3276).acquire(world.host("initiator"))
    said = [" ".join(command.argv) for command in world.commands]
    assert ["dport 3276 dir out" in line or "sport 3276 dir in" in line for line in said] == [True, True]
    assert all(" proto tcp " in line and f"{NEAR}/32" in line and f"{FAR}/32" in line for line in said)


def test_a_barrier_that_is_not_there_is_undone_silently() -> None:
    world = World()
    assert carry_out(Barrier("target", NEAR, FAR).undo(), world.host("target").run) == []
    assert len(world.commands) == 2


def test_a_barrier_that_stays_is_a_problem() -> None:
    world = World(broken=lambda command: "delete" in command.argv)
    problems = carry_out(Barrier("target", NEAR, FAR).undo(), world.host("target").run)
    assert len(problems) == 2, "the second was tried, too"
    assert all("it was made to fail" in problem for problem in problems)


def test_what_a_killed_charon_left_is_removed_and_nothing_else() -> None:
    world = World()
    ours = f"priority {ipsec.POLICY_PRIORITY + 3}"
    for netns in ("None", "other"):
        for source, destination, way in ((NEAR, FAR, "out"), (FAR, NEAR, "in"), (FAR, NEAR, "fwd")):
            world.make(f"policy {netns} src {source}/32 dst {destination}/32 dir {way} {ours}")
        world.make(f"policy {netns} src {NEAR}/32 dst {FAR}/32 proto tcp dport 3276 dir out {ours}")
        for reqid in (OURS, OURS + 1):
            world.make(f"state {netns} {NEAR} {FAR} {reqid}")
            world.make(f"state {netns} {FAR} {NEAR} {reqid}")
    kept = {thing for thing in world.left if " other " in thing or thing.endswith(str(OURS + 1))}
    kept |= {
        f"policy None src {NEAR}/32 dst {FAR}/32 dir out",
        f"policy None src {NEAR}/32 dst {FAR}/32 dir out priority {ipsec.POLICY_PRIORITY + 2}",
        f"policy None src {NEAR}/32 dst 10.0.0.9/32 dir out {ours}",
    }
    for thing in kept - world.left:
        world.make(thing)
    undo = SecurityAssociations(NEAR, FAR, 3, is_shared=True).undo()
    assert carry_out(undo, world.host("initiator").run) == []
    assert world.left == kept
    for step in undo:
        words = " ".join(step.argv)
        assert re.match(r"ip xfrm (policy|state) deleteall src (\S+) dst (\S+) ", words)
        assert NEAR in words
        assert FAR in words
        assert words.endswith((ours, f"proto esp reqid {OURS}"))
    assert carry_out(undo, world.host("initiator").run) == [], "what is absent needs no removal"


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


# What charon is told


def raised_tunnel(
    world: World, folder: Path, credentials: Credentials, mode: IpsecMode, *, is_shared: bool = False
) -> tuple[str, str]:
    """The swanctl.conf of both ends while a tunnel is up."""
    link = path(world, is_shared=is_shared)
    ends = (
        Charon(host=link.initiator, folder=folder / "charon-initiator"),
        Charon(host=link.target, folder=folder / "charon-target-3"),
    )
    world.answers.append((("swanctl", "--initiate"), (0, "", "")))
    with ipsec.tunnel(
        link,
        ends,
        name="harness-beef-3",
        proposal=GCM,
        mode=mode,
        credentials=credentials,
    ):
        initiator, target = (world.secret_files[str(end.folder / "swanctl.conf")] for end in ends)
    assert ends[0].connections == ends[1].connections == {}
    return initiator, target


def settings(conf: str) -> dict[str, str]:
    """The ``section.key`` of a swanctl.conf and their values."""
    found: dict[str, str] = {}
    sections: list[str] = []
    for line in map(str.strip, conf.splitlines()):
        if line.endswith("{"):
            sections.append(line[:-1].strip())
        elif line == "}":
            sections.pop()
        elif line:
            key, _, value = line.partition(" = ")
            found[".".join((*sections, key))] = value
    assert sections == []
    return found


@pytest.mark.parametrize("mode", list(IpsecMode))
@pytest.mark.parametrize("auth", list(IkeAuth))
def test_both_ends_are_told_the_same_connection_from_their_sides(
    tmp_path: Path, auth: IkeAuth, mode: IpsecMode
) -> None:
    credentials = Credentials(
        auth=auth,
        psk="c2VjcmV0" if auth is IkeAuth.PSK else "",
        files={} if auth is IkeAuth.PSK else {"target": {"private/target.key": "KEY"}},
    )
    texts = raised_tunnel(World(), tmp_path, credentials, mode)
    here, there = map(settings, texts)
    name = "connections.harness-beef-3"
    child = f"{name}.children.harness-beef-3"
    for conf, local, remote, me, peer in (
        (here, NEAR, FAR, "initiator", "target"),
        (there, FAR, NEAR, "target", "initiator"),
    ):
        assert conf[f"{name}.version"] == "2"
        assert (conf[f"{name}.local_addrs"], conf[f"{name}.remote_addrs"]) == (local, remote)
        assert (conf[f"{name}.local.id"], conf[f"{name}.remote.id"]) == (
            f"{me}-3.harness",
            f"{peer}-3.harness",
        )
        assert conf[f"{name}.proposals"] == "aes128-sha256-ecp256"
        assert conf[f"{child}.esp_proposals"] == "aes128gcm16"
        assert conf[f"{child}.mode"] == mode.value
        assert (conf[f"{child}.local_ts"], conf[f"{child}.remote_ts"]) == (f"{local}/32", f"{remote}/32")
        assert conf[f"{child}.reqid"] == str(OURS)
        assert conf[f"{child}.priority"] == str(ipsec.POLICY_PRIORITY + 3)
        if auth is IkeAuth.PSK:
            assert conf[f"{name}.local.auth"] == conf[f"{name}.remote.auth"] == "psk"
            shared = "secrets.ike-harness-beef-3"
            assert conf[f"{shared}.secret"] == "0sc2VjcmV0"
            assert {conf[f"{shared}.id-1"], conf[f"{shared}.id-2"]} == {
                "initiator-3.harness",
                "target-3.harness",
            }
        else:
            assert conf[f"{name}.local.auth"] == conf[f"{name}.remote.auth"] == "pubkey"
            assert conf[f"{name}.local.certs"] == f"{me}.crt"
            assert conf[f"{name}.remote.cacerts"] == "ca.crt"
            assert not any(key.startswith("secrets") for key in conf)


def test_where_others_use_the_addresses_too_only_the_ports_of_the_path_are_covered(tmp_path: Path) -> None:
    """Else an SSH connection between the same two addresses would be led through the tunnel, or cut."""
    credentials = Credentials(auth=IkeAuth.PSK, psk="x")
    texts = raised_tunnel(World(), tmp_path, credentials, IpsecMode.TRANSPORT, is_shared=True)
    here, there = map(settings, texts)
    child = "connections.harness-beef-3.children.harness-beef-3"
    portal = f"{FAR}/32[tcp/3276-3279]"
    assert (here[f"{child}.local_ts"], here[f"{child}.remote_ts"]) == (f"{NEAR}/32[tcp]", portal)
    assert (there[f"{child}.local_ts"], there[f"{child}.remote_ts"]) == (portal, f"{NEAR}/32[tcp]")


def test_policies_come_before_the_barrier_whatever_the_path() -> None:
    assert ipsec.POLICY_PRIORITY + 255 < ipsec.BARRIER_PRIORITY


def test_the_responder_knows_the_connection_before_the_initiator_calls(tmp_path: Path) -> None:
    world = World()
    raised_tunnel(world, tmp_path, Credentials(auth=IkeAuth.PSK, psk="x"), IpsecMode.TRANSPORT)
    said = [(c.host, c.argv[1]) for c in world.commands if c.argv[0] == "swanctl"]
    assert said == [
        ("target", "--load-all"),
        ("initiator", "--load-all"),
        ("initiator", "--initiate"),
        ("initiator", "--terminate"),
    ]


@pytest.mark.parametrize("step", ["--load-all", "--initiate", "write"])
def test_a_tunnel_that_fails_is_forgotten_and_says_why(tmp_path: Path, step: str) -> None:
    world = World(broken=lambda command: step in command.argv or "--terminate" in command.argv)
    link = path(world)
    ends = (
        Charon(host=link.initiator, folder=tmp_path / "charon-initiator"),
        Charon(host=link.target, folder=tmp_path / "charon-target-3"),
    )
    with (
        pytest.raises((HarnessError, OSError), match=r"made to fail|No space"),
        ipsec.tunnel(
            link,
            ends,
            name="harness-beef-3",
            proposal=GCM,
            mode=IpsecMode.TRANSPORT,
            credentials=Credentials(auth=IkeAuth.PSK, psk="x"),
        ),
    ):
        pytest.fail("it did not come up")
    assert ends[0].connections == ends[1].connections == {}


def test_a_charon_that_does_not_answer_at_the_end_does_not_hide_the_first_error(tmp_path: Path) -> None:
    def hangs(command: Command) -> bool:
        if "--terminate" in command.argv:
            raise CommandFailed("swanctl did not end within 30 s")
        return "--initiate" in command.argv

    with pytest.raises(CommandFailed, match=r"swanctl --initiate .* ended with status 1"):
        raised_tunnel(World(broken=hangs), tmp_path, Credentials(auth=IkeAuth.PSK), IpsecMode.TUNNEL)


# Secrets


def test_a_fresh_psk_has_256_bits_and_is_never_shown() -> None:
    first, second = (
        ipsec.make_credentials(World().host("initiator"), IkeAuth.PSK, Path("/nowhere"), paths=2)
        for _ in range(2)
    )
    assert first.psk != second.psk
    assert len(first.psk) == 44
    assert first.psk not in repr(first)
    assert first.psk not in str(first)


def test_certificates_are_made_for_both_ends_and_their_keys_never_shown(tmp_path: Path) -> None:
    world = World()
    for name in ("initiator.crt", "initiator.key", "target.crt", "target.key", "ca.crt"):
        world.secret_files[str(tmp_path / name)] = f"PEM of {name}"
    credentials = ipsec.make_credentials(world.host("initiator"), IkeAuth.CERT, tmp_path, paths=2)
    assert credentials.files["target"] == {
        "x509/target.crt": "PEM of target.crt",
        "private/target.key": "PEM of target.key",
        "x509ca/ca.crt": "PEM of ca.crt",
    }
    assert "PEM" not in repr(credentials)
    assert "initiator.key" not in str(credentials.files["target"])


def test_a_charon_does_not_show_what_it_was_told(tmp_path: Path) -> None:
    charon = Charon(host=World().host("initiator"), folder=tmp_path)
    charon.connections["x"] = "secret = 0sTOPSECRET"
    assert "TOPSECRET" not in repr(charon)
