"""The lists of system packages: every line is read, and what is missing is found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.hosts import packages
from harness.hosts.packages import Package
from harness.parse.profiles import data_folder


def test_every_line_of_the_list_is_a_package() -> None:
    lines = (data_folder() / packages.KERNEL).read_text(encoding="utf-8").splitlines()
    listed = packages.listed()
    assert ["|".join(package.names) for package in listed] == [
        line.split()[0] for line in lines if line[0] != "#"
    ]
    assert len({name for package in listed for name in package.names}) == sum(len(p.names) for p in listed)
    assert all(package.purpose for package in listed)


def test_a_program_or_a_module_shows_that_a_package_is_there() -> None:
    for shown_by, installed in (("sh", True), ("no-such-program", False), ("python3:no_such_module", False)):
        assert Package(names=("x",), shown_by=shown_by, purpose="a test").installed is installed


def test_one_command_installs_all_that_is_missing() -> None:
    missing = [Package(names=(name,), shown_by="-", purpose="a test") for name in ("one", "two")]
    assert packages.install_command(missing).endswith("apt-get install --no-install-recommends one two")


# Of two that will do


class Debian:
    """In place of dpkg, apt and sudo: what a release has, what is installed, and what apt-get was told."""

    def __init__(self, folder: Path, *, offers: str, has: str = "") -> None:
        self.folder = folder
        self.path = f"{folder}:{os.environ['PATH']}"
        self._write("dpkg-query", DPKG_QUERY.format(has=has))
        self._write("apt-cache", f'for p in {offers}; do [ $p != "$2" ] || echo "$p | 1.0"; done')
        self._write("apt-get", f'echo "$*" >>{folder}/told')
        self._write("sudo", 'exec "$@"')

    def _write(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def install(self, packages: str) -> list[str]:
        """What apt-get is told by install-packages.sh."""
        (self.folder / "list").write_text(f"# comment\n{packages} - what for\n", encoding="utf-8")
        subprocess.run(
            ["sh", str(SCRIPT), str(self.folder / "list")],
            env={"PATH": self.path},
            check=True,
            capture_output=True,
        )
        told = self.folder / "told"
        return told.read_text(encoding="utf-8").splitlines() if told.exists() else []


SCRIPT = Path(__file__).parents[2] / "tools" / "install-packages.sh"
DPKG_QUERY = """
for name; do :; done
[ "$name" = "{has}" ] || exit 1
case $* in
*Version*) printf 'install ok installed 1.0' ;;
*) printf 'install ok installed' ;;
esac
"""
EITHER = "linux-source-6.1|linux-source-6.12"


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ("linux-source-6.1 linux-source-6.12", "linux-source-6.1"),
        ("linux-source-6.12", "linux-source-6.12"),
    ],
)
def test_the_first_that_the_release_has_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: str, chosen: str
) -> None:
    debian = Debian(tmp_path, offers=offers)
    told = debian.install(EITHER)
    assert told == ["update -qq", f"install -y -qq --no-install-recommends {chosen}"]
    monkeypatch.setenv("PATH", debian.path)
    either = Package(names=tuple(EITHER.split("|")), shown_by="-", purpose="a test")
    assert packages.install_command([either]).endswith(f" {chosen}")
    assert not either.installed


@pytest.mark.parametrize("has", ["linux-source-6.1", "linux-source-6.12"])
def test_either_that_is_installed_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str) -> None:
    debian = Debian(tmp_path, offers=EITHER.replace("|", " "), has=has)
    assert debian.install(EITHER) == []
    monkeypatch.setenv("PATH", debian.path)
    assert Package(names=tuple(EITHER.split("|")), shown_by="-", purpose="a test").installed
