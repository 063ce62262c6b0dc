"""Links through an OpenFlow switch: the disk over them, their flows, and what the published article had."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.parse import references
from harness.parse.profiles import load_link
from harness.results.store import RunFolder
from harness.table.views import View
from harness.table.views import build as build_view
from tests.lab.cli import Measured, harness, measure, only_run, run_inside, well
from tests.lab.over_paths import (
    assert_measured,
    latency_us,
    measure_in_virtual_time,
    measure_over,
    require_packages,
)
from tests.lab.test_ipv6 import WRITES, assert_proved

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]

LINKS = ("openflow:flows", "openflow:controller=fast-ethernet:cpu=50")
NAMES = ("openflow-flows", "openflow-controller-fast-ethernet-cpu50")


@pytest.fixture(scope="module", autouse=True)
def packages_are_installed() -> None:
    require_packages("openflow")


@pytest.fixture(scope="module")
def over_each(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure_over(tmp_path_factory.mktemp("openflow"), *LINKS)


def test_the_disk_is_measured_without_and_with_ipsec(over_each: Measured) -> None:
    assert_measured(over_each, *NAMES)


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
def test_it_carries_ipv6_in_tunnels(tmp_path: Path) -> None:
    words = ("--ip", "6", "--ipsec", "on", "--ipsec-mode", "tunnel", "--auth", "cert")
    measured = measure(tmp_path, *words, "--link=openflow:flows", *WRITES)
    assert_proved(measured, "openflow-flows-ip6+aes128gcm16.seq-write-256k.r1")


@pytest.mark.long
def test_what_does_not_come_up_says_why() -> None:
    run_inside("inside.openflow_that_fails", said=("it failed as it should",))


@pytest.mark.custom_kernel
def test_an_openflow_switch_sends_each_frame_at_the_links_rate(tmp_path: Path) -> None:
    """Open vSwitch removed the queues of its ports, so that it passed frames on at once."""
    virtual = measure_in_virtual_time(tmp_path, "rand-read-4k", "openflow:flows", "fast-ethernet")
    through, straight = (latency_us(virtual, link) for link in ("openflow-flows", "fast-ethernet"))
    delay_us = 2 * load_link("fast-ethernet").delay_us
    assert through - (straight - delay_us) == pytest.approx((138 + 1538) * 80e-3, rel=0.03)


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
