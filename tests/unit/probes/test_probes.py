"""Probes: what broken tools lead to, what proves a figure, what users may ask, and a machine's operations."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from socket import SOCK_DGRAM, socket
from typing import Any, TypeVar

import msgspec
import pytest

from harness.analysis.cpu_costs import Operation, Per, WhichEnd
from harness.hosts import remote
from harness.hosts.journal import Journal
from harness.hosts.runner import await_condition
from harness.model import Clock, IpsecMode, Status, TestbedKind, probing
from harness.model.errors import RequirementError, UsageError
from harness.model.probing import Flood, Forwarding, PacketRate, Ping, Probe, Tcp, Udp, UdpLatency
from harness.model.ranges import out_of_range
from harness.observe.counters import Observer
from harness.observe.interference import Watching
from harness.parse.hosts import parse_address
from harness.planning import probe_plan
from harness.planning.probe_plan import ProbeProfile, ProbeRequest
from harness.planning.request import RunRequest
from harness.probes import by_itself, datagrams, echo, judged, packets, throughput
from harness.probes.tools import PACKAGES, ProbedPath
from harness.protection.ipsec.layer import EspLayer
from harness.protection.xfrm_listener import ListenerReport, SaCounters, XfrmListeners
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.runs.prober import questions
from tests import flat
from tests.unit.fakes import Command, FakeHost, FakeXfrmListener, World
from tests.unit.fakes.answers import Answer
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import link_path
from tests.unit.observe.test_hops import Router
from tests.unit.runs import test_teardown as teardown

F = TypeVar("F")
NEAR, FAR = "198.18.0.1", "198.18.0.2"
TRANSMITTED = f"--- {FAR} ping statistics ---\n4 packets transmitted, "
REPLIES = f"""\
PING {FAR} ({FAR}) 56(84) bytes of data.
64 bytes from {FAR}: icmp_seq=1 ttl=64 time=0.400 ms
64 bytes from {FAR}: icmp_seq=2 ttl=64 time=0.200 ms
64 bytes from {FAR}: icmp_seq=3 ttl=64 time=0.300 ms
64 bytes from {FAR}: icmp_seq=3 ttl=64 time=9.00 ms (DUP!)

{TRANSMITTED}3 received, +1 duplicates, 25% packet loss, time 3003ms
rtt min/avg/max/mdev = 0.200/0.300/0.400/0.081 ms
"""
ALL_LOST = f"PING {FAR} 56(84) bytes of data.\n\n{TRANSMITTED}0 received, 100% packet loss, time 3060ms\n"


def flood(sent: int, received: int, seconds: float = 2.0) -> str:
    lost = f"{100 * (sent - received) / sent:g}% packet loss, time {seconds * 1000:.0f}ms"
    counted = f"{sent} packets transmitted, {received} received, {lost}"
    return f"PING {FAR} ({FAR}) 1(29) bytes of data.\n\n--- {FAR} ping statistics ---\n{counted}\n"


def hping(sent: int, received: int, seconds: float = 2.0) -> str:
    return (
        f"\n--- {FAR} hping statistic ---\n{sent} packets transmitted, {received} packets received, "
        f"{-(-100 * (sent - received) // sent)}% packet loss\nround-trip min/avg/max = 0.1/0.2/0.3 ms\n"
        f"\nreal\t0m{seconds:.3f}s\nuser\t0m0.1s\nsys\t0m0.1s\n"
    )


def iperf3_json(sent: int, received: int) -> str:
    def total(moved: int) -> dict[str, float]:
        return {"start": 0, "end": 1, "seconds": 1, "bytes": moved, "bits_per_second": 8 * moved}

    ends = {"sum_sent": {**total(sent), "retransmits": 3}, "sum_received": total(received)}
    sender = {**total(sent), "mean_rtt": 250, "max_snd_cwnd": 70_000}
    start = {"connecting_to": {"host": FAR, "port": 1}, "test_start": {"protocol": "TCP"}}
    end = {"streams": [{"sender": sender, "receiver": total(received)}], **ends}
    return json.dumps({"start": start, "intervals": [], "end": end})


class Net(World):
    """A world whose interfaces and listeners are as told, and whose tools answer in turn."""

    listening = True
    packets = 0

    def text_of(self, path: str) -> str:
        if path == "/proc/net/dev":
            self.packets += 1000
            counts = f"0 {self.packets}{' 0' * 7} {self.packets}{' 0' * 6}"
            return "".join(f"{name}: {counts}\n" for name in ("i", "t"))
        if path in ("/proc/net/tcp", "/proc/net/udp"):
            port = throughput.PORT if path.endswith("tcp") else datagrams.PORT
            return f"head\n 0: 0212A8C0:{port:04X} 00000000:0000 0A\n" if self.listening else "head\n"
        if path == "/proc/cpuinfo":
            return "vendor_id : User Mode Linux\n"
        return super().text_of(path)


KILLED = "Killed"  # what a tool prints that SIGKILL ended


class Turns(Net):
    """Whose tool ``program`` answers each call with the next of ``texts``, and then with the last."""

    def __init__(self, program: str, *texts: str) -> None:
        super().__init__()
        self.program, self.texts = program, list(texts)

    def run(self, host: FakeHost, command: Command, timeout_s: float) -> Answer:
        if command.argv[:2] == ("cat", packets.LIMITS[4][0]):
            return 0, "1000\n6168\n", ""
        if command.argv[0] == self.program:
            self.commands.append(command)
            text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
            return (137 if text == KILLED else 0), text, ""
        return super().run(host, command, timeout_s)


NOTHING_CARRIED = ListenerReport(before="", states=(), after="", snmp="")


def probed_path(
    world: World, tmp_path: Path, *, is_shared: bool = False, reports: Sequence[ListenerReport] = ()
) -> ProbedPath:
    """``reports`` are what the xfrm listeners at either end of a protected path tell, one after another."""
    ifaces = {"initiator_iface": "i", "target_iface": "t"}
    path = link_path(world, 0, target=world.host("target", "t"), **ifaces, is_shared=is_shared)
    layers: tuple[EspLayer, ...] = ()
    if reports:
        listeners = XfrmListeners(ends=(FakeXfrmListener(*reports), FakeXfrmListener(*reports)))
        layers = (EspLayer(below=path, algorithms=(), mode=IpsecMode.TRANSPORT, listeners=listeners),)
    raw = tmp_path / "raw"
    raw.mkdir(exist_ok=True)
    return ProbedPath(path=path, raw=raw, journal=Journal(tmp_path / "journal"), layers=layers)


def blank(probe: Probe, ipsec: str = "off") -> ProbeRecord:
    protection = () if ipsec == "off" else (ipsec,)
    facts = {"testbed": TestbedKind.LAB, "link": "wired", "repeat": 1, "order": 0, "status": Status.FAILED}
    return flat.probe_record(run_id="20261121-000000-beef", protection=protection, probe=probe, **facts)


def judge(world: World, tmp_path: Path, probe: Probe, *, ipsec: str = "off", **more: Any) -> ProbeRecord:
    if ipsec != "off":
        more = {"reports": (NOTHING_CARRIED,), **more}
    it = probed_path(world, tmp_path, **more)
    return judged.measure(blank(probe, ipsec), it, observer=Observer(), watch=Watching, folder=tmp_path)


def figures_of(record: ProbeRecord, kind: type[F]) -> F:
    assert isinstance(record.figures, kind), record.reason
    return record.figures


def test_round_trips_are_those_of_single_replies_without_duplicates() -> None:
    found, problems = echo.round_trips(REPLIES, 1.0, 56)
    assert problems == []
    assert (found.sent, found.received, found.lost_percent) == (4, 3, 25.0)
    assert (found.p50_ns, found.p99_ns) == (300_000, 400_000)
    assert (found.min_ns, found.mean_ns, found.max_ns, found.stddev_ns) == (200_000, 300_000, 400_000, 81_000)
    alone, _ = echo.round_trips(REPLIES[REPLIES.index("---") :], 1.0, 56)
    assert (alone.p50_ns, alone.mean_ns) == (None, 300_000), "without single replies there are no percentiles"


BROKEN_PINGS = [
    *(("", "expected a summary of ping"), (ALL_LOST, "none of 4 echo requests was answered")),
    ("\x00\x1b[31mSegmentation fault", "found a text that begins with"),
    (REPLIES[: REPLIES.index("---")], "found a text that ends before it"),
    (REPLIES.replace("0.200/0.300", "0.900/0.300"), "out of order"),
]
BROKEN_IPERF3 = [
    ("", "found an empty text"),
    ('{"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}', "unable to connect"),
    (iperf3_json(1000, 5000), "5000 bytes were received, but only 1000 sent"),
    (iperf3_json(1000, 1000)[:200], "expected"),
]
BROKEN_FLOODS = [("", ""), ("killed", ""), (flood(5, 5).replace(", time 2000ms", ""), "")]


@pytest.mark.parametrize(
    ("tool", "probe", "printed", "reason"),
    [
        *(("ping", Ping(count=4), *broken) for broken in BROKEN_PINGS),
        *(("iperf3", Tcp(duration_s=1), *broken) for broken in BROKEN_IPERF3),
        *(("iperf3", Udp(duration_s=1), *broken) for broken in BROKEN_IPERF3),
        *(("ping", PacketRate(duration_s=1), *broken) for broken in BROKEN_FLOODS),
    ],
)
def test_a_broken_tool_is_invalid(tmp_path: Path, tool: str, probe: Probe, printed: str, reason: str) -> None:
    record = judge(Turns(tool, printed), tmp_path, probe)
    assert record.status is Status.INVALID and record.reason is not None and reason in record.reason
    assert record.figures is None or not isinstance(probe, PacketRate)
    if isinstance(probe, Ping):
        assert record.raw == (("raw/ping.txt",) if printed else ()), "what it printed is kept"
        path = probed_path(Turns(tool, printed), tmp_path).path
        telemetry, why = echo.before_cell(path, protected=False)
        assert telemetry is None and reason in (why or "")


def test_a_shared_link_is_pinged_from_its_own_address_and_nothing_is_claimed_of_ipsec(tmp_path: Path) -> None:
    world = Turns("ping", REPLIES)
    path = probed_path(world, tmp_path, is_shared=True).path
    argv = echo.command(path, 3, 0.002, 56)
    assert argv[-3:] == ["-I", NEAR, FAR] and argv[argv.index("-i") + 1] == "0.002"
    found, why = echo.before_cell(path, protected=True)
    assert (found, world.commands) == (None, [])
    assert why is not None and "only the portal's ports are protected" in why
    record = judge(world, tmp_path, Ping(), ipsec="aes128gcm16", is_shared=True)
    assert record.status is Status.SKIPPED and record.figures is None


def test_a_hop_is_counted_with_a_probe_and_costs_nothing_if_it_is_lost(tmp_path: Path) -> None:
    """Who looks at other programs is not counted: on real machines it is a program, which works there."""
    looks: list[int] = []

    def pinged(hop: Router) -> ProbeRecord:
        class Looking(Watching):
            def __enter__(self) -> Looking:
                looks.append(hop.looks)
                return self

            def end(self) -> None:
                looks.append(hop.looks)

        observer, it = Observer([], [hop], energy=False), probed_path(Turns("ping", REPLIES), tmp_path)
        return judged.measure(blank(Ping(count=4)), it, observer=observer, watch=Looking, folder=tmp_path)

    hops = [Router("hop", boot="b", looks=most) for most in (4, 3)]
    whole, lost = map(pinged, hops)
    assert looks[:2] == [0, hops[0].looks]
    for record, counted in ((whole, ["hop"]), (lost, [])):
        assert record.status is Status.OK, record
        assert [use.host for use in record.interfaces] == ["initiator", "target", *counted]
    assert (whole.interfaces[2].interface, whole.lost_hops) == ("eth0", {})
    assert [use.hosts for use in whole.processors] == [("hop",)]
    assert lost.lost_hops == {"hop": "the hop was lost"}


def test_tcp_and_udp_are_what_the_receiver_counted(tmp_path: Path) -> None:
    record = judge(Turns("iperf3", iperf3_json(1_000_000, 990_000)), tmp_path, Tcp(duration_s=1))
    assert (record.status, record.reason) == (Status.OK, None)
    tcp = figures_of(record, probing.TcpFigures)
    assert (tcp.received_bit_s, tcp.sent_bit_s) == (7_920_000, 8_000_000)
    assert (tcp.retransmits, tcp.rtt_mean_ns) == (3, 250_000)
    article = json.loads(iperf3_json(1000, 900).replace('"TCP"', '"UDP"'))
    article["end"]["streams"] = []
    loss = {"jitter_ms": 0.5, "lost_packets": 10, "packets": 100, "lost_percent": 10}
    article["end"]["sum_received"] |= loss
    record = judge(Turns("iperf3", json.dumps(article)), tmp_path, Udp(duration_s=1))
    udp = figures_of(record, probing.UdpFigures)
    assert (udp.lost, udp.datagrams, udp.jitter_ns) == (10, 100, 500_000)
    # A server that never listens is given up.
    world = Turns("iperf3", iperf3_json(1000, 1000))
    world.listening = False
    record = judge(world, tmp_path, Tcp(duration_s=1))
    assert record.status is Status.FAILED and "in vain" in (record.reason or "")


def test_esp_has_to_cover_what_was_moved_and_counters_that_go_backwards_were_replaced(tmp_path: Path) -> None:
    """Also if an association was replaced meanwhile; and no figure is negative."""

    def esp(sent: int, received: int, ended: int = 0) -> tuple[SaCounters, ...]:
        gone = (association(3, NEAR, FAR, ended, ended=True),) if ended else ()
        return (association(1, NEAR, FAR, sent), association(2, FAR, NEAR, received), *gone)

    backwards = "went backwards, so what they count was replaced or removed"
    few = "expected ESP to carry the 1000000 bytes moved, found only 5000"
    for before, after, carried, reason in (
        (esp(7_000, 7_000), esp(1_500_000, 7_000, ended=507_000), 2_000_000, None),
        (esp(7_000, 7_000), esp(3_750, 7_000, ended=8_250), 5_000, few),
        (esp(9_000_000, 0), esp(7, 0), 0, f"the counters of ESP {backwards}"),
    ):
        reports = [msgspec.structs.replace(NOTHING_CARRIED, states=each) for each in (before, after)]
        world = Turns("iperf3", iperf3_json(1_000_000, 1_000_000))
        record = judge(world, tmp_path, Tcp(duration_s=1), ipsec="aes128gcm16", reports=reports)
        status = Status.INVALID if reason else Status.OK
        assert (record.status, record.reason, record.protected_bytes) == (status, reason, carried)

    class Gone(Turns):
        def text_of(self, path: str) -> str:
            is_over = path == "/proc/net/dev" and any(c.argv[0] == self.program for c in self.commands)
            return "" if is_over else super().text_of(path)

    record = judge(Gone("iperf3", iperf3_json(1000, 1000)), tmp_path, Tcp(duration_s=1))
    ends = (
        f"the counters of the {end} {backwards}"
        for end in ("initiator's interface i", "target's interface t")
    )
    assert (record.status, record.reason) == (Status.INVALID, "; ".join(ends))
    assert out_of_range(record) is None
    forwarded = judge(Gone("bash", hping(5000, 0)), tmp_path, Forwarding(duration_s=2))
    assert forwarded.status is not Status.OK and out_of_range(forwarded) is None


def test_floods_are_added_until_their_sum_grows_no_more(tmp_path: Path) -> None:
    # One: 1000/s; two: 800/s each; three: 550/s each, which is 3 % more than two and no growth.
    texts = [flood(2000, 2000), *[flood(1600, 1600)] * 2, *[flood(1100, 1100)] * 3]
    record = judge(Turns("ping", *texts), tmp_path, PacketRate(duration_s=2))
    figures = figures_of(record, probing.PacketRateFigures)
    assert [step.at_once for step in figures.steps] == [1, 2, 3]
    assert (figures.at_once, figures.replies_per_s, figures.packets_per_s) == (2, 1600, 3200)
    assert figures.is_saturated and record.warnings == ()
    # With losses twice the answers is not the rate.
    record = judge(Turns("ping", flood(2000, 1900)), tmp_path, PacketRate(duration_s=2, most_at_once=1))
    figures = figures_of(record, probing.PacketRateFigures)
    assert (figures.packets_per_s, figures.replies_per_s) == (None, 950)
    assert "5 % of the requests were lost" in record.warnings[0]
    assert "still grew" in record.warnings[1]


def test_hping3_shortens_its_gap_only_while_answers_grow(tmp_path: Path) -> None:
    def figures(*texts: str, **more: Any) -> tuple[ProbeRecord, probing.PacketRateFigures]:
        probe = PacketRate(tool=Flood.HPING3, duration_s=2, **more)
        record = judge(Turns("bash", *texts), tmp_path, probe)
        return record, figures_of(record, probing.PacketRateFigures)

    # At 1000, 500, 200 us; the third gap starves the receiver, and two at the second bring no more.
    _, found = figures(hping(2000, 1999), hping(4000, 3999), hping(9000, 100), hping(2000, 1999))
    steps = [(step.gap_us, step.at_once) for step in found.steps]
    assert steps == [(1000, 1), (500, 1), (200, 1), (500, 2)]
    assert found.packets_per_s == pytest.approx(3999)
    # One that starves itself was asked for too much.
    record, found = figures(hping(2000, 1999), KILLED, most_at_once=1)
    assert [(step.gap_us, step.received) for step in found.steps] == [(1000, 1999), (500, 0)]
    assert found.replies_per_s == 999.5 and "every 500 us starved itself" in record.warnings[0]
    at_first = judge(Turns("bash", KILLED), tmp_path, PacketRate(tool=Flood.HPING3, duration_s=2))
    assert (at_first.status, at_first.reason) == (Status.INVALID, "no echo request was answered")
    world = Turns("bash", hping(10, 10))
    through_ipsec = judge(world, tmp_path, PacketRate(tool=Flood.HPING3), ipsec="aes128gcm16")
    assert through_ipsec.status is Status.SKIPPED and "no replies" in (through_ipsec.reason or "")


def test_limits_on_icmp_are_lifted_and_put_back(tmp_path: Path) -> None:
    world = Net(answers=[(("cat", *packets.LIMITS[4]), (0, "1000\n6168\n", ""))])
    with packets.unlimited(Journal(tmp_path / "journal"), world.host("target", "t")):
        lifted = [c for c in world.commands if c.argv[0] == "tee"]
    restored = [c for c in world.commands if c.argv[0] == "tee"][len(lifted) :]
    assert [(c.argv[1], c.input) for c in lifted] == [(path, "0") for path in packets.LIMITS[4]]
    was = zip(packets.LIMITS[4], ("1000", "6168"), strict=True)
    assert {(c.argv[1], c.input) for c in restored} == set(was)
    # What is forwarded is counted on the far side.
    record = judge(Turns("bash", hping(5000, 0)), tmp_path, Forwarding(duration_s=2))
    figures = figures_of(record, probing.ForwardingFigures)
    assert figures.arrived_per_s > 0 and figures.lost_percent == 0


BINS = '"bins": {"100": 2, "301": 1}}'
GOOD = f'{{"round_trips": 3, "lost": 1, "total_ns": 600, "min_ns": 99, "max_ns": 300, {BINS}'


def test_round_trips_of_udp_and_a_broken_program() -> None:
    outcome = datagrams.understand(GOOD, "", UdpLatency(count=4, payload_bytes=64))
    figures = outcome.figures
    assert isinstance(figures, probing.UdpLatencyFigures) and outcome.reasons == []
    assert (figures.mean_ns, figures.p50_ns, figures.p99_ns) == (200, 100, 301)
    assert outcome.moved_bytes == 2 * 3 * 64
    assert outcome.warnings == ["1 of 4 datagrams did not come back"]
    for printed, reason in (
        *(("", "expected figures"), ("Killed", "expected figures"), (GOOD[:50], "expected figures")),
        (GOOD.replace('"100": 2', '"100": 9'), "round trips in the program's bins, found 10"),
        ('{"round_trips": 0, "lost": 5, "total_ns": 0, "bins": {}}', "no datagram came back"),
    ):
        (found,) = datagrams.understand(printed, "", UdpLatency()).reasons
        assert reason in found


@pytest.mark.parametrize(
    ("probe", "program"),
    [(Ping(), "ping"), (Tcp(), "iperf3"), (PacketRate(tool=Flood.HPING3), "hping3"), (UdpLatency(), "cc")],
)
def test_a_missing_program_skips_its_probe(tmp_path: Path, probe: Probe, program: str) -> None:
    missing = ("sh", "-c", 'command -v "$0"', program)
    world = Net(answers=[(missing, (127, "", "")), (("test", "-x"), (1, "", ""))])
    record = judge(world, tmp_path, probe)
    assert record.status is Status.SKIPPED and f"no program {program}" in (record.reason or "")
    assert f"apt-get install --no-install-recommends {PACKAGES[program]}" in (record.reason or "")
    if program == "cc":
        with pytest.raises(RequirementError) as without:
            datagrams.build(world.host("target"))
        assert "gcc" in (without.value.hint or "")


def test_every_shipped_profile_can_be_planned_and_a_user_s_is_read_strictly(tmp_path: Path) -> None:
    assert probe_plan.names() == [
        "iscsi-ipsec",
        "openflow",
        "openflow-tenth",
        "packet-rate",
        "pppoe",
        "switches",
    ]
    for name in probe_plan.names():
        profile = probe_plan.load_profile(name)
        request = RunRequest(links=profile.links, ipsec=profile.ipsec, repeats=profile.repeats)
        plan = probe_plan.make_plan(request, profile.probe, name)
        assert plan.probing == profile.probe and plan.jobs == () and not plan.probes
        keys = [question.key for question in questions(plan)]
        assert len(set(keys)) == len(keys) == len(plan.columns) * len(profile.probe)
    file, text = tmp_path / "mine.toml", 'title = "Mine"\n[[probe]]\ntype = "ping"\ncount = 3\n'
    file.write_text(text.replace("count", "counts"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.toml"):
        probe_plan.load_profile(str(file))
    file.write_text(text, encoding="utf-8")
    assert probe_plan.load_profile(str(file)).probe == (Ping(count=3),)
    # A user's profile is read strictly.


def test_parameters_that_no_tool_could_act_upon_are_refused_and_rates_are_in_powers_of_1000() -> None:
    probes: tuple[tuple[Probe, str], ...] = (
        *((Ping(count=0), "count: expected 1"), (Ping(interval_s=float("nan")), "interval_s: expected")),
        *((Ping(count=100_000, interval_s=60), "count x interval_s"), (Udp(rate_bit_s=0), "rate_bit_s")),
        *((Tcp(duration_s=0), "duration_s: expected 1"), (PacketRate(most_at_once=0), "most_at_once")),
        *((UdpLatency(payload_bytes=size), "payload_bytes: expected 8") for size in (7, 65_508)),
    )
    for probe, message in probes:
        with pytest.raises(UsageError, match=message):
            ProbeRequest().asked(ProbeProfile(title="", probe=(probe,)))
    rates = {"100M": 10**8, "1.5g": 1_500_000_000, "64000": 64_000, "10K": 10_000}
    for text, rate_bit_s in rates.items():
        (asked,) = ProbeRequest(probes=("udp",), udp_rate=text).asked(None)
        assert isinstance(asked, Udp) and asked.rate_bit_s == rate_bit_s
    for text in ("", "fast", "-1M", "1e9", "10Mbit", "nan"):
        with pytest.raises(UsageError, match="expected a rate in bit/s"):
            probe_plan.parse_rate(text)
    # Probes are named and need a network.
    with pytest.raises(UsageError, match="there is no probe 'pong'"):
        ProbeRequest(probes=("pong",)).asked(None)
    with pytest.raises(UsageError, match="link local has none"):
        probe_plan.make_plan(RunRequest(links=("local",)), [Ping()], "probes")
    with pytest.raises(UsageError, match="two probes have the name ping-1s"):
        probe_plan.make_plan(RunRequest(links=("wired",)), [Ping(), Ping(count=3)], "probes")


GIGABIT = 1_000_000_000


def test_a_probe_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packet is imitated: 10 Gbit/s for 10 seconds took a quarter of an hour."""
    monkeypatch.setattr("harness.planning.plan.kernel.custom_kernel", lambda: None)
    cases: tuple[tuple[str, Probe, str], ...] = (
        ("wired", Udp(rate_bit_s=10 * GIGABIT), "8.3 million for udp-10000m over wired: some 20 min"),
        ("wired", Udp(duration_s=3, rate_bit_s=GIGABIT, payload_bytes=64), "5.9 million"),
        ("10g", Tcp(duration_s=10), "8.3 million for tcp over 10g"),
        ("10g", Ping(count=100, interval_s=0.05, loaded=True), "5.8 million"),
        ("wired", Tcp(duration_s=10), ""),
        ("wired:unshaped", Tcp(duration_s=10), ""),
        ("wired", Udp(duration_s=1, rate_bit_s=10 * GIGABIT), ""),
        ("10g", Ping(count=100, interval_s=0.05), ""),
    )
    for link, probe, millions in cases:
        request = RunRequest(links=(link,), virtual_time=not millions)
        assert probe_plan.make_plan(request, [probe], "probes").probing == (probe,)
        if millions:
            with pytest.raises(UsageError, match=f"each packet is simulated, found {millions}") as refused:
                probe_plan.make_plan(RunRequest(links=(link,), virtual_time=True), [probe], "probes")
            assert "--duration 1s" in (refused.value.hint or "")
    # In virtual time probes are short, and packets count.
    probes = ProbeRequest(probes=("tcp", "udp", "ping"), virtual_time=True).asked(None)
    assert [probe.name for probe in probes[:2]] == ["tcp", "udp-1000m"]
    assert [probe.duration_s for probe in probes if isinstance(probe, Tcp | Udp)] == [1, 1]
    assert probes[2:] == ProbeRequest(probes=("ping",)).asked(None)
    request = RunRequest(links=("wired",), virtual_time=True, repeats=1)
    made = probe_plan.make_plan(request, [Tcp(duration_s=10)], "probes")
    assert probe_plan.estimate_s(made) == pytest.approx(10e9 / 8 / 1500 / 7000)
    real = probe_plan.make_plan(RunRequest(links=("wired",), repeats=1), [Tcp(duration_s=10)], "probes")
    assert probe_plan.estimate_s(real) == 11.0
    with pytest.raises(UsageError, match="there is no profile of probes"):
        probe_plan.load_profile("switch")


def test_records_come_back_as_they_were_kept_and_damage_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    found, _ = echo.round_trips(REPLIES, 1.0, 56)
    figures = probing.PingFigures(round_trips=found)
    record = flat.changed(blank(Ping()), figures=figures, status=Status.OK, clock=Clock.VIRTUAL)
    file = folder.save_probe(record)
    assert file.name == "wired.ping-1s.r1.json" and folder.load_probes() == [record]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"ping-1s\.r1\.json is not a readable record of a probe"):
        folder.load_probes()
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, schema=99)))
    with pytest.raises(UsageError, match="a later version"):
        folder.load_probes()


def test_of_emulated_links_round_trips_are_measured_in_the_first_rounds(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(teardown.PLAN, probes=True, repeats=4)
    world = World(answers=[(("/usr/bin/python3", "-I", "-S", "-"), (1, "", "no AF_ALG"))])
    outcome = teardown.measure(world, tmp_path / "run", plan)
    said: dict[int, set[str | None]] = {}
    for record in outcome.records:
        if record.column.link != "local" and record.telemetry is not None:
            said.setdefault(record.repeat, set()).add(record.telemetry.no_round_trips)
    assert said.pop(4) == {"they were measured in the first 3 rounds"}
    assert {*said} == {1, 2, 3}
    assert all("summary of ping" in str(reason) for reasons in said.values() for reason in reasons)


def test_a_run_whose_probes_all_fail_measures_its_cells_nonetheless(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(teardown.PLAN, probes=True)
    world = World(answers=[(("/usr/bin/python3", "-I", "-S", "-"), (1, "", "no AF_ALG"))])
    outcome = teardown.measure(world, tmp_path / "run", plan)
    assert outcome.error is None and outcome.journal.leaks == []
    assert {record.status for record in outcome.records} == {Status.OK}
    for record in outcome.records:
        assert record.telemetry is not None and record.telemetry.round_trips is None
        if record.column.link != "local":
            assert record.telemetry.no_round_trips is not None
            assert "a summary of ping" in record.telemetry.no_round_trips
    made = outcome.folder.load_probes()
    probed, measured = ({record.column.link for record in records} for records in (made, outcome.records))
    assert probed == measured - {"local"}
    assert {record.probe.name for record in made} == {"tcp", "cipher"}
    assert all(record.status is not Status.OK and record.reason for record in made)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("use", list(probing.SocketUse))
def test_the_c_program_measures_on_the_loopback(tmp_path: Path, use: probing.SocketUse) -> None:
    program = str(tmp_path / "round_trip")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, str(datagrams.SOURCE)], check=True)
    with socket(type=SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    argv = [program, "measure", "127.0.0.1", port, "-", "1024", "500", use, "60"]
    echoing = subprocess.Popen([program, "echo", "127.0.0.1", port])
    try:
        listening = f":{int(port):04X} "  # proc(5), net/udp
        await_condition(lambda: listening in Path("/proc/net/udp").read_text(), deadline_s=60, what="echo")
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    finally:
        echoing.kill()
        echoing.wait()
    outcome = datagrams.understand(done.stdout, done.stderr, UdpLatency(count=500, socket=use))
    figures = outcome.figures
    assert isinstance(figures, probing.UdpLatencyFigures) and outcome.reasons == []
    assert figures.round_trips + figures.lost == 500 and figures.round_trips > 490
    assert 0 < (figures.min_ns or 0) <= (figures.mean_ns or 0) <= (figures.max_ns or 0)
    assert figures.p50_ns is not None and figures.histogram.count == figures.round_trips
    # The bins' middles are within 1/128 of what was measured.
    mean_ns = sum(ns * count for ns, count in figures.histogram.bins.items()) / figures.histogram.count
    assert mean_ns == pytest.approx(figures.mean_ns, rel=1 / 64)
    alone = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert datagrams.understand(alone.stdout, "", UdpLatency()).reasons == ["no datagram came back"]


OPERATION = {"part": "kernel", "per": "system call", "ns": 300, "low": 290.0, "high": 320.0, "what": "x"}
MACHINE = {"processor": "a processor", "cores": 4, "kernel": "6.1", "governor": "performance"}
TIMES = [
    {"aead": aead, "operation": operation, "bytes": size, "ns": 1000.0 * (2 - aead) + size * (1 - aead)}
    for aead in (0, 1)
    for operation in ("encrypt", "decrypt")
    for size in (64, 1408)
]
ALL_TIMES = {"processors": 4, "turns": 500, "stretch": 1.5, "times": TIMES}


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, str] | None) -> list[Sequence[str]]:
    """Machines that answer so, the last answer again and again; returns what is asked."""
    asked: list[Sequence[str]] = []

    def asked_once(argv: Sequence[str], text: str, *, within_s: float) -> tuple[str, str] | None:
        assert text and within_s > 0
        asked.append(argv)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(remote, "asked_once", asked_once)
    return asked


def test_operations_and_ciphers_are_costs_of_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps({**MACHINE, "operations": [OPERATION]})
    asked = answering(monkeypatch, (whole, ""), (json.dumps(ALL_TIMES), ""))
    found = by_itself.measure(parse_address("ssh://nas", "target"))
    assert asked[0][0] == "ssh" and "sudo" not in " ".join(asked[0])
    assert (found.processor, found.cores, found.kernel, found.governor) == (*MACHINE.values(),)
    known = found.at(WhichEnd.NONE)
    assert known[Operation("kernel", Per.CALL)].ns == 300
    of_byte = known[Operation("aes256gcm16", Per.BYTE, "encrypt")]
    assert (of_byte.ns, of_byte.high) == (1.0, 1.5)
    assert known[Operation("aes256gcm16", Per.PACKET, "decrypt")].ns == pytest.approx(1000, rel=0.01)
    # A kernel without ciphers has no CPU costs of these.
    answering(monkeypatch, (whole, ""), ("", "rfc4106(gcm(aes)): No such file or directory"))
    assert len(by_itself.measure(parse_address("local", "target")).costs) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "found no answer"),
        (("", "Permission denied (publickey).\x1b[2J"), "Permission denied"),
        (("[]", ""), "expected the times"),
        ((json.dumps({**MACHINE, "operations": [{**OPERATION, "low": 301}]}), ""), "low <= ns <= high"),
        ((json.dumps({**MACHINE, "operations": [{**OPERATION, "per": "mile"}]}), ""), "expected the times"),
    ],
)
def test_other_answers_are_refused_in_a_sentence(
    answer: tuple[str, str] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(RequirementError) as refused:
        by_itself.measure(parse_address("ssh://nas", "target"))
    assert said in refused.value.message and "\x1b" not in refused.value.message and refused.value.hint
