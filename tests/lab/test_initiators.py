"""Several initiators of one target in one kernel: each has its own session, proof and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.analysis.stats import fairness
from harness.model import KERNEL_TARGETS, Record, Status
from tests.lab.cli import measure, well

STAYS_UP = "debian"
RANDOM = ("--workload", "rand-read-4k", "--size", "16M", "--link", "wired")


def require_per_host(record: Record) -> None:
    """Each initiator has moved bytes of its own, which its own proof covers."""
    assert len(record.clients) == (record.column.initiators if record.column.initiators > 1 else 0)
    for part in record.clients:
        assert part.read is not None and part.proof is not None and part.status is Status.OK, part
        moved = part.proof.protected_bytes if record.column.protection else part.proof.link_bytes_initiator
        assert moved >= part.read.bytes
    assert len({part.initiator for part in record.clients}) == len(record.clients)


@pytest.mark.lab
def test_three_initiators_on_debian_s_kernel(tmp_path: Path) -> None:
    found = measure(tmp_path, *RANDOM, "--lab-initiators", "3", "--ipsec", "both")
    well(found.done)
    assert sorted(record.column.initiators for record in found.records.values()) == [1, 1, 2, 2, 3, 3]
    for record in found.records.values():
        require_per_host(record)


@pytest.mark.lab
@pytest.mark.custom_kernel
@pytest.mark.parametrize(
    ("disk", "transports", "protections"),
    [
        # A square of transports and protections: four initiators of each have ten paths.
        ("sata-ssd", ("iscsi",), ("off",)),
        ("sata-ssd", KERNEL_TARGETS[-1:], ("wireguard",)),
        ("hdd-7200", KERNEL_TARGETS, ("off",)),
        pytest.param("sata-ssd", KERNEL_TARGETS, ("off", "wireguard"), marks=pytest.mark.long),
        pytest.param("hdd-7200", KERNEL_TARGETS, ("off", "wireguard"), marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_initiators_share_one_modelled_disk(
    tmp_path: Path, disk: str, transports: Sequence[str], protections: Sequence[str]
) -> None:
    found = measure(
        tmp_path,
        *(*RANDOM, "--virtual-time", "--disk", disk, "--lab-initiators", "4", "--runtime", "0.1s"),
        *(word for name in transports for word in ("--transport", name)),
        *(word for name in protections for word in ("--protect", name)),
    )
    well(found.done)
    total = {}
    for record in found.records.values():
        require_per_host(record)
        assert record.read is not None
        each = [part.read.bytes_per_s for part in record.clients if part.read is not None]
        assert not each or fairness(each) > 0.9
        total[record.column] = record.read.bytes_per_s
    alone = {(c.protection, c.transport): value for c, value in total.items() if c.initiators == 1}
    for column, value in total.items():
        one = alone[column.protection, column.transport]
        # Thirteen chips have room for all four; one head has not.
        if disk == "sata-ssd":
            assert value == pytest.approx(column.initiators * one, rel=0.02)
        else:
            assert value < 1.5 * one
