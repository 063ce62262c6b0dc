"""Lists of packages, and distributions as data: every name has a line, and each reader finds the same."""

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
from harness.parse.profiles import data_folder
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


def all_listed() -> list[str]:
    """The first words of all lists: a package, or a choice of them."""
    lines = [line for file in LISTS for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted({line.split()[0] for line in lines if line and not line.startswith("#")})


def test_a_distribution_has_a_name_for_every_package_and_says_where_they_were_looked_up() -> None:
    for system in releases.distributions():
        assert system.looked_up and system.ids and set(system.names) <= set(all_listed()), system
        assert system.manager in {"apt-get", "dnf", "pacman", "zypper"}
        for release in system.releases:
            assert release.title and release.versions and release.kernel
        # Whoever has nothing to boot the lab with says where its kernel comes from.
        if system.names_of(["user-mode-linux"]) == ():
            assert all("no user-mode-linux" in release.kernel for release in system.releases)
    # Who has names of its own has one for every package.
    assert FEDORA and ARCH and sorted(FEDORA.names) == sorted(ARCH.names) == all_listed()


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


def test_a_release_is_known_by_its_number_or_its_code_name_and_a_package_by_its_name_there() -> None:
    assert DEBIAN and UBUNTU and ARCH and FEDORA
    found = [release.title for word in ("12", "trixie") if (release := DEBIAN.release(["", word]))]
    assert found == ["Debian 12", "Debian 13"]
    assert DEBIAN.release(["11", "bullseye"]) is None
    noble = UBUNTU.release(["24.04", "noble"])
    assert noble is not None and not noble.was_tried
    assert ARCH.release([]) is not None, "it has no releases"
    assert FEDORA.names_of(["iproute2"]) == ("iproute", "iproute-tc")
    assert FEDORA.names_of(["user-mode-linux"]) == ()
    assert FEDORA.names_of(["of-no-list"]) is None
    assert UBUNTU.names_of(["fio"]) == ("fio",)
    assert UBUNTU.names_of(sources.PACKAGES) == ()


def on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on that system."""
    lines = (line.partition("=") for line in OS_RELEASE[name].splitlines())
    words = {key: value.strip('"') for key, _, value in lines}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: words)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_one_command_installs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, command in (
        ("mint", "sudo apt-get update && sudo apt-get install --no-install-recommends fio iproute2"),
        ("fedora", "sudo dnf install fio iproute iproute-tc"),
        ("arch", "sudo pacman -S fio iproute2, and install what provides Python's rtslib_fb"),
        ("suse", "sudo zypper install fio iproute2"),
    ):
        on(name, monkeypatch)
        wanted = {"fio", "iproute2"} | ({"python3-rtslib-fb"} if name == "arch" else set())
        found = [package for package in requirements.packages() if package.name in wanted]
        assert packages.install_command(found) == command


def test_without_lists_of_apt_the_release_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/apt-cache")
    monkeypatch.setattr(runner, "run", lambda *_, **__: SimpleNamespace(stdout="", status=0))
    for name, source in (("trixie", "6.12"), ("debian", "7.2"), ("mint", "6.1")):
        on(name, monkeypatch)
        found = Package(names=tuple(sources.PACKAGES), shown_by="-", purpose="the kernel")
        assert found.name == f"linux-source-{source}"


def test_a_package_without_a_program_is_asked_of_the_package_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], *, check: bool) -> object:
        assert not check
        asked.append(argv)
        return SimpleNamespace(status=1)

    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(runner, "run", run)
    headers = Package(names=("libc6-dev",), shown_by="-", purpose="the kernel")
    for name in ("fedora", "arch", "other"):
        on(name, monkeypatch)
        assert headers.installed is (name == "other"), "of what is not known, programs tell"
    assert asked == [["rpm", "--query", "glibc-devel"], ["pacman", "-Qq", "glibc", "linux-api-headers"]]


class System:
    """Another distribution: its os-release, and in place of package managers what notes what it was told."""

    def __init__(
        self, folder: Path, name: str, *, offers: str, has: str = "", breaks: str = "-", sudo: str = ""
    ) -> None:
        self.folder, self.path = folder, f"{folder}:{os.environ['PATH']}"
        (folder / "os-release").write_text(OS_RELEASE[name], encoding="utf-8")
        has_one, offers_one = (
            f'for p in {names}; do [ "$p" != "$last" ] || exit 0; done; exit 1' for names in (has, offers)
        )
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
            "sudo": sudo or 'exec "$@"',
        }.items():
            executable(folder / program, script)

    def install(self, lines: str) -> tuple[list[str], str]:
        """What the package manager was told then, and what the script says on standard error."""
        (self.folder / "list").write_text(lines, encoding="utf-8")
        argv = ["sh", str(SCRIPT), str(self.folder / "list"), str(self.folder / "os-release")]
        env = {"PATH": self.path, "LOCK_POLL_S": "0.01"}
        done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
        stated = self.folder / "told"
        return stated.read_text(encoding="utf-8").splitlines() if stated.exists() else [], done.stderr


LIST = """\
# Debian's name                     shown by   who needs it  what for
fio                                 fio        lab,target    the workloads
iproute2                            ip         lab           interfaces
user-mode-linux                     linux.uml  lab           the lab: a real kernel
linux-source-6.1|linux-source-6.12  -          make          the kernel: its source
hping3                              hping3     lab           probes
"""
APT = "apt-get install -y -qq --no-install-recommends"
LACKS = (
    "has no package for these, and what works without them goes on: "
    "user-mode-linux (the lab: a real kernel), linux-source-6.1 or linux-source-6.12 (the kernel: its source)"
)
HPING3_TOO = f"{LACKS}, hping3 (probes).\n"
UNKNOWN = "This release has no package for these"
DNF = "dnf install -y --quiet --setopt=install_weak_deps=False"
PACMAN = "pacman -S --needed --noconfirm"
FIRST = "apt-get update -qq"
DEBS, FEW_DEBS = "fio iproute2 hping3", "fio iproute2 linux-source-6.12"
RPMS, PKGS = "fio iproute iproute-tc hping3", "fio iproute2 hping"


@pytest.mark.parametrize(
    ("name", "system", "stated", "said"),
    [
        ("fedora", {"offers": RPMS}, [f"{DNF} {RPMS}"], f"Fedora {LACKS}.\n"),
        ("rocky", {"offers": RPMS}, [f"{DNF} {RPMS}"], f"Fedora {LACKS}.\n"),
        ("arch", {"offers": PKGS}, [f"{PACMAN} {PKGS}"], f"Arch Linux {LACKS}.\n"),
        ("ubuntu", {"offers": DEBS}, [FIRST, f"{APT} {DEBS}"], LACKS),
        ("mint", {"offers": DEBS}, [FIRST, f"{APT} {DEBS}"], LACKS),
        # What is installed is left alone, but of several names all have to be there.
        ("fedora", {"offers": "fio", "has": RPMS}, [], f"Fedora {LACKS}.\n"),
        ("fedora", {"offers": RPMS, "has": "fio iproute hping3"}, [f"{DNF} iproute iproute-tc"], LACKS),
        # What the index does not have is named with the rest.
        ("debian", {"offers": "fio iproute2"}, [FIRST, f"{APT} fio iproute2"], f"Debian {HPING3_TOO}"),
        ("fedora", {"offers": RPMS[:-7]}, [f"{DNF} {RPMS[:-7]}"], HPING3_TOO),
        # On an unknown system apt takes Debian's names, and another package manager is left alone.
        ("other", {"offers": FEW_DEBS}, [FIRST, f"{APT} {FEW_DEBS}"], UNKNOWN),
        ("suse", {"offers": "fio"}, [], "Packages are installed here by apt-get, dnf or pacman alone"),
    ],
)
def test_each_package_manager_is_told_its_own_names(
    tmp_path: Path, name: str, system: dict[str, str], stated: list[str], said: str
) -> None:
    reported, words = System(tmp_path, name, **system).install(LIST)
    assert reported == stated
    assert said in words and len(words.splitlines()) == 1
    assert said is not LACKS or words.startswith("This release of ")


def test_one_that_cannot_be_installed_is_named_and_keeps_no_other_out(tmp_path: Path) -> None:
    reported, said = System(tmp_path, "arch", offers=PKGS, breaks="hping").install(LIST)
    assert [line.rpartition(" ")[2] for line in reported[1:]] == PKGS.split()
    assert "Not installed: hping3 (probes): error: no\n" in said
    (tmp_path / "told").unlink()
    all_debs = f"{DEBS} user-mode-linux linux-source-6.1"
    reported, said = System(tmp_path, "debian", offers=all_debs, breaks="linux-source-6.1").install(LIST)
    assert sorted(line.rpartition(" ")[2] for line in reported[2:]) == sorted(all_debs.split())
    choice = "linux-source-6.1 or linux-source-6.12 (the kernel: its source)"
    assert said == f"Not installed: {choice}: error: no\n"


@pytest.mark.parametrize("has_kernel", [True, False])
def test_make_builds_a_kernel_where_none_is(tmp_path: Path, has_kernel: bool) -> None:
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
    assert (tmp_path / "built").read_text() == ("kernel ciphers\n" if has_kernel else "kernel build\n")
    assert ("the lab takes one of its own, which is built now" in done.stdout) is not has_kernel
    assert "Installing" not in done.stdout


def test_both_readers_find_the_same_names(tmp_path: Path) -> None:
    """The script reads the files by lines, and everything else as TOML."""
    for name, system in (("fedora", FEDORA), ("arch", ARCH)):
        assert system is not None
        folder = tmp_path / name
        folder.mkdir()
        all_names = {word for words in system.names.values() for word in words.split()}
        lines = "".join(f"{choice}  -  what for\n" for choice in all_listed())
        reported, _ = System(folder, name, offers=" ".join(sorted(all_names))).install(lines)
        assert all_names <= set(reported[-1].split())


def test_every_line_of_the_list_is_a_package() -> None:
    lines = (data_folder() / packages.KERNEL).read_text(encoding="utf-8").splitlines()
    listed = packages.listed()
    words = [line.split()[0] for line in lines if line[0] != "#"]
    assert ["|".join(package.names) for package in listed] == words
    names = [name for package in listed for name in package.names]
    assert len(names) == len(set(names)) and all(package.purpose for package in listed)


def test_a_program_or_a_module_shows_that_a_package_is_there() -> None:
    for shown_by, installed in (("sh", True), ("no-such-program", False), ("python3:no_such_module", False)):
        assert Package(names=("x",), shown_by=shown_by, purpose="a test").installed is installed


EITHER = "linux-source-6.1|linux-source-6.12"
BOTH = EITHER.replace("|", " ")


@pytest.mark.parametrize(
    ("offers", "has"),
    [(BOTH, ""), ("linux-source-6.12", ""), (BOTH, "linux-source-6.1"), (BOTH, "linux-source-6.12")],
)
def test_one_of_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: str, has: str) -> None:
    chosen = offers.split()[0]
    debian = System(tmp_path, "debian", offers=offers, has=has)
    stated = [] if has else ["apt-get update -qq", f"{APT} {chosen}"]
    assert debian.install(f"# comment\n{EITHER} - what for\n")[0] == stated
    monkeypatch.setenv("PATH", debian.path)
    either = Package(names=tuple(EITHER.split("|")), shown_by="-", purpose="a test")
    assert packages.install_command([either]).endswith(f" {chosen}")
    assert either.installed is bool(has)


def test_another_program_that_installs_is_waited_for(tmp_path: Path) -> None:
    debian = System(tmp_path, "debian", offers=f"{DEBS} user-mode-linux linux-source-6.1")
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
    waiting = f"Waiting for another program that installs packages: {held}"
    assert said.splitlines() == [waiting.format(lock) for lock in ("apt/lists/lock", "dpkg/lock-frontend")]
    assert [line.split()[0] for line in reported] == ["update"] * 3 + ["install"] * 3


def test_without_sudo_the_packages_are_named_and_make_goes_on(tmp_path: Path) -> None:
    debian = System(tmp_path, "debian", offers=DEBS, sudo="exit 1")
    executable(tmp_path / "id", "echo 1000")
    reported, said = debian.install(LIST)
    absent = "fio iproute2 user-mode-linux linux-source-6.1|linux-source-6.12 hping3"
    assert said.endswith(f"somebody who may has to install: {absent}\n")
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
    listed = packages.listed(packages.ALL)
    lab = {package.name for package in listed if {"lab", "controller"} & package.needed_by.keys()}
    assert named == lab - {"python3", "util-linux"}, "which are required or essential"
