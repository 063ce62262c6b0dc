"""Distributions as data: every name of the lists has a line, and both readers of the files find the same."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.hosts import packages, releases, runner
from harness.hosts.packages import Package
from harness.hosts.releases import LinuxDistribution
from harness.testbeds import requirements
from harness.testbeds.lab.kernels import source as sources
from tests.unit.hosts.test_hosts import executable

pytestmark = pytest.mark.thorough

PROJECT = Path(__file__).parents[3]
SCRIPT = PROJECT / "tools" / "install-packages.sh"
LISTS = sorted(PROJECT.glob("packages*.txt"))
DEBIAN, UBUNTU, FEDORA, ARCH = (releases.named([word]) for word in ("debian", "ubuntu", "fedora", "arch"))
OS_RELEASE = {
    "debian": 'PRETTY_NAME="Debian GNU/Linux forky/sid"\nID=debian\nVERSION_CODENAME=forky\n',
    "trixie": 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\n',
    "mint": 'PRETTY_NAME="Linux Mint 22"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n',
    "ubuntu": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
    "fedora": 'PRETTY_NAME="Fedora Linux 43"\nID=fedora\nVERSION_ID=43\n',
    "rocky": 'PRETTY_NAME="Rocky Linux 9.4"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n',
    "arch": 'PRETTY_NAME="Arch Linux"\nID=arch\nBUILD_ID=rolling\n',
    "suse": 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\nVERSION_ID="15.6"\n',
    "other": 'PRETTY_NAME="Other"\nID=other\n',
}


def listed() -> list[str]:
    """The first words of all lists: a package, or a choice of them."""
    lines = [line for file in LISTS for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted({line.split()[0] for line in lines if line and not line.startswith("#")})


@pytest.mark.parametrize("system", [FEDORA, ARCH])
def test_what_has_names_of_its_own_has_one_for_every_package(system: LinuxDistribution | None) -> None:
    assert system is not None
    assert sorted(system.names) == listed()


@pytest.mark.parametrize("system", releases.distributions(), ids=lambda each: each.title)
def test_a_distribution_says_where_its_names_were_looked_up(system: LinuxDistribution) -> None:
    assert system.looked_up and system.ids and set(system.names) <= set(listed())
    assert system.manager in {"apt-get", "dnf", "pacman", "zypper"}
    for release in system.releases:
        assert release.title and release.versions and release.kernel
    # Whoever has nothing to boot the lab with says where its kernel comes from.
    if system.names_of(["user-mode-linux"]) == ():
        assert all("no user-mode-linux" in release.kernel for release in system.releases)


def test_the_first_word_that_is_known_counts() -> None:
    ids = [word for each in releases.distributions() for word in each.ids]
    assert len(ids) == len(set(ids)), "no two have one in common"
    for words, title in (
        ("raspbian debian", "Debian"),
        ("linuxmint ubuntu debian", "Ubuntu"),
        ("rocky rhel centos fedora", "Fedora"),
        ("endeavouros arch", "Arch Linux"),
        ("opensuse-leap suse opensuse", "openSUSE"),
    ):
        found = releases.named(words.split())
        assert found is not None and found.title == title
    assert releases.named(["alpine"]) is None


def test_a_release_is_known_by_its_number_or_its_code_name() -> None:
    assert DEBIAN and UBUNTU and ARCH
    found = [release.title for word in ("12", "trixie") if (release := DEBIAN.release(["", word]))]
    assert found == ["Debian 12", "Debian 13"]
    assert DEBIAN.release(["11", "bullseye"]) is None
    noble = UBUNTU.release(["24.04", "noble"])
    assert noble is not None and not noble.was_tried
    assert ARCH.release([]) is not None, "it has no releases"


def test_names() -> None:
    assert FEDORA and UBUNTU
    assert FEDORA.names_of(["iproute2"]) == ("iproute", "iproute-tc")
    assert FEDORA.names_of(["user-mode-linux"]) == ()
    assert FEDORA.names_of(["of-no-list"]) is None
    assert UBUNTU.names_of(["fio"]) == ("fio",)
    assert UBUNTU.names_of(sources.PACKAGES) == ()


# The command that doctor names


def on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on that system."""
    lines = (line.partition("=") for line in OS_RELEASE[name].splitlines())
    words = {key: value.strip('"') for key, _, value in lines}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: words)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("mint", "sudo apt-get update && sudo apt-get install --no-install-recommends fio iproute2"),
        ("fedora", "sudo dnf install fio iproute iproute-tc"),
        ("arch", "sudo pacman -S fio iproute2, and install what provides Python's rtslib_fb"),
        ("suse", "sudo zypper install fio iproute2"),
    ],
)
def test_one_command_installs_all(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on(name, monkeypatch)
    wanted = {"fio", "iproute2"} | ({"python3-rtslib-fb"} if name == "arch" else set())
    found = [package for package in requirements.packages() if package.name in wanted]
    assert packages.install_command(found) == command


@pytest.mark.parametrize(("name", "source"), [("trixie", "6.12"), ("debian", "7.2"), ("mint", "6.1")])
def test_without_lists_of_apt_the_release_names_it(
    name: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(name, monkeypatch)
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/apt-cache")
    monkeypatch.setattr(runner, "run", lambda *_, **__: SimpleNamespace(stdout="", status=0))
    found = Package(names=tuple(sources.PACKAGES), shown_by="-", purpose="the kernel")
    assert found.name == f"linux-source-{source}"


def test_a_package_without_a_program_is_asked_of_the_package_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], *, check: bool) -> object:
        assert not check
        asked.append(argv)
        return type("Done", (), {"status": 1})

    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(runner, "run", run)
    headers = Package(names=("libc6-dev",), shown_by="-", purpose="the kernel")
    for name in ("fedora", "arch", "other"):
        on(name, monkeypatch)
        assert headers.installed is (name == "other"), "of what is not known, programs tell"
    assert asked == [["rpm", "--query", "glibc-devel"], ["pacman", "-Qq", "glibc", "linux-api-headers"]]


# The script


class System:
    """Another distribution: its os-release, and in place of package managers what notes what it was told."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        offers: str,
        has: str = "",
        breaks: str = "-",
        sudo: str = 'exec "$@"',
    ) -> None:
        self.folder = folder
        self.path = f"{folder}:{os.environ['PATH']}"
        (folder / "os-release").write_text(OS_RELEASE[name], encoding="utf-8")
        has_one = f'for p in {has}; do [ "$p" != "$last" ] || exit 0; done; exit 1'
        offers_one = f'for p in {offers}; do [ "$p" != "$last" ] || exit 0; done; exit 1'
        broken = f'*" {breaks} "*) echo "error: no" >&2; exit 1 ;;'
        tells = f'echo "${{0##*/}} $*" >>{folder}/told; case " $* " in {broken} esac'
        last = "for last; do :; done"
        queries = f"-Qq*) {has_one} ;; -Si*) {offers_one} ;; -Slq*) echo fio ;;"
        version = 'case $* in *Version*) printf " 1.0" ;; esac'
        for program, script in {
            "rpm": f"{last}\n{has_one}",
            "dnf": f"{last}\ncase $* in *list*) {offers_one} ;; *) {tells} ;; esac",
            "pacman": f"{last}\ncase $* in {queries} *) {tells} ;; esac",
            "dpkg-query": f'{last}\n({has_one}) && printf "install ok installed" && {version}',
            "apt-cache": f'{last}\n({offers_one}) && echo "$last | 1.0"',
            "apt-get": tells,
            "sudo": sudo,
        }.items():
            executable(folder / program, script)

    def install(self, lines: str) -> tuple[list[str], str]:
        """What the package manager was told then, and what the script says on standard error."""
        (self.folder / "list").write_text(lines, encoding="utf-8")
        argv = ["sh", str(SCRIPT), str(self.folder / "list"), str(self.folder / "os-release")]
        env = {"PATH": self.path, "LOCK_POLL_S": "0.01"}
        done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
        told = self.folder / "told"
        return told.read_text(encoding="utf-8").splitlines() if told.exists() else [], done.stderr


LIST = """\
# Debian's name                     shown by   what for
fio                                 fio        the workloads
iproute2                            ip         interfaces
user-mode-linux                     linux.uml  the lab: a real kernel
linux-source-6.1|linux-source-6.12  -          the kernel: its source
hping3                              hping3     probes
"""
APT = "apt-get install -y -qq --no-install-recommends"
NONE_OF_THE_LAB = (
    "has no package for these, and what works without them goes on: "
    "user-mode-linux (the lab: a real kernel), linux-source-6.1 or linux-source-6.12 (the kernel: its source)"
)


DNF = "dnf install -y --quiet --setopt=install_weak_deps=False"


@pytest.mark.parametrize(
    ("name", "offers", "command"),
    [
        ("fedora", "fio iproute iproute-tc hping3", DNF),
        ("rocky", "fio iproute iproute-tc hping3", DNF),
        ("arch", "fio iproute2 hping", "pacman -S --needed --noconfirm"),
        ("ubuntu", "fio iproute2 hping3", APT),
        ("mint", "fio iproute2 hping3", APT),
    ],
)
def test_each_package_manager_is_told_its_own_names(
    tmp_path: Path, name: str, offers: str, command: str
) -> None:
    found, said = System(tmp_path, name, offers=offers).install(LIST)
    assert found[-1] == f"{command} {offers}"
    assert NONE_OF_THE_LAB in said and said.startswith("This release of ") and len(said.splitlines()) == 1


def test_what_is_installed_is_left_alone(tmp_path: Path) -> None:
    system = System(tmp_path, "fedora", offers="fio", has="fio iproute iproute-tc hping3")
    assert system.install(LIST) == ([], f"This release of Fedora {NONE_OF_THE_LAB}.\n")


def test_of_several_names_all_have_to_be_there(tmp_path: Path) -> None:
    system = System(tmp_path, "fedora", offers="iproute iproute-tc", has="fio iproute hping3")
    (reported,), _ = system.install(LIST)
    assert reported.endswith(" iproute iproute-tc")


def test_one_that_cannot_be_installed_keeps_no_other_out(tmp_path: Path) -> None:
    system = System(tmp_path, "arch", offers="fio iproute2 hping", breaks="hping")
    reported, said = system.install(LIST)
    assert [line.rpartition(" ")[2] for line in reported[1:]] == ["fio", "iproute2", "hping"]
    assert "Not installed: hping3 (probes): error: no\n" in said


def test_what_the_index_does_not_have_is_named_with_the_rest(tmp_path: Path) -> None:
    _, said = System(tmp_path, "fedora", offers="fio iproute iproute-tc").install(LIST)
    assert said.endswith("(the kernel: its source), hping3 (probes).\n")


def test_on_an_unknown_system_apt_takes_debian_s_names_and_another_is_left_alone(tmp_path: Path) -> None:
    reported, said = System(tmp_path, "suse", offers="fio").install(LIST)
    assert reported == [] and said.startswith("Packages are installed here by apt-get, dnf or pacman alone")
    reported, said = System(tmp_path, "other", offers="fio iproute2 linux-source-6.12").install(LIST)
    assert reported[-1].endswith(" fio iproute2 linux-source-6.12")
    assert said.startswith("This release has no package for these")


@pytest.mark.parametrize(
    ("has_kernel", "reported", "said"),
    [
        (True, "kernel ciphers\n", ""),
        (False, "kernel build\n", "the lab takes one of its own, which is built now"),
    ],
)
def test_make_builds_a_kernel_where_none_is(
    tmp_path: Path, has_kernel: bool, reported: str, said: str
) -> None:
    System(tmp_path, "debian", offers="", has='"$last"')  # all packages are there
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin" / "harness", f'echo "$*" >>{tmp_path}/built')
    for name in ("sh", "awk", "sed", "grep", "tr", "head", "id", "dirname", "make"):
        (tmp_path / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name}"))
    if has_kernel:
        executable(tmp_path / "linux.uml", "")
    argv = ["make", "kernel", "--old-file=install", f"VENV={tmp_path}"]
    env = {"PATH": str(tmp_path)}  # where this machine's kernel is not
    done = subprocess.run(argv, cwd=PROJECT, env=env, check=True, capture_output=True, text=True)
    assert (tmp_path / "built").read_text(encoding="utf-8") == reported
    assert said in done.stdout and "Installing" not in done.stdout


def test_both_readers_find_the_same_names(tmp_path: Path) -> None:
    """The script reads the files by lines, and everything else as TOML."""
    for name, system in (("fedora", FEDORA), ("arch", ARCH)):
        assert system is not None
        folder = tmp_path / name
        folder.mkdir()
        all_names = {word for words in system.names.values() for word in words.split()}
        lines = "".join(f"{choice}  -  what for\n" for choice in listed())
        reported, _ = System(folder, name, offers=" ".join(sorted(all_names))).install(lines)
        assert all_names <= set(reported[-1].split())
