"""Links that are paths: the disk over switches, routers, PPPoE and OpenFlow, and what each of them costs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest

from harness.hosts import packages
from harness.hosts.packages import PATHS
from harness.model import Record, Status
from harness.parse import references
from harness.parse.profiles import load_link
from harness.results.store import RunFolder
from harness.table.views import View
from harness.table.views import build as build_view
from tests.lab.cli import Measured, harness, lacks, measure, only_run, run_inside, well

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]

LINKS = ("routed:1", "pppoe", "openflow:flows", "openflow:controller=fast-ethernet:cpu=50")
NAMES = ("routed-1", "pppoe", "openflow-flows", "openflow-controller-fast-ethernet-cpu50")
WORKLOAD = "seq-read-256k"


@pytest.fixture(scope="module", autouse=True)
def packages_are_installed() -> None:
    if absent := [package.name for package in packages.listed(PATHS) if not package.installed]:
        lacks(f"packages are missing: {', '.join(absent)}")


@pytest.fixture(scope="module")
def over_each(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The disk over one path of each kind, without and with IPsec, in one boot of Debian's kernel."""
    words = [*(f"--link={link}" for link in LINKS), "--ipsec=both", f"--workload={WORKLOAD}"]
    return measure(tmp_path_factory.mktemp("paths"), *words, "--lab-kernel=debian", "--size=16M")


def test_the_disk_is_measured_over_every_path_without_and_with_ipsec(over_each: Measured) -> None:
    keys = (f"{name}{esp}.{WORKLOAD}.r1" for name in NAMES for esp in ("", "+aes128gcm16"))
    for record in over_each.ok(*keys).values():
        assert record.read is not None and record.proof is not None
        if record.column.ipsec != "off":
            assert record.proof.protected_bytes >= record.read.bytes > 0
            assert record.proof.cleartext_segments == 0


def test_the_table_has_them_side_by_side(over_each: Measured) -> None:
    cells = over_each.table()["cells"]
    found = {(cell["column"]["link"], *cell["column"]["protection"]) for cell in cells}
    assert found == {(name, *protection) for name in NAMES for protection in ((), ("aes128gcm16",))}
    assert all(cell["value"] > 0 for cell in cells)


def test_a_session_is_of_the_kernels_and_its_secret_is_nowhere(over_each: Measured) -> None:
    folder = over_each.folder / "columns" / "pppoe"
    client = (folder / "pppd-client.log").read_text(encoding="utf-8", errors="replace")
    for said in ("Plugin rp-pppoe.so loaded", "auth chap MD5", "CHAP authentication succeeded", "<mru 1492>"):
        assert said in client
    assert "198.18." in (folder / "pppd-concentrator.log").read_text(encoding="utf-8", errors="replace")
    (link,) = over_each.environment["column pppoe"]["link"]
    assert link["pppoe_authentication"] == "chap MD5"
    logs = [file.read_bytes() for file in over_each.folder.rglob("*") if file.is_file()]
    assert not any(b'concentrator "' in text for text in logs), "a line of chap-secrets"


def test_only_without_flows_is_each_packet_the_controllers(over_each: Measured) -> None:
    def packets(name: str) -> Counter[str]:
        """How many packets met with which action."""
        text = (over_each.folder / "columns" / name / "flows.txt").read_text(encoding="utf-8")
        found = Counter[str]()
        for count, action in re.findall(r"n_packets=(\d+).* actions=(\w+)", text):
            found[action] += int(count)
        return found

    with_flows, without = packets("openflow-flows"), packets("openflow-controller-fast-ethernet-cpu50")
    assert with_flows["FLOOD"] > 50 * with_flows["CONTROLLER"]
    # What matches nothing goes to the controller, by the one flow that there is.
    assert {*without} == {"CONTROLLER"} and without["CONTROLLER"] > 100


@pytest.mark.long
def test_what_does_not_come_up_says_why() -> None:
    said = ("all of them failed as they should", "pppoe:pap came up, proved by PAP")
    run_inside("inside.paths_that_fail", said=said)


def measure_in_virtual_time(results: Path, workload: str, *links: str) -> Measured:
    """Where the processor costs nothing, so that the paths differ in what they are."""
    words = [*(f"--link={link}" for link in links), "--ipsec=off", f"--workload={workload}"]
    words += ["--virtual-time", "--disk=ram", "--runtime=0.1s", "--size=16M"]
    return measure(results, *words)


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    switches = (f"switched:{count}" for count in range(5))
    links = (*switches, "openflow:flows", "fast-ethernet")
    return measure_in_virtual_time(tmp_path_factory.mktemp("virtual"), "rand-read-4k", *links)


def latency_us(measured: Measured, link: str, workload: str = "rand-read-4k") -> float:
    record: Record = measured.records[f"{link}.{workload}.r1"]
    assert record.status is Status.OK, record.reason
    assert record.read is not None and record.read.latency.mean_ns is not None
    return record.read.latency.mean_ns / 1000


@pytest.mark.custom_kernel
def test_each_switch_adds_the_same(virtual: Measured) -> None:
    times = [latency_us(virtual, f"switched-{count}") for count in range(5)]
    growth = [after - before for before, after in itertools.pairwise(times)]
    assert growth == pytest.approx([mean(growth)] * 4, rel=0.01)
    # Twice 7 us of the switch's own; a command of 48 bytes and a full frame are sent once more.
    assert mean(growth) == pytest.approx(2 * 7 + (138 + 1538) * 8e-3, rel=0.01)


@pytest.mark.custom_kernel
def test_an_openflow_switch_sends_each_frame_at_the_links_rate(virtual: Measured) -> None:
    """Open vSwitch removed the queues of its ports, so that it passed frames on at once."""
    through, straight = (latency_us(virtual, link) for link in ("openflow-flows", "fast-ethernet"))
    delay_us = 2 * load_link("fast-ethernet").delay_us
    assert through - (straight - delay_us) == pytest.approx((138 + 1538) * 80e-3, rel=0.03)


@pytest.mark.long
@pytest.mark.custom_kernel
def test_pppoe_is_slower_than_routers_alone(tmp_path: Path) -> None:
    measured = measure_in_virtual_time(tmp_path, WORKLOAD, "routed", "pppoe")
    routed, over_pppoe = (latency_us(measured, name, WORKLOAD) for name in ("routed-2", "pppoe"))
    # 8 bytes of each packet are its headers', so more packets have to go.
    assert 1.002 < over_pppoe / routed < 1.02


Compared = dict[str, tuple[float, float]]
TCP, UDP = "tcp_received_mbit_s", "udp_received_mbit_s"
FAST, SLOW = "openflow:controller", "openflow:controller=fast-ethernet"


def of_openflow_article(
    results: Path, links: Sequence[str], *words: str, at_a_tenth: bool = False
) -> dict[str, Compared]:
    """For each of the article's links, by figure, what it has in virtual time and in the article."""
    reference = references.load_path_reference("openflow")
    ours = {link: reference.slower.links[link] if at_a_tenth else link for link in links}
    profile = "openflow-tenth" if at_a_tenth else "openflow"
    words = (*words, *(f"--link={link}" for link in ours.values()))
    well(harness("probe", "--virtual-time", f"--profile={profile}", f"--results={results}", *words))
    records = RunFolder(only_run(results)).load_probes()
    published = {row.link: row.values for row in reference.row}
    found = {}
    for link in links:
        name = load_link(ours[link]).name
        (row,) = build_view(View.OPENFLOW, [record for record in records if record.column.link == name]).rows
        times = reference.slower.by if at_a_tenth else 1.0
        found[link] = {
            key: (entry.value * (times if key.endswith("mbit_s") else 1.0), published[link][key])
            for key, entry in row.entries.items()
            if entry.value is not None
        }
    return found


def assert_alike(compared: Compared) -> None:
    for key in (TCP, UDP):
        ours, article = compared[key]
        assert ours == pytest.approx(article, rel=0.05), key


@pytest.mark.custom_kernel
def test_openflow_article_is_explained_by_its_links_and_by_openflow(tmp_path: Path) -> None:
    """A second of each is within 5 % of the article's ten, but for what is lost once queues are full."""
    found = of_openflow_article(tmp_path, (FAST, SLOW), "--duration=1s", "--count=1")
    for link in (FAST, SLOW):
        assert_alike(found[link])


@pytest.mark.long
@pytest.mark.custom_kernel
def test_ten_seconds_lose_some_of_what_openflow_article_lost_and_a_slow_switch_costs_tcp(
    tmp_path: Path,
) -> None:
    """At a tenth of each rate, which is as long but has a tenth of the packets: so what the connection to the
    controller keeps, 400 to 600 of them, is ten times as large a part of those that are too many."""
    slower = f"{SLOW}:cpu=50"
    found = of_openflow_article(tmp_path, (FAST, SLOW, slower), at_a_tenth=True)
    for link in (FAST, SLOW, slower):
        assert_alike(found[link])
    assert found[FAST]["udp_lost_percent"] == (0, 0)
    for link in (SLOW, slower):
        ours, article = found[link]["udp_lost_percent"]
        assert 0.5 < ours <= article
