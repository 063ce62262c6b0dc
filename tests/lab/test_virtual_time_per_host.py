"""Kernels per host that share one virtual time: the figures of one kernel, and one end for all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.model import Record, Status
from harness.model.errors import RequirementError
from harness.testbeds.lab.per_host import management
from tests.lab.cli import Measured, descendants, lacks, measure, running, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

SHORT = ("--virtual-time", "--runtime", "0.1s", "--size", "16M")
WORDS = (
    *(*SHORT, "--link", "local", "--link", "wired", "--ipsec", "both"),
    *("--workload", "rand-read-4k", "--workload", "seq-write-256k"),
)
PER_HOST = ("--kernels", "per-host")
CELLS = 6
MEAN_TOLERANCE = 5e-5
"""Each kernel reads its clock a little more or less often than one kernel does: by up to 1e-5 here."""

END_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def ssh_is_there() -> None:
    try:
        management.require_ssh()
    except RequirementError as error:
        lacks(str(error))


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(tmp_path_factory.mktemp("per-host"), *WORDS, *PER_HOST)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(tmp_path_factory.mktemp("together"), *WORDS)


def test_kernels_per_host_measure_what_one_kernel_does(apart: Measured, together: Measured) -> None:
    assert len(apart.records) == CELLS, apart.done
    assert apart.records.keys() == together.records.keys()
    for key, record in apart.records.items():
        other = together.records[key]
        assert (record.status, record.reason) == (other.status, other.reason) == (Status.OK, None), key
        for mine, its in ((record.read, other.read), (record.write, other.write)):
            assert (mine is None) == (its is None), key
            if mine is not None and its is not None:
                assert (mine.bytes, mine.ios) == (its.bytes, its.ios), key
                assert mine.latency.mean_ns == pytest.approx(its.latency.mean_ns, rel=MEAN_TOLERANCE), key


def on_link(record: Record) -> tuple[int, int] | None:
    proof = record.proof
    return None if proof is None else (proof.link_bytes_initiator, proof.link_bytes_target)


def test_as_many_bytes_are_on_their_links(apart: Measured, together: Measured) -> None:
    found = {key: on_link(record) for key, record in apart.records.items()}
    assert found == {key: on_link(record) for key, record in together.records.items()}
    assert all(found[key] for key in found if not key.startswith("local"))


@pytest.mark.long
def test_two_initiators_at_once_share_the_time(apart: Measured, tmp_path: Path) -> None:
    words = ("--link", "wired", "--ipsec", "off", "--workload", "rand-read-4k", "--lab-initiators", "2")
    two = measure(tmp_path, *SHORT, *PER_HOST, *words)
    alone = apart.records["wired.rand-read-4k.r1"].read
    at_once = two.records["wired.x2.rand-read-4k.r1"].read
    assert alone is not None and at_once is not None, two.done
    assert at_once.bytes_per_s == pytest.approx(2 * alone.bytes_per_s, rel=1e-3)


def is_kernel_of_target(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
    return words[0].endswith(b"linux") and any(word.startswith(b"time-travel=ext:1:") for word in words)


def test_when_the_target_s_kernel_ends_so_does_the_run(tmp_path: Path) -> None:
    words = (
        "--virtual-time",
        *PER_HOST,
        "--link",
        "wired",
        "--workload",
        "seq-write-256k",
        "--runtime",
        "10s",
    )

    def of_target() -> list[int]:
        return [pid for pid in descendants(process.pid) if is_kernel_of_target(pid)]

    with running(tmp_path, *words) as process:
        assert wait_for(lambda: bool(of_target()), deadline_s=END_S)
        os.kill(of_target()[0], signal.SIGKILL)
        assert wait_for(lambda: process.poll() is not None, deadline_s=END_S)
        said = process.stderr.read() if process.stderr else ""
    assert process.returncode == 1
    assert "the kernel of target ended" in said
