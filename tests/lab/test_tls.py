"""TLS for NVMe/TCP, where a kernel of Linux 6.12 has been built for the lab and tlshd is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.model import Status
from harness.model.errors import HarnessError
from harness.testbeds.lab.kernels import kernel
from tests.lab.cli import harness, measure, moved, python_inside, well

SOURCE = "linux-source-6.12"


@pytest.fixture(scope="module")
def with_tls() -> None:
    """A kernel that has it, and tlshd. Debian 12 packages neither for the tests to need them."""
    if shutil.which("tlshd") is None:
        pytest.skip("tlshd is not installed (ktls-utils, Debian 13)")
    try:
        kernel.named(SOURCE)
    except HarnessError as error:
        pytest.skip(error.message)


@pytest.mark.lab
@pytest.mark.usefixtures("with_tls")
def test_a_marked_block_is_seen_in_clear_and_not_within_tls() -> None:
    inside = python_inside("inside.sealed")
    done = well(harness("lab", "exec", "--kernel", SOURCE, "--memory", "64", "--", *inside))
    clear, sealed, refused = (line.split() for line in done.out.splitlines()[-3:])
    assert (clear[0], sealed[0], refused[0]) == ("clear", "tls", "refused:")
    # 64 blocks of 4096 bytes; what TCP splits is not found.
    assert int(clear[1]) > 64 * 4096 // 16 * 0.9 and int(sealed[1]) == 0
    assert int(sealed[2]) > 64 * 4096


@pytest.mark.lab
@pytest.mark.usefixtures("with_tls")
def test_cells_over_tls_are_ok_and_proved(tmp_path: Path) -> None:
    measured = measure(
        tmp_path,
        f"--lab-kernel={SOURCE}",
        *("--link=wired", "--transport=nvme-tcp", "--protect=tls", "--protect=macsec+tls"),
        *("--workload=rand-read-4k", "--workload=seq-write-256k"),
    )
    records = measured.ok()
    assert len(records) == 4, measured.done
    for record in records.values():
        proof = record.proof
        assert proof is not None and proof.cleartext_segments == proof.other_frames == 0
        assert min(proof.protected_bytes_initiator, proof.protected_bytes_target) >= moved(record) > 0
        assert record.agreed["tls"]["version"] == record.session["tls"] == "1.3"
        assert record.setting.release.startswith("6.12.")
    control = measured.environment["column wired+tls.nvme-tcp"]["positive_control"][0]["tls"]
    assert min(control["seen_in_clear"]) > 0 and min(control["blocked"]) > 0


@pytest.mark.lab
@pytest.mark.custom_kernel
def test_without_the_kernel_for_it_the_column_is_skipped_with_the_reason(tmp_path: Path) -> None:
    if kernel.recipe().source_version.startswith("6.12"):
        pytest.skip("Debian 13's kernel has it")
    words = ("--lab-kernel=custom", "--link=wired", "--transport=nvme-tcp", "--protect=off", "--protect=tls")
    measured = measure(tmp_path, *words, "--workload=rand-read-4k")
    found = {record.column.label: record for record in measured.records.values()}
    assert found["wired.nvme-tcp"].status is Status.OK, measured.done
    skipped = found["wired+tls.nvme-tcp"]
    assert skipped.status is Status.SKIPPED
    assert "TLS for NVMe/TCP (Linux 6.7 or later) needs the module nvme_keyring" in (skipped.reason or "")
