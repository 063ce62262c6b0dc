"""The lists of system packages: every line is read, and what is missing is found."""

from __future__ import annotations

from harness import packages
from harness.packages import Package
from harness.profiles import data_folder


def test_every_line_of_the_list_is_a_package() -> None:
    lines = (data_folder() / packages.KERNEL).read_text(encoding="utf-8").splitlines()
    listed = packages.listed()
    assert [package.name for package in listed] == [line.split()[0] for line in lines if line[0] != "#"]
    assert len({package.name for package in listed}) == len(listed)
    assert all(package.needed_by for package in listed)


def test_a_program_or_a_module_shows_that_a_package_is_there() -> None:
    for shown_by, installed in (("sh", True), ("no-such-program", False), ("python3:no_such_module", False)):
        assert Package(name="x", shown_by=shown_by, needed_by="a test").installed is installed


def test_one_command_installs_all_that_is_missing() -> None:
    missing = [Package(name=name, shown_by="-", needed_by="a test") for name in ("one", "two")]
    assert packages.install_command(missing).endswith("apt-get install --no-install-recommends one two")
