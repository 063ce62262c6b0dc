"""The processor's ciphers as modules of Debian's kernel, built into cache folders of the test's own."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import pytest

from harness.model import Ciphers, LabKernel, Status, caches
from harness.testbeds.lab.kernels import building, ciphers, kernel, source
from tests.lab.cli import harness, measure, python_inside, well

pytestmark = [
    pytest.mark.lab,
    pytest.mark.custom_kernel,
    pytest.mark.skipif(
        bool(kernel.lacking_instructions()), reason="this processor has no instructions for ciphers"
    ),
]


def kept() -> Path:
    """A cache folder that stays as long as the code that builds is the same: a build takes a minute."""
    digest = hashlib.sha256()
    for module in (building, ciphers, kernel, source):
        digest.update(inspect.getsource(module).encode())
    return caches.folder("ci", "ciphers") / digest.hexdigest()[:12]


@pytest.mark.parametrize("how", ["kept", pytest.param("anew", marks=pytest.mark.long)])
def test_debians_kernel_encrypts_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    place = kept() if how == "kept" else tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    words = ("--lab-kernel", "debian", "--link", "wired", "--ipsec", "on", "--workload", "seq-read-256k")
    before = measure(tmp_path / "before", *words)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    well(harness("kernel", "ciphers"))
    after = measure(tmp_path / "after", *words)
    for ran, expected, driver in (
        (before, Ciphers.GENERIC, "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))"),
        (after, Ciphers.ACCELERATED, "rfc4106-gcm-aesni"),
    ):
        (record,) = ran.records.values()
        assert (record.status, record.setting.lab_kernel) == (Status.OK, LabKernel.DEBIAN), ran.done
        assert record.setting.ciphers is expected
        assert record.agreed["aes128gcm16"]["drivers"] == driver
    well(harness("lab", "exec", "--", *python_inside("inside.same_ciphers")))
