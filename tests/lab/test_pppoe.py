"""Links through PPPoE: the disk over them, how the session comes up, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cli import Measured, run_inside
from tests.lab.over_paths import (
    WORKLOAD,
    assert_measured,
    latency_us,
    measure_in_virtual_time,
    measure_over,
    require_packages,
)

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.fixture(scope="module", autouse=True)
def packages_are_installed() -> None:
    require_packages("pppoe")


@pytest.fixture(scope="module")
def over_each(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure_over(tmp_path_factory.mktemp("pppoe"), "pppoe")


def test_the_disk_is_measured_without_and_with_ipsec(over_each: Measured) -> None:
    assert_measured(over_each, "pppoe")


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


@pytest.mark.long
def test_what_does_not_come_up_says_why() -> None:
    said = ("all of them failed as they should", "pppoe:pap came up, proved by PAP")
    run_inside("inside.pppoe_that_fails", said=said)


@pytest.mark.long
@pytest.mark.custom_kernel
def test_pppoe_is_slower_than_routers_alone(tmp_path: Path) -> None:
    measured = measure_in_virtual_time(tmp_path, WORKLOAD, "routed", "pppoe")
    routed, over_pppoe = (latency_us(measured, name, WORKLOAD) for name in ("routed-2", "pppoe"))
    # 8 bytes of each packet are its headers', so more packets have to go.
    assert 1.002 < over_pppoe / routed < 1.02
