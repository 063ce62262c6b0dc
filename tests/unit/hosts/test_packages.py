"""The lists of system packages: every line is read, and what is missing is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.hosts import packages
from harness.hosts.packages import Package
from harness.parse.profiles import data_folder
from tests.unit.hosts.test_hosts import executable
from tests.unit.hosts.test_releases import APT, PROJECT, System

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
    missing = [Package(names=(name,), shown_by="-", purpose="a test") for name in ("one", "two")]
    assert packages.install_command(missing).endswith("apt-get install --no-install-recommends one two")


# Of two that will do


EITHER = "linux-source-6.1|linux-source-6.12"
ONE_OF_TWO = f"# comment\n{EITHER} - what for\n"


@pytest.mark.parametrize("offers", ["linux-source-6.1 linux-source-6.12", "linux-source-6.12"])
def test_the_first_on_offer_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: str
) -> None:
    chosen = offers.split()[0]
    debian = System(tmp_path, "debian", offers=offers)
    assert debian.install(ONE_OF_TWO)[0] == ["apt-get update -qq", f"{APT} {chosen}"]
    monkeypatch.setenv("PATH", debian.path)
    either = Package(names=tuple(EITHER.split("|")), shown_by="-", purpose="a test")
    assert packages.install_command([either]).endswith(f" {chosen}")
    assert not either.installed


@pytest.mark.parametrize("has", ["linux-source-6.1", "linux-source-6.12"])
def test_either_that_is_installed_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str) -> None:
    debian = System(tmp_path, "debian", offers=EITHER.replace("|", " "), has=has)
    assert debian.install(ONE_OF_TWO)[0] == []
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
    reported, said = System(tmp_path, "debian", offers="fio iperf3").install(LIST)
    assert said == (
        "This release of Debian has no package for these, and what works without them goes on: "
        "linux-6 or uml (the lab: a real kernel), gone (the environment).\n"
    )
    assert reported[1:] == [f"{APT} fio iperf3"]


def test_one_that_cannot_be_installed_is_named_and_keeps_no_other_out(tmp_path: Path) -> None:
    debian = System(tmp_path, "debian", offers="fio uml iperf3 gone", breaks="uml")
    reported, said = debian.install(LIST)
    assert said == "Not installed: linux-6 or uml (the lab: a real kernel): error: no\n"
    assert [line.rpartition(" ")[2] for line in reported[2:]] == ["fio", "uml", "iperf3", "gone"]


def test_another_program_that_installs_is_waited_for(tmp_path: Path) -> None:
    debian = System(tmp_path, "debian", offers="fio uml iperf3 gone")
    held = "E: Could not get lock /var/lib/{}. It is held by process 4711 (apt-get)"
    # Each lock is held twice, then free: that of the lists, then that of the packages.
    executable(
        tmp_path / "apt-get",
        f"""echo "$*" >>{tmp_path}/told
        case $(grep -c "^$1" {tmp_path}/told),$1 in
        1,update | 2,update) echo '{held.format("apt/lists/lock")}' >&2; exit 100 ;;
        1,install | 2,install) echo '{held.format("dpkg/lock-frontend")}' >&2; exit 100 ;;
        esac""",
    )
    reported, said = debian.install(LIST)
    waiting = "Waiting for another program that installs packages: "
    assert said.splitlines() == [
        waiting + held.format("apt/lists/lock"),
        waiting + held.format("dpkg/lock-frontend"),
    ]
    assert [line.split()[0] for line in reported] == ["update"] * 3 + ["install"] * 3


def test_without_sudo_the_packages_are_named_and_make_goes_on(tmp_path: Path) -> None:
    debian = System(tmp_path, "debian", offers="fio uml", sudo="exit 1")
    executable(tmp_path / "id", "echo 1000")
    reported, said = debian.install(LIST)
    assert said.endswith("somebody who may has to install: fio linux-6|uml iperf3 gone\n")
    assert reported == []


@pytest.mark.parametrize("has_ensurepip", [True, False])
def test_the_environment_is_made_before_packages_where_it_can_be(tmp_path: Path, has_ensurepip: bool) -> None:
    python = tmp_path / "python"
    executable(python, f"exit {int(not has_ensurepip)}")
    argv = ["make", "--dry-run", "install", f"PYTHON={python}", f"VENV={tmp_path}/venv"]
    plan = subprocess.run(argv, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    assert (plan.index("-m venv") < plan.index("install-packages.sh")) == has_ensurepip


def test_the_debian_package_recommends_what_the_lab_needs() -> None:
    control = (PROJECT / "debian" / "control").read_text(encoding="utf-8")
    _, _, recommended = control.partition("Recommends:\n")
    named = {line.strip(" ,") for line in recommended.partition("Description:")[0].splitlines()}
    lab = {
        package.name
        for package in packages.listed(packages.ALL)
        if not package.needed_by.keys().isdisjoint(("lab", "controller"))
    }
    assert named == lab - {"python3", "util-linux"}, "which are required or essential"
