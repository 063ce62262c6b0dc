"""The processor's ciphers as modules of Debian's kernel, built into a cache folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Ciphers, LabKernel, Status
from harness.testbeds.lab import kernel
from tests.lab.cli import harness, measure, python_inside

pytestmark = [
    pytest.mark.lab,
    pytest.mark.own_kernel,
    pytest.mark.skipif(
        bool(kernel.lacking_instructions()), reason="this processor has no instructions for ciphers"
    ),
]


def test_debians_kernel_encrypts_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("--lab-kernel", "debian", "--link", "wired", "--ipsec", "on", "--workload", "seq-read-256k")
    before = measure(tmp_path / "before", *words)
    built = harness("kernel", "ciphers")
    assert built.status == 0, built
    after = measure(tmp_path / "after", *words)
    for ran, ciphers, driver in (
        (before, Ciphers.PORTABLE, "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))"),
        (after, Ciphers.MACHINE, "rfc4106-gcm-aesni"),
    ):
        (record,) = ran.records.values()
        assert (record.status, record.lab_kernel) == (Status.OK, LabKernel.DEBIAN), ran.done
        assert record.ciphers is ciphers
        assert record.agreed["aes128gcm16"]["drivers"] == driver
    same = harness("lab", "exec", "--", *python_inside("inside.same_ciphers"))
    assert same.status == 0, same
