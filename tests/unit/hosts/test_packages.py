"""The lists of system packages: every line is read, and what is missing is found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.hosts import packages
from harness.hosts.packages import Package
from harness.parse.profiles import data_folder

pytestmark = pytest.mark.thorough


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

    def __init__(
        self, folder: Path, *, offers: str, has: str = "", breaks: Sequence[str] = (), sudo: str = 'exec "$@"'
    ) -> None:
        self.folder = folder
        self.path = f"{folder}:{os.environ['PATH']}"
        (folder / "os-release").write_text("ID=debian\n", encoding="utf-8")
        self._write("dpkg-query", DPKG_QUERY.format(has=has))
        self._write("apt-cache", f'for p in {offers}; do [ $p != "$2" ] || echo "$p | 1.0"; done')
        broken = "".join(
            f'*" {name}" | *" {name} "*) echo E: {name} is broken >&2; exit 100 ;; ' for name in breaks
        )
        self._write("apt-get", f'echo "$*" >>{folder}/told; case $* in {broken}esac')
        self._write("sudo", sudo)

    def _write(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def install(self, packages: str) -> list[str]:
        """What apt-get is told by install-packages.sh."""
        self.tell(f"# comment\n{packages} - what for\n")
        return self.reported

    @property
    def reported(self) -> list[str]:
        """What apt-get was told so far."""
        reported = self.folder / "told"
        return reported.read_text(encoding="utf-8").splitlines() if reported.exists() else []

    def tell(self, lines: str) -> str:
        """What install-packages.sh says on standard error about a list."""
        (self.folder / "list").write_text(lines, encoding="utf-8")
        return subprocess.run(
            ["sh", str(SCRIPT), str(self.folder / "list"), str(self.folder / "os-release")],
            env={"PATH": self.path, "LOCK_POLL_S": "0.01"},
            check=True,
            capture_output=True,
            text=True,
        ).stderr


SCRIPT = Path(__file__).parents[3] / "tools" / "install-packages.sh"
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
    reported = debian.install(EITHER)
    assert reported == ["update -qq", f"install -y -qq --no-install-recommends {chosen}"]
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


# What cannot be installed

LIST = """\
# package     shown by  who needs it  what for
fio           fio       lab,target    the workloads
linux-6|uml   -         lab           the lab: a real kernel
iperf3        iperf3    lab           probes: TCP and UDP
gone          -         make          the environment
"""


def test_what_a_release_lacks_is_named_in_one_sentence_and_the_rest_is_installed(tmp_path: Path) -> None:
    debian = Debian(tmp_path, offers="fio iperf3")
    assert debian.tell(LIST) == (
        "This release of Debian has no package for these, and what works without them goes on: "
        "linux-6 or uml (the lab: a real kernel), gone (the environment).\n"
    )
    assert debian.reported[1:] == ["install -y -qq --no-install-recommends fio iperf3"]


def test_one_that_cannot_be_installed_is_named_and_keeps_no_other_out(tmp_path: Path) -> None:
    debian = Debian(tmp_path, offers="fio uml iperf3 gone", breaks=["uml"])
    assert debian.tell(LIST) == ("Not installed: linux-6 or uml (the lab: a real kernel): E: uml is broken\n")
    assert [line.rpartition(" ")[2] for line in debian.reported[2:]] == ["fio", "uml", "iperf3", "gone"]


def test_another_program_that_installs_is_waited_for(tmp_path: Path) -> None:
    debian = Debian(tmp_path, offers="fio uml iperf3 gone")
    held = "E: Could not get lock /var/lib/{}. It is held by process 4711 (apt-get)"
    # Each lock is held twice, then free: that of the lists, then that of the packages.
    debian._write(
        "apt-get",
        f"""echo "$*" >>{tmp_path}/told
        case $(grep -c "^$1" {tmp_path}/told),$1 in
        1,update | 2,update) echo '{held.format("apt/lists/lock")}' >&2; exit 100 ;;
        1,install | 2,install) echo '{held.format("dpkg/lock-frontend")}' >&2; exit 100 ;;
        esac""",
    )
    waiting = "Waiting for another program that installs packages: "
    assert debian.tell(LIST).splitlines() == [
        waiting + held.format("apt/lists/lock"),
        waiting + held.format("dpkg/lock-frontend"),
    ]
    assert [line.split()[0] for line in debian.reported] == ["update"] * 3 + ["install"] * 3


def test_without_sudo_the_packages_are_named_and_make_goes_on(tmp_path: Path) -> None:
    debian = Debian(tmp_path, offers="fio uml", sudo="exit 1")
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n", encoding="utf-8")
    (tmp_path / "id").chmod(0o755)
    assert debian.tell(LIST).endswith("somebody who may has to install: fio linux-6|uml iperf3 gone\n")
    assert debian.reported == []


@pytest.mark.parametrize("has_ensurepip", [True, False])
def test_the_environment_is_made_before_packages_where_it_can_be(tmp_path: Path, has_ensurepip: bool) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {int(not has_ensurepip)}\n", encoding="utf-8")
    python.chmod(0o755)
    plan = subprocess.run(
        ["make", "--dry-run", "install", f"PYTHON={python}", f"VENV={tmp_path}/venv"],
        cwd=SCRIPT.parents[1],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert (plan.index("-m venv") < plan.index("install-packages.sh")) == has_ensurepip


def test_the_debian_package_recommends_what_the_lab_needs() -> None:
    control = (SCRIPT.parents[1] / "debian" / "control").read_text(encoding="utf-8")
    _, _, recommended = control.partition("Recommends:\n")
    named = {line.strip(" ,") for line in recommended.partition("Description:")[0].splitlines()}
    lab = {
        package.name
        for package in packages.listed(packages.ALL)
        if not package.needed_by.keys().isdisjoint(("lab", "controller"))
    }
    assert named == lab - {"python3", "util-linux"}, "which are required or essential"
