"""What tests of links with hops have in common."""

from __future__ import annotations

from pathlib import Path

from harness.hosts import packages
from harness.hosts.packages import PATHS
from harness.model import Record, Status
from tests.lab.cli import Measured, lacks, measure

WORKLOAD = "seq-read-256k"


def require_packages(kind: str) -> None:
    """Those of a kind of hops."""
    needed = [each for each in packages.listed(PATHS) if each.purpose.startswith(f"{kind}:")]
    if absent := [package.name for package in needed if not package.installed]:
        lacks(f"packages are missing: {', '.join(absent)}")


def measure_over(results: Path, *links: str) -> Measured:
    """The disk over these links, without and with IPsec, in one boot of Debian's kernel."""
    words = [*(f"--link={link}" for link in links), "--ipsec=both", f"--workload={WORKLOAD}"]
    return measure(results, *words, "--lab-kernel=debian", "--size=16M")


def assert_measured(over_each: Measured, *names: str) -> None:
    """Over every path, and the table has them side by side."""
    keys = (f"{name}{esp}.{WORKLOAD}.r1" for name in names for esp in ("", "+aes128gcm16"))
    for record in over_each.ok(*keys).values():
        assert record.read is not None and record.proof is not None
        if record.column.ipsec != "off":
            assert record.proof.protected_bytes >= record.read.bytes > 0
            assert record.proof.cleartext_segments == 0
    cells = over_each.table()["cells"]
    found = {(cell["column"]["link"], *cell["column"]["protection"]) for cell in cells}
    assert found == {(name, *protection) for name in names for protection in ((), ("aes128gcm16",))}
    assert all(cell["value"] > 0 for cell in cells)


def measure_in_virtual_time(results: Path, workload: str, *links: str) -> Measured:
    """Where the processor costs nothing, so that the paths differ in what they are."""
    words = [*(f"--link={link}" for link in links), "--ipsec=off", f"--workload={workload}"]
    words += ["--virtual-time", "--disk=ram", "--runtime=0.1s", "--size=16M"]
    return measure(results, *words)


def latency_us(measured: Measured, link: str, workload: str = "rand-read-4k") -> float:
    record: Record = measured.records[f"{link}.{workload}.r1"]
    assert record.status is Status.OK, record.reason
    assert record.read is not None and record.read.latency.mean_ns is not None
    return record.read.latency.mean_ns / 1000
