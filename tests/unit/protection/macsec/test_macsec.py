"""MACsec: framing by the standard's numbers, frames by their own, keys, and what counts as agreed."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
from pathlib import Path
from unittest import mock

import pytest

from harness.analysis import theory
from harness.analysis.wire import framing_of
from harness.hosts.faults import Stopped
from harness.hosts.journal import Journal
from harness.model import IpsecMode
from harness.model.errors import CommandFailed
from harness.parse.profiles import load_proposal
from harness.protection import overlay
from harness.protection.capture import expression
from harness.protection.layer import ETHERTYPE_IPV4
from harness.protection.macsec import kind as macsec
from harness.protection.macsec import mka
from harness.testbeds.requirements import Asked
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path
from tests.unit.protection.test_overlay import PATH, RUN, UNDERLAY, carried, datagram
from tests.unit.protection.test_pre_existing import portal, way
from tests.unit.testbeds.test_selftest import tried

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


def test_frames_have_a_tag_and_a_check_value() -> None:
    made = framing_of(("macsec",), {}, IpsecMode.TRANSPORT, 1500)
    assert made is not None and made.inner_mtu_bytes(1500) == 1468
    assert made.packet_bytes(1468) == 1500 and made.packet_bytes(40) == 72


def test_what_is_within_it_is_framed_first() -> None:
    gcm = load_proposal("aes128gcm16")
    stack = framing_of(("macsec", gcm.name), {gcm.name: gcm}, IpsecMode.TRANSPORT, 1500)
    esp = theory.esp(gcm.kernel_algorithms, IpsecMode.TRANSPORT)
    assert stack is not None and esp is not None
    assert stack.inner_mtu_bytes(1500) == esp.inner_mtu_bytes(1468)
    assert stack.packet_bytes(100) == 32 + esp.packet_bytes(100)
    assert stack.sealed_bytes(100) == esp.sealed_bytes(100) + esp.packet_bytes(100) + 2


def test_channels_on_one_interface_of_the_user_s_differ_by_their_port() -> None:
    ports = {macsec.channel_port(link_path(World(), index)) for index in range(256)}
    assert len(ports) == 256 and min(ports) == 1


def test_one_that_is_not_what_was_asked_for_is_refused() -> None:
    cipher = "gcm-aes-256"
    channel = macsec.MacsecDriver(run=RUN, cipher=cipher)
    good = {"cipher": macsec.CIPHERS[cipher][1], "is_encrypting": True, "is_strict": True}
    assert channel.agreed((carried(**good), carried(**good)), UNDERLAY)["algorithm"] == cipher
    for wrong in ({"is_encrypting": False}, {"is_strict": False}, {"cipher": 1}):
        with pytest.raises(CommandFailed, match="expected MACsec with"):
            channel.agreed((carried(**good), carried(**good | wrong)), UNDERLAY)


def test_keys_are_in_no_text() -> None:
    world = World()
    keys = macsec.StaticKeys(within=link_path(world, 7), cipher="gcm-aes-128", macs=MACS)
    keys.tell()
    # The fake lists the lines of a batch as commands, too.
    processes = [command for command in world.commands if command.input]
    near, far = (re.findall(r"\b[0-9a-f]{32}\b", command.input or "") for command in processes)
    assert len(set(near)) == 2 and near == far[::-1], "one for each direction"
    assert not any(key in word for key in near for command in processes for word in command.argv)
    assert not any(key in repr(keys) for key in near)
    secret = mka.Secret()
    assert len(secret.key) == 32 and secret.key not in repr(secret)
    text = mka.configuration(secret, priority=2, port=1, socket=Path("/run/x"))
    for line in (f"mka_cak={secret.key}", f"mka_ckn={secret.name}", "mka_priority=2"):
        assert line in text.splitlines()


def test_a_target_that_has_booted_sends_with_another_key_and_its_peer_s_packet_numbers_go_on() -> None:
    world = World()
    keys = macsec.StaticKeys(within=link_path(world, 7), cipher="gcm-aes-128", macs=MACS)
    keys.tell()
    keys.again((MACS[0], "02:00:00:00:00:03"))
    told = [command.input for command in world.commands if command.input]
    before, far, near = (re.findall(r"\b[0-9a-f]{32}\b", text) for text in told[1:])
    assert far[1] == before[1] and far[0] != before[0] and near == far[:1]
    gone, *rest = told[-1].splitlines()
    assert gone.startswith("macsec del ") and gone.endswith(f" address {MACS[1]}")
    assert all(" tx " not in line and " address 02:00:00:00:00:03" in line for line in rest), rest


def test_frames_are_known_by_their_numbers_and_what_comes_in_by_its_sender() -> None:
    channel = macsec.MacsecFrames(macs=MACS)
    assert channel.number(macsec.ETHERTYPE, bytes([0x2C, 0]) + (513).to_bytes(4, "big")) == (0, 513)
    assert channel.number(ETHERTYPE_IPV4, datagram(b"")) is None
    assert channel.is_control(mka.ETHERTYPE, b"\3\5")
    assert not channel.is_control(ETHERTYPE_IPV4, datagram(b""))
    # Frames have no addresses of IP.
    assert expression(PATH, "initiator", channel, protected=True, one_in=64) == (
        "not ((ip src host 198.18.7.2 and ip dst host 198.18.7.1) or "
        "(ether proto 0x88e5 and ether src 02:00:00:00:00:02)) and "
        "(not (ether proto 0x88e5) or (ether proto 0x88e5 and ether[16:4] & 0x3f = 0))"
    )
    assert "ether src 02:00:00:00:00:01" in expression(PATH, "target", channel, protected=True, one_in=64)


def test_it_is_recognised_also_below_a_vlan() -> None:
    for address in ("10.8.0.2", "10.5.0.2"):
        found = way("lab-own-kernel", address)
        assert found.names == ("macsec",) and not found.notes
        assert found.steps[0].below and found.steps[0].below.device.name == "nic0"
    found = way("lab-own-kernel", "10.18.0.2")
    assert (found.names, found.notes) == ((), ("macsec1 is MACsec that does not encrypt",))


def test_frames_are_this_end_s_by_their_sender() -> None:
    path = portal("10.8.0.2", "macsec0", "10.8.0.1")
    (step,) = way("lab-own-kernel", "10.8.0.2").steps
    below = step.path_below(path)
    assert (below.initiator_iface, below.target_address) == ("nic0", "10.8.0.2")
    text = expression(below, "initiator", step.found.frames, protected=True, one_in=64, within=path)
    mac = step.found.frames.macs[0] if isinstance(step.found.frames, macsec.MacsecFrames) else ""
    assert text.startswith(f"(not (ether proto 0x88e5 and not ether src {mac}) and (ether proto 0x88e5 and ")


def test_the_interface_that_protects_is_watched_and_not_the_vlan_over_it() -> None:
    path, watch = portal("10.5.0.2", "macsec0.5", "10.5.0.1"), mock.Mock()
    (step,) = way("lab-own-kernel", "10.5.0.2").steps
    step = dataclasses.replace(step, found=dataclasses.replace(step.found, watch=watch))
    step.watch(step.path_below(path), path, Path())
    assert watch.call_args.args[1].initiator_iface == "macsec0"


def test_doctor_tries_an_interface(tmp_path: Path) -> None:
    asked = Asked(transports=(), protections=("macsec",))
    assert "an interface of MACsec" in [each.what for each in tried(World(), "target", tmp_path, asked)]


def test_where_the_ends_agree_on_keys_their_server_can_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = mock.Mock()
    monkeypatch.setattr(mka, "agreement", lambda *_, **__: contextlib.nullcontext(daemon))
    monkeypatch.setattr(macsec, "_macs", lambda _: MACS)
    monkeypatch.setattr(overlay, "open_up", lambda _: None)
    run = mock.Mock(private=Path(), journal=Journal(Path("journal")))
    with macsec.MacsecDriver(run=run).keyed(UNDERLAY, PATH) as breaks:
        assert not breaks(), "static keys need no daemon"
    with macsec.MacsecDriver(run=run, negotiates=True).keyed(UNDERLAY, PATH) as breaks:
        ((host, gone),) = breaks().values()
    assert host is PATH.initiator and isinstance(gone, Stopped) and not gone.undo()
    gone.acquire(host)
    gone.restore()
    assert [call.args for call in daemon.signal.call_args_list] == [(signal.SIGSTOP,), (signal.SIGCONT,)]
