"""Columns of a target that is only reached: each link has what protects it already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from harness.model import Plan, ReachedTarget
from harness.model.errors import UsageError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import as_found
from harness.protection.as_found import FoundWay
from harness.results import rules
from harness.testbeds import portals
from tests.unit.protection.test_as_found import recorded

TARGET = ReachedTarget(transport="iscsi", typed="nas.lan", address="10.9.0.2", port=3260, name="iqn.x:a")


@pytest.fixture(autouse=True)
def _nas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LUN at an address, and this end as it was recorded in the lab."""

    def look(*_asked: object, swanctl: str, **_more: object) -> portals.FoundUnit:
        target = msgspec.structs.replace(TARGET, swanctl=swanctl)
        return portals.FoundUnit(portal=target, iface="wg0", size_bytes=64 << 20, title="64M LIO")

    def ways(
        _initiator: str, links: Mapping[str, tuple[str, str]], port: int, *, swanctl: str
    ) -> dict[str, FoundWay]:
        assert swanctl in ("", "/etc/nas.conf#disks")
        host = recorded("lab-own-kernel")
        # Which interface a route leads to is recorded, not what another one would do.
        return {name: as_found.way_to(host, address, port) for name, (address, _) in links.items()}

    monkeypatch.setattr(portals, "look", look)
    monkeypatch.setattr(portals, "ways", ways)


def planned(**asked: Any) -> Plan:
    return make_plan(RunRequest(portal="nas.lan", workloads=("rand-read-4k",), **asked))


def labels(plan: Plan) -> list[str]:
    return [column.label for column in plan.columns]


def test_each_link_has_its_own_protection_and_one_without_a_note() -> None:
    made = planned(links=("tunnel=wg0", "wired=nic0@192.0.2.2", "ipsec=nic0@192.0.2.9"))
    assert [(column.link, column.protection) for column in made.columns] == [
        ("tunnel", ("wireguard", "chacha20poly1305")),
        ("wired", ()),
        ("ipsec", ("aes128gcm16",)),
    ]
    assert [note for note in made.notes if "wired" in note] == [
        "wired: nothing was found that protects this way"
    ]
    assert set(made.proposals) == {"chacha20poly1305", "aes128gcm16"}
    rules.check(made)


def test_what_protects_in_no_order_that_a_run_could_make_is_taken_as_it_is() -> None:
    made = planned(links=("vpn=nic0@10.77.0.5",))
    assert made.columns[0].protection == ("aes256-sha256",) and made.columns[0].mode == "tunnel"
    rules.check(made)


def test_off_asks_for_nothing() -> None:
    made = planned(links=("tunnel=wg0",), protect=("off",))
    assert [column.protection for column in made.columns] == [()]


def test_two_modes_of_ipsec_are_two_runs() -> None:
    with pytest.raises(UsageError, match="one mode in a run, found transport and tunnel"):
        planned(links=("vpn=nic0@10.77.0.5", "ipsec=nic0@192.0.2.9"))


def test_nothing_can_be_set_up_behind_a_portal() -> None:
    with pytest.raises(UsageError, match=r"as-found, swanctl:FILE or off with --portal.* found wireguard"):
        planned(protect=("wireguard",))
    with pytest.raises(UsageError, match="as-found needs --portal"):
        make_plan(RunRequest(protect=("as-found",)))
    with pytest.raises(UsageError, match="tunnel"):
        make_plan(RunRequest(protect=("tunnel",)))


def test_a_connection_of_the_user_s_is_up_in_the_columns_that_it_protects() -> None:
    made = planned(links=("ipsec=nic0@192.0.2.9",), protect=("off,swanctl:/etc/nas.conf#disks",))
    assert [column.protection for column in made.columns] == [(), ("aes128gcm16",)]
    assert made.storage.reached is not None and made.storage.reached.swanctl == "/etc/nas.conf#disks"
    rules.check(made)


@pytest.mark.parametrize(
    ("protect", "sentence"),
    [
        (("swanctl:/a", "swanctl:/b"), "one connection, or as-found, in a run, found swanctl:/a, swanctl:/b"),
        (("as-found", "swanctl:/a"), "one connection, or as-found, in a run, found as-found, swanctl:/a"),
    ],
)
def test_one_connection_is_up_in_a_run(protect: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        planned(protect=protect)


def test_a_connection_leads_to_a_portal() -> None:
    with pytest.raises(UsageError, match=r"--protect 'swanctl:/etc/nas\.conf' needs --portal"):
        make_plan(RunRequest(protect=("swanctl:/etc/nas.conf",)))
