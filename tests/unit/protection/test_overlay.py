"""Interfaces over a link and their fail-closed policy: stacks, and what a journal would carry out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from harness.analysis import theory
from harness.analysis.wire import framing_of
from harness.model import End, IpsecMode
from harness.model.protections import NESTING, PROTECTIONS, Encapsulation, StackPlace
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import fail_closed, layer, overlay
from harness.protection.kind import ProtectionContext, Underlay
from harness.protection.xfrm_listener import ListenerReport, OverlayCounters, XfrmListeners
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path

PATH = link_path(World(), 7)


def test_a_stack_is_framed_from_within() -> None:
    links, interfaces, _ = NESTING
    for outer, inner in itertools.product(links, interfaces):
        alone = framing_of((inner,), {}, IpsecMode.TRANSPORT, 1500)
        around = framing_of((outer,), {}, IpsecMode.TRANSPORT, 1500)
        both = framing_of((outer, inner), {}, IpsecMode.TRANSPORT, 1500)
        if alone is None or around is None or both is None:
            assert PROTECTIONS[inner].pre_existing
            continue
        assert both.inner_mtu_bytes(1500) == alone.inner_mtu_bytes(around.inner_mtu_bytes(1500))
        assert both.packet_bytes(52) == around.packet_bytes(alone.packet_bytes(52))
        mss_bytes = theory.Wire(link=PATH.profile, framing=both).mss_bytes
        assert mss_bytes == both.inner_mtu_bytes(1500) - 52


def test_samples_that_are_missing_are_counted_over_all_numbers() -> None:
    assert layer.Due(count=3).missing({1: {64}, 2: {64}}) == 1


def test_the_path_within_ends_at_addresses_of_its_own() -> None:
    first, second = (overlay.inner_path(PATH, tag="abcd", level=level) for level in (0, 1))
    assert (first.initiator_address, first.target_address) == ("198.18.7.129", "198.18.7.130")
    assert (second.initiator_address, second.initiator_iface) == ("198.18.7.133", "habcdx7")
    assert len(overlay.name("abcd", link_path(World(), 255), 3)) < 16


def test_a_fail_closed_goes_by_its_priority_even_when_the_interface_is_gone() -> None:
    (stop,) = fail_closed.InterfaceFailClosed("initiator", "198.18.7.130", 3260).undo()
    (let,) = fail_closed.AllowOutbound("initiator", "198.18.7.130", 3260, "habcdw7").undo()
    assert stop.argv[:4] == ("ip", "xfrm", "policy", "deleteall") and "dev" not in let.argv
    assert stop.argv[-1] != let.argv[-1]


def test_connections_end_before_their_fail_closed() -> None:
    """On an interface of the user's by their port alone, on one of the run's also with its addresses."""
    theirs = dataclasses.replace(PATH, is_shared=True, port=3276)
    for path, steps in ((PATH, 2), (theirs, 1)):
        for number, (_, connections) in enumerate(fail_closed.Connections.at_the_ends_of(path)):
            end, *rest = connections.undo()
            words = " ".join(end.argv)
            peer = (path.target_address, path.initiator_address)[number]
            assert words.startswith("ss ") and f"dst {peer} {'ds'[number]}port = :{path.port}" in words
            assert len([end, *rest]) == steps
            iface = (path.initiator_iface, path.target_iface)[number]
            assert all(step.argv == ("ip", "address", "flush", "dev", iface) for step in rest)


def carried(**agreed: int | bool) -> ListenerReport:
    counted = OverlayCounters(tx_packets=1, tx_bytes=100, rx_packets=1, rx_bytes=100, agreed=agreed)
    return ListenerReport(before="", carried=counted, after="")


RUN = cast(ProtectionContext, None)
"""It is asked for nothing."""
UNDERLAY = Underlay(below=PATH, level=0, mtu_bytes=1500, listeners=cast(XfrmListeners, None), raw=Path())


def datagram(payload: bytes, port: int = 0x4807) -> bytes:
    """An IPv4 packet with UDP between a port and the same."""
    header = bytes([0x45]) + bytes(8) + bytes([17]) + bytes(10)
    return header + 2 * port.to_bytes(2, "big") + bytes(4) + payload


class WithPeers(overlay.Overlay):
    """Each of its interfaces is told both addresses, as those of GRE are."""

    NAME = "made-up"
    IS_BOUND = False

    def words(self, path: LinkPath, end: End) -> tuple[str, ...]:
        own, peer = next((own, peer) for each, _, _, own, peer in links.ends(path) if each == end)
        return ("local", own, "remote", peer)

    def keyed(self, *_: Any) -> Any:
        raise InterruptedError

    def agreed(self, *_: Any) -> dict[str, str]:
        return {}


def test_each_end_s_interface_has_words_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Encapsulation(name="made-up", title="x", order=9, place=StackPlace.INTERFACE, takes_bytes=24)
    monkeypatch.setitem(PROTECTIONS, made.name, made)
    run, held = mock.MagicMock(), list[object]()
    run.plan.tag = "abcd"

    def hold(_: object, resource: object) -> contextlib.AbstractContextManager[None]:
        held.append(resource)
        return contextlib.nullcontext()

    run.journal.hold = hold
    with pytest.raises(InterruptedError), WithPeers(run=run).protect(UNDERLAY):
        pass
    near, far = (each for each in held if isinstance(each, overlay.OverlayInterface))
    assert near.words == ("local", "198.18.7.1", "remote", "198.18.7.2")
    assert far.words == ("local", "198.18.7.2", "remote", "198.18.7.1")
    assert near.name == far.name == "habcdw7" and near.mtu_bytes == far.mtu_bytes == 1476
