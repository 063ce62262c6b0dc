"""The proof: every way in which a cell's bytes may have gone elsewhere, and no other, fails it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from harness.capture import Capture, Seen
from harness.ipsec import REQID, EspState
from harness.links import LinkPath
from harness.model import LinkProfile, Proof
from harness.proof import ENOUGH_FRAMES, EndCounters, Snapshot, judge, snapshot
from tests.unit.fakes import World, state_text

MIB = 1 << 20
NEAR, FAR = "198.18.0.1", "198.18.0.2"
READ, WRITTEN = 8 * MIB, 2 * MIB
"""What fio moved in every cell below."""


class Watched(Capture):
    """A capture that has seen what it is told."""

    def __init__(self, seen: Sequence[Seen], one_in: int) -> None:
        super().__init__(files=(), one_in=one_in)
        self._seen = seen

    def look(self) -> list[Seen]:
        return list(self._seen)


def sa(spi: str, sent_bytes: int, *, outward: bool) -> dict[str, EspState]:
    """An SA of the initiator's: ``outward`` to the target."""
    return {
        spi: EspState(
            spi=spi,
            source=NEAR if outward else FAR,
            destination=FAR if outward else NEAR,
            bytes=sent_bytes,
            packets=sent_bytes // 1400,
            algorithm="rfc4106(gcm(aes))",
            mode="transport",
            reqid=REQID,
        )
    }


BEFORE = Snapshot(
    initiator=EndCounters(
        link_bytes=100,
        retransmits=3,
        outbound=sa("0x1", 5 * MIB, outward=True),
        inbound=sa("0x2", 7 * MIB, outward=False),
    ),
    target=EndCounters(
        link_bytes=200,
        retransmits=4,
        outbound=sa("0x2", 7 * MIB, outward=False),
        inbound=sa("0x1", 5 * MIB, outward=True),
    ),
)


def after(**changes: int) -> Snapshot:
    """``BEFORE`` and what fio moved, with 10 % for headers; ``changes`` replace what was added."""
    added = {
        "near_link": 11 * MIB,
        "far_link": 11 * MIB,
        "near_out": WRITTEN * 11 // 10,
        "near_in": READ * 11 // 10,
        "far_out": READ * 11 // 10,
        "far_in": WRITTEN * 11 // 10,
        "retransmits": 0,
    } | changes
    return Snapshot(
        initiator=EndCounters(
            link_bytes=100 + added["near_link"],
            retransmits=3,
            outbound=sa("0x1", 5 * MIB + added["near_out"], outward=True),
            inbound=sa("0x2", 7 * MIB + added["near_in"], outward=False),
        ),
        target=EndCounters(
            link_bytes=200 + added["far_link"],
            retransmits=4 + added["retransmits"],
            outbound=sa("0x2", 7 * MIB + added["far_out"], outward=False),
            inbound=sa("0x1", 5 * MIB + added["far_in"], outward=True),
        ),
    )


def verdict(
    later: Snapshot,
    *,
    seen: Sequence[Seen] = (Seen(esp=12), Seen(esp=8)),
    one_in: int = 64,
    protected: bool = True,
    before: Snapshot = BEFORE,
) -> tuple[Proof, list[str], list[str]]:
    """What is judged; ``seen`` is what the initiator sent, and what the target."""
    watched = Watched(seen, one_in)
    return judge(before, later, watched, read_bytes=READ, write_bytes=WRITTEN, protected=protected)


def test_what_went_through_esp_is_proved() -> None:
    proof, reasons, warnings = verdict(after(near_in=READ, far_in=WRITTEN, retransmits=2))
    assert reasons == []
    assert warnings == []
    assert proof == Proof(
        link_bytes_initiator=11 * MIB,
        link_bytes_target=11 * MIB,
        esp_bytes=READ + WRITTEN * 11 // 10,
        esp_bytes_initiator=READ + WRITTEN * 11 // 10,
        esp_bytes_target=READ * 11 // 10 + WRITTEN,
        esp_packets_sampled=20,
        esp_sampling=64,
        cleartext_segments=0,
        rekeys=0,
        tcp_retransmits=2,
    )


@pytest.mark.parametrize(
    ("counter", "needed", "end"),
    [
        ("near_out", WRITTEN, "initiator"),
        ("near_in", READ, "initiator"),
        ("far_out", READ, "target"),
        ("far_in", WRITTEN, "target"),
    ],
)
def test_each_direction_has_to_be_covered_at_each_end(counter: str, needed: int, end: str) -> None:
    # The other direction may have carried any amount: it does not make up for this one.
    plenty = {"near_out": 90 * MIB, "near_in": 90 * MIB, "far_out": 90 * MIB, "far_in": 90 * MIB}
    _, reasons, _ = verdict(after(**{**plenty, counter: needed}))
    assert reasons == []
    _, reasons, _ = verdict(after(**{**plenty, counter: needed - 1}))
    (reason,) = reasons
    assert f"ESP at the {end} carried only" in reason
    assert str(needed - 1) in reason


@pytest.mark.parametrize("protected", [True, False])
@pytest.mark.parametrize(("counter", "end"), [("near_link", "initiator"), ("far_link", "target")])
def test_the_interface_has_to_have_carried_it(counter: str, end: str, protected: bool) -> None:
    esp = (Seen(esp=int(protected)), Seen(esp=int(protected)))
    moved = READ + WRITTEN
    _, reasons, _ = verdict(after(**{counter: moved}), seen=esp, protected=protected)
    assert reasons == []
    _, reasons, _ = verdict(after(**{counter: moved - 1}), seen=esp, protected=protected)
    assert reasons == [f"fio moved {moved} bytes, but the {end}'s interface only {moved - 1}"]


@pytest.mark.parametrize(("near", "far"), [(1, 0), (0, 1)])
def test_one_cleartext_segment_of_either_end_condemns_the_cell(near: int, far: int) -> None:
    proof, reasons, _ = verdict(after(), seen=(Seen(esp=20, cleartext=near), Seen(esp=20, cleartext=far)))
    assert reasons == ["1 cleartext segments of the portal were on the link"]
    assert proof.cleartext_segments == 1


@pytest.mark.parametrize("one_in", [1, 64, 256])
@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ((Seen(), Seen(esp=90)), ["initiator"]),
        ((Seen(esp=90), Seen()), ["target"]),
        ((Seen(), Seen()), ["initiator", "target"]),
        ((Seen(esp=1), Seen(esp=1)), []),
    ],
    ids=["initiator", "target", "both", "none"],
)
def test_each_end_has_to_have_seen_esp_however_sparse_the_sample(
    seen: tuple[Seen, Seen], ends: list[str], one_in: int
) -> None:
    proof, reasons, warnings = verdict(after(), seen=seen, one_in=one_in)
    assert reasons == [f"the capture of what the {end} sent holds no ESP" for end in ends]
    assert warnings == []
    assert proof.esp_packets_sampled == sum(end.esp for end in seen)


@pytest.mark.parametrize(("packets", "proves"), [(127, False), (128, True), (129, True)])
def test_what_is_too_little_to_be_sampled_proves_nothing_and_that_is_said(packets: int, proves: bool) -> None:
    """Of so many packets one has a sequence number that is sampled, twice over."""
    few = after()
    few.initiator.outbound["0x1"] = dataclasses.replace(
        few.initiator.outbound["0x1"], packets=BEFORE.initiator.outbound["0x1"].packets + packets
    )
    _, reasons, warnings = verdict(few, seen=(Seen(), Seen(esp=9)), one_in=64)
    if proves:
        assert (reasons, warnings) == (["the capture of what the initiator sent holds no ESP"], [])
    else:
        assert reasons == []
        assert warnings == ["the initiator sent 127 ESP packets, and the sample of one in 64 has none"]
    _, reasons, warnings = verdict(few, seen=(Seen(esp=1), Seen(esp=9)), one_in=64)
    assert (reasons, warnings) == ([], [])


@pytest.mark.parametrize("seen", [(Seen(esp=1), Seen()), (Seen(), Seen(esp=1))])
def test_esp_of_either_end_on_a_plain_column_condemns_the_cell(seen: tuple[Seen, Seen]) -> None:
    _, reasons, _ = verdict(after(), seen=seen, protected=False)
    assert reasons == ["IPsec is off, but 1 ESP packets were on the link"]


def test_a_plain_column_needs_no_esp() -> None:
    empty = EndCounters(link_bytes=0, retransmits=0, outbound={}, inbound={})
    full = EndCounters(link_bytes=11 * MIB, retransmits=0, outbound={}, inbound={})
    proof, reasons, warnings = verdict(
        Snapshot(initiator=full, target=full),
        seen=(Seen(), Seen()),
        protected=False,
        before=Snapshot(initiator=empty, target=empty),
    )
    assert (reasons, warnings) == ([], [])
    assert proof.esp_bytes == 0


def test_a_rekey_is_counted_and_said_and_cleartext_still_condemns() -> None:
    def rekeyed(end: EndCounters, outward: bool) -> EndCounters:
        return EndCounters(
            link_bytes=end.link_bytes,
            retransmits=end.retransmits,
            outbound=sa("0x11", MIB, outward=outward),
            inbound=sa("0x12", MIB, outward=not outward),
        )

    grown = after()
    later = Snapshot(initiator=rekeyed(grown.initiator, True), target=rekeyed(grown.target, False))
    proof, reasons, warnings = verdict(later)
    assert proof.rekeys == 1
    assert proof.esp_bytes == 2 * MIB  # of the new SAs, from zero
    assert reasons == []
    assert warnings == ["1 rekeys: counters of the SAs that ended are not in the proof"]
    _, reasons, _ = verdict(later, seen=(Seen(esp=1, cleartext=3), Seen(esp=2, cleartext=4)))
    assert reasons == ["7 cleartext segments of the portal were on the link"]
    _, reasons, _ = verdict(later, seen=(Seen(esp=1), Seen()))
    assert reasons == ["the capture of what the target sent holds no ESP"], "nor does a rekey excuse that"


def test_every_reason_is_given_at_once() -> None:
    nothing = after(near_link=0, far_link=0, near_out=0, near_in=0, far_out=0, far_in=0)
    _, reasons, warnings = verdict(nothing, seen=(Seen(cleartext=4), Seen(cleartext=5)))
    assert len(reasons) == 2 + 2 + 1
    assert len(warnings) == 2, "nothing was sent that could have been sampled"
    _, reasons, warnings = verdict(
        after(near_link=0, far_link=0, near_in=0, far_in=0), seen=(Seen(cleartext=4), Seen(cleartext=5))
    )
    assert len(reasons) == 2 + 2 + 1 + 2
    assert warnings == []


# On a link that others use, a plain column is proved by its own segments


def shared_verdict(moved: int, seen: Seen, one_in: int = 1) -> list[str]:
    empty = EndCounters(link_bytes=0, retransmits=0, outbound={}, inbound={})
    full = EndCounters(link_bytes=2 * moved, retransmits=0, outbound={}, inbound={})
    watched = Watched((seen, Seen()), one_in)
    watched.of_cleartext = True
    before, later = (Snapshot(initiator=end, target=end) for end in (empty, full))
    _, reasons, warnings = judge(before, later, watched, read_bytes=moved, write_bytes=0, protected=False)
    assert warnings == []
    return reasons


@pytest.mark.parametrize("one_in", [1, 16])
def test_of_its_own_segments_some_have_to_be_seen(one_in: int) -> None:
    enough = ENOUGH_FRAMES * one_in * (1 << 16)
    none = ["of the portal's segments none was seen on the link"]
    assert shared_verdict(enough + 1, Seen(), one_in) == none
    assert shared_verdict(enough, Seen(), one_in) == [], "too little to say"
    assert shared_verdict(enough + 1, Seen(cleartext=1), one_in) == []


def test_esp_of_others_does_not_condemn_it() -> None:
    assert shared_verdict(1 << 22, Seen(esp=5, cleartext=9)) == []


# Where the counters come from

PROC_NET_DEV = """\
Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 999     9     0     0     0     0     0     0   999     9     0     0     0     0     0
hbeefi0: 1000    10     0     0     0     0     0     0    30     3     0     0     0     0     0
xhbeefi0: 5     1     0     0     0     0     0     0     5     1     0     0     0     0     0
hbeeft0:7000    10     0     0     0     0     0     0   400     3     0     0     0     0     0
"""
PROC_NET_SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens OutSegs RetransSegs InErrs
Tcp: 1 200 120000 -1 4 987 17 0
"""


class Files(World):
    def text_of(self, path: str) -> str:
        return {"/proc/net/dev": PROC_NET_DEV, "/proc/net/snmp": PROC_NET_SNMP}[path]


def link(world: World) -> LinkPath:
    return LinkPath(
        profile=LinkProfile(name="wired", title="wired", emulated=True),
        index=0,
        initiator=world.host("initiator"),
        target=world.host("target", "harness-beef-0"),
        initiator_iface="hbeefi0",
        target_iface="hbeeft0",
        initiator_address=NEAR,
        target_address=FAR,
    )


def test_a_snapshot_reads_both_directions_of_the_links_own_interfaces() -> None:
    states = state_text(NEAR, FAR, spi=1, sent_bytes=10) + state_text(FAR, NEAR, spi=2, sent_bytes=20)
    # Of another column on the same addresses.
    states += state_text(NEAR, FAR, spi=3, reqid=REQID + 1, sent_bytes=40)
    world = Files(answers=[(("ip", "-s", "xfrm"), (0, states, ""))])
    now = snapshot(link(world), protected=True)
    assert (now.initiator.link_bytes, now.target.link_bytes) == (1030, 7400)
    assert (now.initiator.retransmits, now.target.retransmits) == (17, 17)

    def sums(states: dict[str, Any]) -> dict[str, int]:
        return {spi: state.bytes for spi, state in states.items()}

    assert sums(now.initiator.outbound) == sums(now.target.inbound) == {"0x00000001": 10}
    assert sums(now.initiator.inbound) == sums(now.target.outbound) == {"0x00000002": 20}


def test_without_ipsec_no_states_are_asked_for() -> None:
    world = Files()
    assert snapshot(link(world), protected=False).initiator.outbound == {}
    assert world.commands == []


def test_an_interface_that_is_gone_has_carried_nothing() -> None:
    world = Files()
    gone = LinkPath(**{**vars(link(world)), "initiator_iface": "hbeefi9"})
    assert snapshot(gone, protected=False).initiator.link_bytes == 0
