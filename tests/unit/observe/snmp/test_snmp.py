"""Hops over SNMP: what an agent says of its interfaces, how old that is, and what is made of it.

Net-SNMP's programs are a switch in memory here, with a clock of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from harness.hosts import packages, runner
from harness.hosts.runner import Completed
from harness.model.errors import HopLost, RequirementError
from harness.model.telemetry import InterfaceUse
from harness.observe import counters, environment, hops
from harness.observe.snmp import hop as snmp
from harness.observe.snmp.hop import COUNTERS, DISCONTINUITY, NAME, NEEDED, SnmpAddress, SnmpHop, parse
from harness.testbeds import doctor
from tests.unit.observe.test_hops import Booted
from tests.unit.parsing import refused

LO, ASKED, WAY, DOWN = "1", "2", "3", "4"
NAMES = {LO: "lo", ASKED: "gi1", WAY: "gi2", DOWN: "gi3"}
IN = f"{snmp.IFX}6"
SILENT = "Timeout: No Response from switch.lan."


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Switch:
    """An agent that takes 10 ms for an answer, and renews the counters that it answers by every
    ``refresh_s``. Questions come in by the interface ASKED."""

    def __init__(self, clock: Clock, refresh_s: float = 0.001) -> None:
        self.clock, self.refresh_s = clock, refresh_s
        self.began, self.renewed = clock.now - 77, clock.now
        self.values: dict[str, str] = {snmp.DESCRIPTION: '"Switch \x1b[2J 3000'}
        self.live: dict[str, int] = {}
        for index, name in NAMES.items():
            status = "2" if index == DOWN else "1"
            self.values |= {f"{NAME}.{index}": f'"{name}"', f"{snmp.STATUS}.{index}": status}
            counts = {**dict.fromkeys(NEEDED, 5), snmp.SPEED: 1000, DISCONTINUITY: 0}
            self.live |= {f"{oid}.{index}": count for oid, count in counts.items()}
        self.kept = dict(self.live)
        self.asked: list[tuple[str, ...]] = []
        self.environment: Mapping[str, str] = {}
        self.refuses: str | None = None

    def _renew(self) -> None:
        if (passed := self.clock.now - self.renewed) >= self.refresh_s:
            self.renewed += passed // self.refresh_s * self.refresh_s
            self.kept = dict(self.live)

    def carry(self, index: str, **grown: int) -> None:
        self._renew()
        for name, count in grown.items():
            self.live[f"{COUNTERS[name][-1]}.{index}"] += count

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], check: bool) -> Completed:
        assert not check
        self.asked.append(tuple(argv))
        self.environment = env
        self.clock.sleep(0.01)
        self._renew()
        self.carry(ASKED, rx_bytes=500, rx_packets=1)
        if self.refuses is not None:
            return Completed(argv=tuple(argv), status=1, stdout="", stderr=self.refuses)
        uptime = {snmp.UPTIME: str(int((self.clock.now - self.began) * 100) % (1 << 32))}
        known = {**self.values, **{oid: str(value) for oid, value in self.kept.items()}, **uptime}
        asked = [word for word in argv if word.startswith(".1.")]
        if argv[0] == "snmpbulkwalk":
            asked = [oid for oid in known if oid.startswith(f"{asked[0]}.")] or asked
        absent = "No Such Instance currently exists at this OID"
        said = "".join(f"{oid} {known.get(oid, absent)}\n" for oid in asked)
        return Completed(argv=tuple(argv), status=0, stdout=said, stderr="")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(snmp, "time", clock)
    monkeypatch.setattr(packages, "require", lambda _kind: None)
    return clock


@pytest.fixture
def switch(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Switch:
    switch = Switch(clock)
    monkeypatch.setattr(runner, "run", lambda *words, **more: switch.run(*words, **more))
    return switch


def reach(text: str = "snmp://switch.lan") -> SnmpHop:
    with snmp.connect(parse(text), name="hop") as hop:
        return hop


def test_an_address_has_an_agent_and_perhaps_interfaces() -> None:
    for text, agent, *interfaces in (
        ("snmp://switch.lan", "switch.lan"),
        ("snmp://switch.lan/", "switch.lan"),
        ("snmp://192.0.2.1:1161/gi1,gi2", "192.0.2.1:1161", "gi1", "gi2"),
        ("snmp://core/Gi1/0/1,Slot: 0 Port: 2,49", "core", "Gi1/0/1", "Slot: 0 Port: 2", "49"),
        ("snmp://[2001:db8::1]", "udp6:[2001:db8::1]"),
        ("snmp://[2001:db8::1]:1161/2", "udp6:[2001:db8::1]:1161", "2"),
    ):
        assert parse(text) == SnmpAddress(text, agent, tuple(interfaces))
    for text in ("//", "switch", "//-oX", "//me@a", "//a:0", "//a:70000", "//a/\n"):
        said = str(refused(hops.check, f"snmp:{text}"))
        assert "expected hop as snmp://HOST[:PORT][/INTERFACE,...], " in said, text


def test_values_are_read_by_numbers_without_what_is_absent() -> None:
    text = (
        "Created directory: /var/lib/snmp/cert_indexes\n"
        f'{NAME}.2 "gi 2"\n'
        f'{snmp.DESCRIPTION} "Switch\nof two lines"\n'
        f"{IN}.2 18446744073709551615\n"
        f"{IN}.3 No Such Instance currently exists at this OID\n"
        f"{IN}.4 No more variables left in this MIB View (It is past its end)\n"
    )
    found = {f"{NAME}.2": "gi 2", snmp.DESCRIPTION: "Switch", f"{IN}.2": "18446744073709551615"}
    assert snmp.variables(text) == found and snmp.variables("") == {}


def at(index: str, **more: int) -> dict[str, int]:
    """Counters of an interface, at 7 but for those named by their field: the last of each."""
    found = {f"{oid}.{index}": 7 for oid in (*NEEDED, DISCONTINUITY)}
    return found | {f"{COUNTERS[name][-1]}.{index}": count for name, count in more.items()}


def test_counters_grow_and_wrap_around() -> None:
    first = at("3", rx_bytes=(1 << 64) - 10, drops=(1 << 32) - 1)
    last = at("3", rx_bytes=90, rx_packets=9, drops=1) | {f"{snmp.IFX}7.3": 8, f"{snmp.IF}13.3": 8}
    grown = dict.fromkeys(COUNTERS, 0) | {"rx_bytes": 100, "rx_packets": 3, "drops": 3}
    assert snmp.difference("3", first, last) == grown
    # Those that did not go on say nothing.
    broken = [at("3") | {f"{DISCONTINUITY}.3": 8}, at("3", drops=6), at("3", rx_bytes=0), at("4"), {}]
    assert [snmp.difference("3", at("3"), last) for last in broken] == [None] * 5
    # An uptime that goes on by more than time is a restart.
    assert not snmp.restarted((1 << 32) - 100, 400, 5.0), "it wrapped after 497 days"
    assert snmp.restarted((1 << 32) - 100, 40_000, 5.0)
    assert snmp.restarted(500, 499, 5.0)
    assert not snmp.restarted(500, 500, 5.0), "an old copy"


def test_an_interface_that_drops_or_is_full_is_named() -> None:
    counted = {"rx_bytes": 1000, "tx_bytes": 1_230_000_000, "rx_packets": 10, "tx_packets": 810_000}
    use = InterfaceUse(host="hop", interface="gi2", drops=3, errors=0, **counted)
    dropped, full = snmp.doubts(use, 1000, 10.0)
    assert dropped == "packets dropped: 3 by the hop's interface gi2"
    assert full == "interface full: the hop's interface gi2 sent 997 of 1000 Mbit/s"
    for speed in (0, 10, 10_000):
        assert len(list(snmp.doubts(use, speed, 10.0))) == 1, "that speed is unknown, made up, or far away"


@pytest.mark.parametrize("refresh_s", [0.001, 0.7, 2.9])
def test_what_passes_while_it_is_watched_counts(switch: Switch, clock: Clock, refresh_s: float) -> None:
    switch.refresh_s = refresh_s
    hop = reach()
    assert refresh_s <= hop.refresh_s <= refresh_s + 0.2
    for octets in (1000, 30_000):
        switch.carry(WAY, rx_bytes=77)  # just before
        ended = hop.watch()
        clock.sleep(1)
        switch.carry(WAY, rx_bytes=octets, tx_packets=4, drops=2)
        clock.sleep(3)
        switch.carry(WAY, errors=1)
        seen = ended()
        switch.carry(WAY, rx_bytes=55)
        (asked, way) = seen.interfaces
        assert asked.interface == "gi1", "the questions come in there"
        grown = dict.fromkeys(COUNTERS, 0) | {"rx_bytes": octets, "tx_packets": 4, "drops": 2, "errors": 1}
        assert way == InterfaceUse(host="hop", interface="gi2", **grown)
        assert seen.warnings == ("packets dropped: 2 by the hop's interface gi2",)


def test_what_is_shorter_than_counters_are_old_is_not_counted(switch: Switch, clock: Clock) -> None:
    switch.refresh_s = 2.9
    hop = reach()
    ended = hop.watch()
    clock.sleep(0.5)
    reported = r"its counters may be [23]\.[0-9] s old: try --runtime [34]s or more$"
    with pytest.raises(
        HopLost, match=rf"^the hop \(snmp://switch\.lan\) was watched for 0\.\d s.*{reported}"
    ):
        ended()
    asked = len(switch.asked)
    with pytest.raises(HopLost, match="try --runtime "):
        hop.watch()
    assert len(switch.asked) == asked, "nobody waits for it again"


def test_interfaces_may_be_named_in_either_way(switch: Switch) -> None:
    for text, names in (("gi2", ["gi2"]), ("3", ["gi2"]), ("gi3,2", ["gi3", "gi1"]), ("", ["gi1", "gi2"])):
        assert list(reach(f"snmp://switch.lan/{text}").speeds) == names
    with pytest.raises(RequirementError) as error:
        reach("snmp://switch.lan/gi9")
    asked = "expected the interface gi9 at the hop (snmp://switch.lan/gi9)"
    assert error.value.message == f"{asked}, found lo, gi1, gi2, gi3"
    switch.values[f"{NAME}.{WAY}"] = '""'
    assert list(reach("snmp://switch.lan/3").speeds) == ["3"], "it has no name"
    # Those without such counters are left out unless they are named.
    switch.values[f"{NAME}.{WAY}"] = '"gi2"'
    del switch.live[f"{IN}.{WAY}"]
    switch.kept = dict(switch.live)
    assert list(reach().speeds) == ["gi1"]
    with pytest.raises(RequirementError, match="without 64-bit counters") as error:
        reach("snmp://switch.lan/gi2")
    assert error.value.hint


def test_one_that_restarts_or_falls_silent_is_lost(switch: Switch, clock: Clock) -> None:
    ended = reach().watch()
    clock.sleep(5)
    switch.began = clock.now
    with pytest.raises(HopLost, match="was restarted in the meantime"):
        ended()
    hop = reach()
    ended = hop.watch()
    clock.sleep(1)
    switch.refuses = f"{SILENT}\n"
    with pytest.raises(HopLost, match=r"^the hop \(snmp://switch\.lan\) was lost: Timeout: No "):
        ended()
    assert hop.lost is not None


def test_one_that_does_not_answer_is_refused(switch: Switch) -> None:
    for said, hint in (
        (SILENT, "defCommunity"),
        ("snmpget: Unknown host (switch.lan) (Name or service not known)", "check the name"),
        ("snmpget: Authentication failure (incorrect password, community or key)", "SNMPv3"),
    ):
        switch.refuses = f"Created directory: /tmp/x/cert_indexes\n{said}\n"
        with pytest.raises(RequirementError) as error:
            reach()
        assert error.value.message == f"the hop (snmp://switch.lan) could not be reached: {said}"
        assert hint in (error.value.hint or ""), said
    # Nor is one taken without interfaces, or with counters that stand still.
    switch.refuses = None
    switch.refresh_s = 1e6
    with pytest.raises(RequirementError, match="did not change twice within 40 s"):
        reach()
    switch.values = {}
    switch.live = switch.kept = {}
    switch.carry = lambda *_words, **_more: None  # type: ignore[method-assign]
    with pytest.raises(RequirementError, match="answers, but without 64-bit counters of interfaces"):
        reach()


def test_the_user_s_settings_count_more(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no secret is an argument."""
    monkeypatch.delenv("SNMPCONFPATH", raising=False)
    with snmp.connect(SnmpAddress("snmp://s", "s", ()), name="hop"):
        first, *rest = switch.environment["SNMPCONFPATH"].split(":")
        assert Path(first, "snmp.conf").read_text(encoding="utf-8") == "defVersion 2c\ndefCommunity public\n"
        assert rest == ["/etc/snmp", "/usr/share/snmp", str(Path.home() / ".snmp")]
        assert switch.environment["SNMP_PERSISTENT_DIR"] == first
    assert not Path(first).exists()
    assert all(set(argv).isdisjoint({"-c", "-v", "-u", "-A", "-X", "public"}) for argv in switch.asked)
    monkeypatch.setenv("SNMPCONFPATH", "/mine:/too")
    reach()
    assert switch.environment["SNMPCONFPATH"].endswith(":/mine:/too")
    asked = (sum(word.startswith(".1.") for word in argv) for argv in switch.asked)
    assert max(asked) <= 3 * (len(NEEDED) + 2) + 1, "each question fits into a frame"


def test_an_observer_counts_its_interfaces_and_no_processor(switch: Switch, clock: Clock) -> None:
    reported: list[str] = []
    observer = counters.Observer([Booted().host("initiator")], [reach()], tell=reported.append)
    ended = observer.watch()
    clock.sleep(2)
    switch.carry(WAY, tx_bytes=5000, drops=1)
    seen = ended()
    assert [use.hosts for use in seen.processors] == [("initiator",)]
    assert [(use.host, use.interface) for use in seen.interfaces] == [("hop", "gi1"), ("hop", "gi2")]
    assert seen.warnings == ("packets dropped: 1 by the hop's interface gi2",) and seen.lost_hops == {}
    ended = observer.watch()
    switch.refuses = SILENT
    assert ended().interfaces == ()
    assert observer.watch()().lost_hops == {"hop": f"the hop (snmp://switch.lan) was lost: {SILENT}"}
    assert len(reported) == 1 and reported[0].endswith("; its counters are n/a from now on")


def test_it_is_described_by_what_it_says_of_itself_and_doctor_says_whether_it_answers(switch: Switch) -> None:
    facts = environment.describe((), [reach()])["hosts"]
    assert isinstance(facts, dict) and "kernel" not in facts["hop"]
    assert facts["hop"]["address"] == "snmp://switch.lan"
    assert facts["hop"]["speeds_mbit_s"] == {"gi1": 1000, "gi2": 1000}
    assert facts["hop"]["system"].startswith("Switch ") and facts["hop"]["system"].isprintable()
    (well,) = doctor.hop_findings(["snmp://switch.lan/gi2"])
    assert well.ok and well.text.startswith("snmp://switch.lan/gi2: answers SNMP: Switch ")
    assert well.text.endswith("interfaces: gi2 (1000 Mbit/s)") and "--runtime" not in well.text
    switch.refresh_s = 2.9
    (slow,) = doctor.hop_findings(["snmp://switch.lan/gi2"])
    assert re.search(r"s old: try --runtime [34]s or more; interfaces: gi2", slow.text)
    switch.refuses = SILENT
    (ill,) = doctor.hop_findings(["snmp://switch.lan"])
    assert not ill.ok and "No Response" in ill.text and "defCommunity" in ill.mend


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    listed = packages.listed
    monkeypatch.setattr(packages, "missing", lambda kind: [p for p in listed(kind) if p.name == "snmp"])
    with (
        pytest.raises(RequirementError, match="snmp needs packages that are missing: snmp "),
        hops.reached("snmp://switch.lan", name="hop", log=tmp_path / "log"),
    ):
        pytest.fail("it was asked")
