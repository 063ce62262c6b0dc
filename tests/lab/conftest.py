"""Integration tests: every test below boots the lab and runs the real stack in it.

Where the lab cannot run they are skipped, and the reason names all that is missing; where the
environment variable CI is set, that is a failure, so that a green check always means they ran.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from harness.model.errors import BusyError, RequirementError
from harness.testbeds import doctor
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import kernel
from tests.lab.cli import ON_CI, StaysUp, lacks


def missing() -> list[str]:
    """All that the lab would need here and does not find, in words."""
    packages = [p.name for p in doctor.missing_packages() if "lab" in p.needed_by]
    found = [f"packages: {', '.join(packages)}"] if packages else []
    if shutil.which(boot.KERNEL) is None and "user-mode-linux" not in packages:
        found.append(f"the program {boot.KERNEL}")
    return found + [f.text for f in doctor.findings() if f.where == "lab" and not f.ok]


@pytest.fixture(scope="session", autouse=True)
def lab_is_ready() -> None:
    if lacking := missing():
        lacks(f"the lab lacks {'; '.join(lacking)}")


@pytest.fixture(scope="module", autouse=True)
def lab_that_stays_up(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab_is_ready: None
) -> None:
    """A lab of the kernel that the module names in STAYS_UP, for all its runs that can use it; else none."""
    del lab_is_ready
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    is_for_it = any(item.module is request.module and not needs_custom_kernel(item) for item in items)
    wanted = getattr(request.module, "STAYS_UP", None) if is_for_it else None
    StaysUp.have(wanted, tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session", autouse=True)
def none_is_left_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    StaysUp.have(None, tmp_path_factory.getbasetemp())


def needs_custom_kernel(item: pytest.Item) -> bool:
    return item.get_closest_marker("custom_kernel") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need the custom kernel come last: until then it may still be built."""
    items.sort(key=needs_custom_kernel)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not needs_custom_kernel(item):
        return
    try:
        kernel.custom_kernel()
    except RequirementError as error:
        if not ON_CI:
            pytest.skip(f"{error.message}; it is built by: make lab-kernel")
        build_kernel()


def build_kernel() -> None:
    """Build the custom kernel, or wait for who is building it."""
    while True:
        try:
            kernel.build(lambda *_: None)
        except BusyError:
            time.sleep(2)
        else:
            return
