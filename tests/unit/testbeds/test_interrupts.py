"""The library that has a user-mode kernel's timers (``testbeds/lab/boot/interrupts.c``), without a kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.testbeds.lab import boot

pytestmark = pytest.mark.thorough

DRIVER = Path(__file__).with_name("interrupts.c")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program that sets timers and waits as the kernel does, and of the library."""
    folder = tmp_path_factory.mktemp("interrupts")
    sources = [str(boot.HERE / name) for name in ("traced.c", "interrupts.c")]
    library = ["-shared", "-fPIC", "-o", str(folder / "shims.so"), *sources, "-ldl"]
    for words in (["-o", str(folder / "interrupts"), str(DRIVER), "-lrt"], library):
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", *words], check=True)
    return folder


@pytest.mark.parametrize("is_preloaded", [False, True], ids=["machine", "lab"])
@pytest.mark.parametrize(
    ("scenario", "seen"),
    [
        ("idle", "fired 4 early 0"),
        ("poll", "fired 40 early 0 prompt 1"),
        ("busy", "fired 1 early 0"),
        ("process", "fired 1 early 0 during 1"),
        ("futex", "fired 40 early 0 prompt 1"),
        ("off", "fired 0 left 0"),
        ("left", "left 1"),
        ("periodic", "fired 3\nfired 1 early 0"),
    ],
)
def test_timers_fire_once_and_not_early(built: Path, scenario: str, seen: str, is_preloaded: bool) -> None:
    assert _seen(built, scenario, is_preloaded=is_preloaded) == seen


def test_what_only_the_library_has(built: Path) -> None:
    for scenario, seen, without in (
        ("clock", "fired 1 early 0", ""),  # who reads the clock hears of a timer that is due
        ("missed", "woke 1", "woke 0"),  # an interrupt before the sleep ends it; else it is slept through
        ("stopped", "stops STOP USR1", ""),  # who is stopped and goes on does so unseen; else it panics
    ):
        assert _seen(built, scenario, is_preloaded=True) == seen
        if scenario != "clock":
            found = _seen(built, scenario, is_preloaded=False)
            assert found == without if without else found != seen


def _seen(built: Path, scenario: str, *, is_preloaded: bool) -> str:
    env = {**os.environ, "LD_PRELOAD": str(built / "shims.so")} if is_preloaded else None
    argv = [str(built / "interrupts"), scenario]
    return subprocess.run(
        argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout.strip()
