"""Building the custom kernel, and ciphers for Debian's: keys, cache, sources. Nothing is compiled here."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from harness.hosts import packages, runner
from harness.hosts.journal import Journal
from harness.hosts.packages import Package
from harness.model import LabKernel
from harness.model.errors import BusyError, CommandFailed, RequirementError, UsageError
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot.scratch import MIB
from harness.testbeds.lab.kernels import building, ciphers, kernel, upstream
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.building import BrokenOff, Steps
from harness.testbeds.lab.kernels.kernel import Built, Recipe
from harness.testbeds.lab.kernels.source import Source, Tarball, Tree
from harness.testbeds.lab.kernels.upstream import Upstream
from tests.unit.testbeds.refusals import refusal

pytestmark = pytest.mark.thorough

RECIPE = Recipe("6.1.192-2", "cc (Debian 12) 12.2.0", {"kernel.config": "CONFIG_NET=y\n", "a.patch": ""})


def built(wanted: Recipe) -> Built:
    parts = {name: getattr(wanted, name) for name in ("key", "source_version", "compiler")}
    return Built(**parts, release="6.1.192-harness", sha256="0" * 64, seconds=1.0)


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were to be on the disk, which would wait for whatever else is written to it."""
    folders: list[str] = []
    usual = runner.run

    def run(argv: list[str], **more: Any) -> object:
        if argv[0] != "sync":
            return usual(argv, **more)
        folders.append(argv[-1])
        return None

    monkeypatch.setattr(runner, "run", run)
    return folders


class Workshop:
    """A cache of the test's own, with all that is needed at hand; a build makes a folder and no more."""

    missing: Sequence[Package] = ()
    free_bytes = 10**12
    given: Source | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = building.cache_folder()
        self.bases: list[Path] = []
        monkeypatch.setattr(packages, "missing", lambda: self.missing)
        monkeypatch.setattr(sources, "is_upstream", lambda: False)
        monkeypatch.setattr(kernel, "recipe", self._recipe)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=self.free_bytes))
        monkeypatch.setattr(kernel, "_build", self.build)

    def build(self, wanted: Recipe, given: Source | None, work: Path, base: Path, *_: object) -> Path:
        self.given = given
        self.bases.append(base)
        result = work / "result"
        (result / "modules").mkdir(parents=True)
        (result / "build.json").write_bytes(msgspec.json.encode(built(wanted)))
        return result

    def _recipe(self, source: Source | None = None) -> Recipe:
        return RECIPE if source is None else msgspec.structs.replace(RECIPE, source_version=source.identity)

    @property
    def builds(self) -> int:
        return len(self.bases)

    def names(self) -> set[str]:
        return {entry.name for entry in self.cache.iterdir()}


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(monkeypatch)


def ignore(_doing: str, _part: float) -> None:
    pass


def test_every_input_is_in_the_key_and_their_order_is_not() -> None:
    again = Recipe(RECIPE.source_version, RECIPE.compiler, dict(reversed(RECIPE.files.items())))
    assert again.key == RECIPE.key
    assert len(RECIPE.key) == 12 and int(RECIPE.key, 16) >= 0
    for name, changed in (
        ("source_version", "6.1.193-1"),
        ("compiler", "cc 13"),
        ("files", {**RECIPE.files, "kernel.config": "CONFIG_NET=n\n"}),
        ("files", {**RECIPE.files, "b.patch": ""}),
        ("files", {"kernel.config": "", "a.patch": "CONFIG_NET=y\n"}),
    ):
        assert msgspec.structs.replace(RECIPE, **{name: changed}).key != RECIPE.key, changed


@pytest.fixture
def dpkg(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """In place of dpkg and the compiler: the packages that are installed, with their versions."""
    installed: dict[str, str] = {}

    def run(argv: list[str], *, check: bool = True) -> SimpleNamespace:
        del check
        if argv[0] != "dpkg-query":
            return SimpleNamespace(stdout="cc 12\nCopyright\n")
        version = installed.get(argv[-1])
        return SimpleNamespace(stdout=f"install ok installed {version}" if version else "")

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(shutil, "which", lambda program, path=None: f"{path}/{program}")
    return installed


def left_out(recipe: Recipe) -> set[str]:
    """The options of the shipped configuration that a recipe does not have; all else is the same."""
    asked = kernel.CONFIG.read_text(encoding="utf-8").splitlines()
    kept = recipe.files["kernel.config"].splitlines()
    left = [line for line in asked if line not in kept]
    assert [line for line in asked if line not in left] == kept
    return {line.partition("=")[0] for line in left}


LEGACY = {"CONFIG_NETFILTER_XTABLES_LEGACY", "CONFIG_IP_NF_IPTABLES_LEGACY"}
IN_THE_LIBRARY = ("CHACHA20_X86_64", "POLY1305_X86_64", "SHA1_SSSE3", "SHA256_SSSE3", "SHA512_SSSE3")


def test_a_recipe_is_of_the_shipped_files_without_what_its_source_does_not_know(dpkg: dict[str, str]) -> None:
    dpkg["linux-source-5.10"] = "5.10.1-1"
    refusal(RequirementError, "packages that are missing: linux-source", kernel.recipe)
    dpkg["linux-source-6.12"] = "6.12.117-1"
    found = kernel.recipe()
    assert found.source_version == "6.12.117-1"
    assert left_out(found) == {"CONFIG_BASE_FULL", *LEGACY}
    dpkg["linux-source-7.2"] = "7.2.12-1"
    assert kernel.recipe().source_version == "6.12.117-1"
    dpkg["linux-source-6.1"] = "6.1.192-2"
    found = kernel.recipe()
    assert (found.source_version, found.compiler) == ("6.1.192-2", "cc 12"), "the first, where there are both"
    shipped = {"kernel.config", *(patch.name for patch in kernel.PATCHES)}
    assert set(found.files) == shipped - {kernel.COSTED}
    assert set(kernel.recipe(simulated=True).files) == shipped
    assert left_out(found) == {*sources.missed((6, 1))} | LEGACY


def test_sources_limits_and_options_are_those_of_the_lists() -> None:
    names = next(p.names for p in packages.listed() if p.names[0].startswith("linux-source"))
    assert names == sources.PACKAGES
    asked = kernel.CONFIG.read_text(encoding="utf-8")
    patches = {patch.name for patch in kernel.PATCHES}
    assert all(limit.what in patches or f"\n{limit.what}=" in asked for limit in sources.LIMITS)
    assert all(limit.since < limit.before and limit.why for limit in sources.LIMITS)
    # Every group of the configuration says who needs it.
    assert all(block.startswith("#") for block in asked.split("\n\n"))
    lines = [line for line in asked.splitlines() if line and not line.startswith("#")]
    assert len(lines) == len({line.partition("=")[0] for line in lines}), "an option appears twice"
    # A line that the source drops is refused.
    taken = "CONFIG_B=m\nCONFIG_A=y\nCONFIG_C=y\n"
    kernel.require_none(kernel.dropped("# why\nCONFIG_A=y\nCONFIG_B=m\n", taken))
    lacks = kernel.dropped("CONFIG_A=y\nCONFIG_B=m\nCONFIG_D=y\n", "CONFIG_A=y\nCONFIG_B=y\n")
    refusal(RequirementError, "dropped: CONFIG_B=m, CONFIG_D=y", kernel.require_none, lacks)


def test_what_the_processor_lacks_is_reported_by_whole_names(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    for text, lacks in (
        ("model name : x\nflags\t\t: fpu vaes vpclmulqdq ssse3\nbugs : aes\n", ("aes", "pclmulqdq")),
        ("flags\t\t: fpu ssse3 aes pclmulqdq\n", ()),
        ("", kernel.INSTRUCTIONS),
    ):
        cpuinfo.write_text(text, encoding="utf-8")
        assert kernel.lacking_instructions(cpuinfo) == lacks


def test_a_kernel_is_built_once(workshop: Workshop, synced: list[str]) -> None:
    first, new = kernel.build(ignore)
    assert new and workshop.builds == 1 and synced == [str(workshop.cache / "building" / "result")]
    assert kernel.build(ignore) == (first, False) and workshop.builds == 1
    folder = workshop.cache / RECIPE.key
    made = boot.Kernel(binary=folder / "linux", modules=folder / "modules", sha256=first.built.sha256)
    assert kernel.custom_kernel() == dataclasses.replace(made, options=("ipv6.disable=1",))
    assert first.folder == folder and workshop.names() == {RECIPE.key, "lock"}


def test_a_kernel_is_booted_as_it_was_built(workshop: Workshop, tmp_path: Path) -> None:
    made, _ = kernel.build(ignore)
    booted, console = made.kernel, tmp_path / "console"

    def boot_it() -> None:
        journal = Journal(tmp_path / "journal")
        with boot.booted(["true"], journal=journal, console=console, kernel=kernel.custom_kernel()):
            pytest.fail("it was booted")

    for text in ("", "another kernel"):
        booted.binary.write_text(text, encoding="utf-8")
        hint = refusal(RequirementError, "as it was built, with the SHA-256 000000000000…", boot_it)
        assert hint.startswith(f"remove {made.folder} and build it again: ")
    booted.binary.unlink()
    refusal(RequirementError, "found nothing", booted.require_unchanged)
    booted.binary.write_text("", encoding="utf-8")
    for sha256 in (boot.file_sha256(booted.binary), ""):
        dataclasses.replace(booted, sha256=sha256).require_unchanged()
    assert not console.exists() and workshop.builds == 1
    # Nor is it found by a description that was damaged.
    for text in ("", "{", "[]", "{}"):
        (made.folder / "build.json").write_text(text, encoding="utf-8")
        for ask in (kernel.custom_kernel, lambda: kernel.build(ignore), lambda: kernel.named(RECIPE.key)):
            hint = refusal(RequirementError, r"expected .*build\.json unchanged since", ask)
            assert hint.startswith(f"remove {made.folder} "), text
    assert workshop.builds == 1


@pytest.mark.parametrize("error", [CommandFailed("cc was killed"), KeyboardInterrupt()])
def test_of_a_build_that_ends_early_nothing_counts(workshop: Workshop, error: BaseException) -> None:
    def fail(*given: Any) -> None:
        workshop.build(*given)
        raise error

    with pytest.MonkeyPatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(kernel, "_build", fail)
        kernel.build(ignore)
    assert workshop.names() == {"lock"}
    assert kernel.cached(RECIPE) is None
    assert "make lab-kernel" in refusal(RequirementError, "has not been built", kernel.custom_kernel)
    # Nor does what a killed one left; two at once are refused.
    left = workshop.cache / "building" / "result"
    left.mkdir(parents=True)
    (left / "build.json").write_bytes(msgspec.json.encode(built(RECIPE)))
    (left / "of the killed one").touch()
    with (workshop.cache / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert refusal(BusyError, "another process is building", kernel.build, ignore)
    assert workshop.builds == 1
    found, new = kernel.build(ignore)
    assert new and {entry.name for entry in found.folder.iterdir()} == {"build.json", "modules"}


OTHER = Tarball(title="x.tar.xz", version=(6, 12), identity="6.12.9 sha256:0", path=Path("/dev/null"))


def test_another_source_is_another_kernel_with_the_default_one(workshop: Workshop, tmp_path: Path) -> None:
    first, _ = kernel.build(ignore)
    other, new = kernel.build(ignore, OTHER)
    assert new and workshop.given is OTHER
    assert first.folder != other.folder and kernel.custom_kernel() == first.kernel
    assert kernel.custom_kernel(other.built.key) == other.kernel
    assert kernel.named(other.built.key) == other
    refusal(UsageError, "found 'abcdefabcdef'", kernel.named, "abcdefabcdef")
    refusal(RequirementError, "expected the kernel abcdefabcdef", kernel.custom_kernel, "abcdefabcdef")
    tree = linux(tmp_path / "its tree")
    hint = refusal(RequirementError, "has not been built", kernel.named, str(tree))
    assert hint == f"build it: harness kernel build --source '{tree}'"


def linux(folder: Path, version: str = "6.12.9") -> Path:
    """What says that a folder is the source of Linux."""
    major, minor, patch = version.split(".")
    (folder / "kernel").mkdir(parents=True)
    lines = f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = {patch}\nEXTRAVERSION =\nNAME = x\n"
    (folder / "Makefile").write_text(f"# SPDX\n{lines}mrproper:\n\trm -f vmlinux.o\n", encoding="utf-8")
    (folder / "kernel" / "fork.c").write_text("int fork;\n", encoding="utf-8")
    return folder


def unpacked(source: Source, folder: Path) -> set[str]:
    folder.mkdir()
    put = source.renew if isinstance(source, Tree) else source.unpack
    put(lambda *argv: subprocess.run(argv, check=True, capture_output=True), folder)
    return set(sources._walked(folder))


def test_a_tree_is_copied_and_stays_as_it_was(tmp_path: Path) -> None:
    tree = linux(tmp_path / "tree")
    (tree / "vmlinux.o").touch()
    source = sources.of(str(tree))
    assert source.version == (6, 12) and source.identity.startswith("6.12.9 tree:")
    assert unpacked(source, tmp_path / "copy") == {"Makefile", "kernel/fork.c"}
    assert (tree / "vmlinux.o").exists(), "it was built there, and is the user's"
    assert sources.of(str(tree)).identity == source.identity
    (tree / "kernel" / "fork.c").write_text("int forked;\n", encoding="utf-8")
    assert sources.of(str(tree)).identity != source.identity


def test_a_tarball_says_its_version_and_what_is_no_source_is_refused(tmp_path: Path) -> None:
    linux(tmp_path / "linux-7.2.13", "7.2.13")
    (tmp_path / "linux-7.2.13" / "kernel" / "Makefile").write_text("VERSION = 9\n", encoding="utf-8")
    file = tmp_path / "linux.tar.gz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(file), "linux-7.2.13"], check=True)
    source = sources.of(str(file))
    assert (source.title, source.version) == ("linux.tar.gz", (7, 2))
    assert source.identity.startswith("7.2.13 sha256:")
    assert unpacked(source, tmp_path / "copy") == {"Makefile", "kernel/Makefile", "kernel/fork.c"}
    file.write_text("no archive", encoding="utf-8")
    for path in (tmp_path, file):
        refusal(UsageError, "found no Makefile with its version", sources.of, str(path))
    refusal(UsageError, "expected Debian's package such as", sources.of, "linux-source")


def test_a_package_is_installed_or_named(dpkg: dict[str, str]) -> None:
    dpkg["linux-source-7.2"] = "7.2.13-1"
    found = sources.of("linux-source-7.2")
    assert (found.title, found.version) == ("linux-source-7.2 7.2.13-1", (7, 2))
    hint = refusal(RequirementError, r"missing: linux-source-6\.19", sources.of, "linux-source-6.19")
    assert hint.endswith("apt-get install --no-install-recommends linux-source-6.19")
    # Radios are for kernels before Linux 7.
    dpkg["linux-source-6.12"] = "6.12.117-1"
    assert kernel.has_radios() and kernel.has_radios("6.1.192-harness")
    assert not kernel.has_radios("7.2-rc1-harness")


@pytest.mark.usefixtures("dpkg")
def test_patches_and_lines_are_for_versions() -> None:
    for version, has_xstate, missed in (
        ((6, 12), True, set()),
        ((7, 2), False, {"CONFIG_MAC80211_HWSIM", *(f"CONFIG_CRYPTO_{name}" for name in IN_THE_LIBRARY)}),
    ):
        made = kernel.recipe(dataclasses.replace(OTHER, version=version))
        assert "clock.patch" in made.files and ("xstate.patch" in made.files) is has_xstate, version
        assert set(sources.missed(version)) == missed
    without = msgspec.structs.replace(built(RECIPE), lacks=("CONFIG_UML_NET=y",))
    reported = kernel.lacking(without, dataclasses.replace(OTHER, version=(7, 2)))
    assert reported.startswith("Linux 6.1.192-harness does not have CONFIG_MAC80211_HWSIM (a disk's data ")
    assert reported.endswith(", CONFIG_UML_NET=y: what cannot work without them is skipped")
    assert kernel.lacking(built(RECIPE), OTHER) == ""


def test_what_a_build_needs_is_named_before_anything_is_unpacked(workshop: Workshop) -> None:
    workshop.missing = [Package(names=(n,), shown_by=n, purpose="its build") for n in ("bc", "flex")]
    hint = refusal(RequirementError, r"bc \(its build\), flex \(its build\)", kernel.build, ignore)
    assert hint.endswith("apt-get install --no-install-recommends bc flex")
    assert workshop.builds == 0 and not workshop.cache.exists()
    workshop.missing = [Package(names=sources.PACKAGES, shown_by="-", purpose="the kernel: its source")]
    refusal(RequirementError, "packages that are missing: linux-source", kernel.build, ignore)
    assert kernel.build(ignore, OTHER)[1], "another source needs none of Debian's"
    workshop.missing, workshop.free_bytes = [], 100 * MIB
    assert "XDG_CACHE_HOME" in refusal(RequirementError, "found 100", kernel.build, ignore)
    assert workshop.builds == 1


Reported = list[tuple[str, float]]


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Steps, Reported]:
    """The steps of a build and what they report; a step is looked at often."""
    monkeypatch.setattr(building, "POLL_S", 0.01)
    (log := tmp_path / "log").touch()
    reported: Reported = []

    def report(*what: Any) -> None:
        reported.append(what)

    return Steps(what="the kernel", wrapper=(), temporary=tmp_path, log=log, report=report), reported


def test_a_step_has_no_user_variables(steps: tuple[Steps, Reported], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CFLAGS", "MAKEFLAGS", "KBUILD_BUILD_TIMESTAMP"):
        monkeypatch.setenv(name, "of the user")
    made, reported = steps
    made.run("looking", "env", until=(0.5, 1), env={"MORE": "1"})
    seen = dict(line.split("=", 1) for line in made.log.read_text(encoding="utf-8").splitlines())
    assert seen == {**building.ENVIRONMENT, "TMPDIR": str(made.temporary), "MORE": "1"}
    assert reported and reported[0] == ("looking", 0.5)


@pytest.mark.parametrize("wrapper", [(), ("sh", "-c", '"$@"; exit $?', "sh")], ids=["plain", "wrapped"])
def test_a_failed_step_shows_its_last_words(steps: tuple[Steps, Reported], wrapper: tuple[str, ...]) -> None:
    made = dataclasses.replace(steps[0], wrapper=wrapper)
    for script, is_broken_off in (("echo no such register; exit 2", False), ("kill -9 $$", True)):
        with pytest.raises(CommandFailed, match="compiling failed: no such register") as failed:
            made.run("compiling", "sh", "-c", script, until=(0, 1))
        assert isinstance(failed.value, BrokenOff) is is_broken_off
        assert str(made.log) in (failed.value.hint or "")


def test_a_silent_step_is_broken_off(steps: tuple[Steps, Reported], monkeypatch: pytest.MonkeyPatch) -> None:
    def is_waited_for(silence_s: float) -> bool:
        monkeypatch.setattr(building, "SILENCE_S", silence_s)
        slow = f"for n in 1 2 3 4 5 6 7 8; do echo CC; sleep {silence_s / 3}; done"
        with contextlib.suppress(CommandFailed):
            steps[0].run("compiling", "sh", "-c", slow, until=(0, 1))
            return True
        return False

    # A busy machine may keep its words back for too long.
    assert is_waited_for(0.3) or is_waited_for(10.0)
    monkeypatch.setattr(building, "SILENCE_S", 0.3)
    with pytest.raises(BrokenOff, match=r"compiling printed nothing for 0\.3 s: CC"):
        steps[0].run("compiling", "sleep", "60", until=(0, 1))


def test_progress_follows_what_is_printed(steps: tuple[Steps, Reported]) -> None:
    made, reported = steps
    made.log.write_text("of the step before\n", encoding="utf-8")
    script = "for n in 1 2 3 4 5 6 7 8; do echo CC; sleep 0.03; done"
    made.run("compiling", "sh", "-c", script, until=(0.2, 0.6), lines=4)
    parts = [part for _, part in reported]
    assert parts == sorted(parts) and parts[0] >= 0.2 and parts[-1] == 0.6


ARCHIVE = b"an archive"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A server on this machine in place of kernel.org: what it has, and what it was asked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(200 if found.content else 404)
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/pub/linux-6.1.159.tar.xz"
        linux = Upstream(release="6.1.159", url=url, sha256=hashlib.sha256(ARCHIVE).hexdigest())
        found = SimpleNamespace(content=ARCHIVE, asked=[], linux=linux)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_a_source_is_fetched_once_and_unpacked(site: SimpleNamespace, tmp_path: Path) -> None:
    linux = site.linux
    linux.fetch(ignore)
    linux.fetch(ignore)
    assert site.asked == ["/pub/linux-6.1.159.tar.xz"]
    assert linux.path == building.cache_folder() / "sources" / "linux-6.1.159.tar.xz"
    assert [file.name for file in linux.path.parent.iterdir()] == [linux.name]
    reported: list[tuple[str, ...]] = []
    linux.unpack(lambda *argv: reported.append(argv), tmp_path)
    assert reported[0][:2] == ("tar", "--extract") and f"--directory={tmp_path}" in reported[0]
    assert (linux.version, linux.title) == ((6, 1), "linux-6.1.159.tar.xz of 127.0.0.1")


def test_what_was_put_there_by_hand_is_checked_and_what_comes_too(site: SimpleNamespace) -> None:
    linux = site.linux
    linux.path.parent.mkdir(parents=True)
    linux.path.write_bytes(ARCHIVE)
    linux.fetch(ignore)
    assert site.asked == []
    linux.path.write_bytes(b"half of it")
    linux.fetch(ignore)
    assert linux.path.read_bytes() == ARCHIVE
    linux.path.unlink()
    site.content = b"something else"
    refusal(CommandFailed, f"with the SHA-256 {linux.sha256}, found ", linux.fetch, ignore)
    site.content = b""
    hint = refusal(RequirementError, r"it cannot be fetched: .*Not Found", linux.fetch, ignore)
    assert f"put that file into {linux.path.parent}" in hint
    nobody = dataclasses.replace(linux, url="http://127.0.0.1:9/linux-6.1.159.tar.xz")
    refusal(RequirementError, r"cannot be fetched: .*refused", nobody.fetch, ignore)
    assert not list(linux.path.parent.iterdir())


def test_kernel_org_is_asked_where_the_system_has_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    linux = upstream.LINUX
    assert linux.url == f"https://cdn.kernel.org/pub/linux/kernel/v6.x/linux-{linux.release}.tar.xz"
    assert linux.version == (6, 1) and re.fullmatch("[0-9a-f]{64}", linux.sha256), "it has virtual time"
    source = Package(names=sources.PACKAGES, shown_by="-", purpose="the kernel: its source")
    compiler = Package(names=("gcc",), shown_by="cc", purpose="the kernel: compiling")
    monkeypatch.setattr(packages, "missing", lambda: [source, compiler])
    for installed, offered, absent in (
        (("linux-source-6.1", "6.1.192-2"), True, [source, compiler]),
        (None, True, [source, compiler]),
        (None, False, [compiler]),
    ):
        monkeypatch.setattr(packages, "installed_version", lambda _names, found=installed: found)
        monkeypatch.setattr(packages, "are_offered", lambda _names, found=offered: found)
        assert sources.is_upstream() is (not offered)
        assert sources.absent_packages() == absent
        assert sources.absent_packages(is_given=True) == [compiler]
        if not offered:
            assert sources.of(None) is linux
        elif installed is None:
            refusal(RequirementError, "linux-source-", sources.of, None)


def test_the_lab_takes_its_custom_kernel_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    there, absent = Mock(), Mock(side_effect=RequirementError("expected a kernel, found none"))
    for debian, own, usual in (
        (there, there, LabKernel.DEBIAN),
        (absent, there, LabKernel.CUSTOM),
        (absent, absent, LabKernel.DEBIAN),  # whose error says what to do
    ):
        monkeypatch.setattr(boot, "debian_kernel", debian)
        monkeypatch.setattr(kernel, "custom_kernel", own)
        assert kernel.usual() is usual


DEBIANS = 'CONFIG_UML=y\nCONFIG_CC_VERSION_TEXT="gcc 12"\n'
MADISON = """\
linux-source-6.1 | 6.1.192-2 | http://debian bookworm-security/main amd64 Packages
linux-source-6.1 | 6.1.176-1 | http://debian bookworm/main amd64 Packages
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Debian's kernel 6.1.176, a cache, and answers of apt, dpkg and the lab that a test can change."""
    modules = tmp_path / "modules"
    (modules / "6.1.176").mkdir(parents=True)
    (modules / "6.1.176" / "modules.dep").touch()
    given = SimpleNamespace(installed=None, madison=MADISON, lacks=(), missing=[], ran=[], builds=0)

    def run(argv: list[str], **_: object) -> SimpleNamespace:
        given.ran.append(argv)
        answers = {"apt-cache": given.madison, str(tmp_path / "linux"): DEBIANS}
        if "download" in argv:
            (Path(argv[1].removeprefix("--chdir=")) / "source.deb").touch()
        return SimpleNamespace(stdout=answers.get(argv[0], ""), status=0)

    def build(_wanted: Recipe, work: Path, _log: Path, _report: object) -> Path:
        given.builds += 1
        (work / "result").mkdir()
        return work / "result"

    monkeypatch.setattr(boot, "MODULES", modules)
    debian = boot.Kernel(binary=tmp_path / "linux", modules=modules)
    monkeypatch.setattr(boot, "debian_kernel", lambda: debian)
    monkeypatch.setattr(boot, "require_visible", lambda _path, _what: None)
    monkeypatch.setattr(kernel, "lacking_instructions", lambda: given.lacks)
    monkeypatch.setattr(packages, "missing", lambda _name: given.missing)
    monkeypatch.setattr(packages, "installed_version", lambda _names: given.installed)
    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(ciphers, "_build", build)
    monkeypatch.setattr(ciphers, "_try", lambda _kernel, _work: None)
    return given


def test_ciphers_are_built_once_for_a_release_whose_kernel_takes_them(machine: SimpleNamespace) -> None:
    assert ciphers.cached() is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ciphers, "_try", Mock(side_effect=CommandFailed("it does not take them")))
        refusal(CommandFailed, "it does not take them", ciphers.build, ignore)
    assert machine.builds == 1 and ciphers.cached() is None
    assert {file.name for file in (building.cache_folder() / "ciphers").iterdir()} <= {"lock", "build.log"}
    assert [ciphers.build(ignore), ciphers.build(ignore)] == [True, False]
    found = ciphers.cached()
    assert found is not None and found.binary.name == "linux"
    assert found.modules == building.cache_folder() / "ciphers" / ciphers.recipe().key / "lib" / "modules"
    (boot.MODULES / "6.1.176").rename(boot.MODULES / "6.1.180")
    assert ciphers.cached() is None and machine.builds == 2


def test_who_cannot_have_ciphers_hears_it(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.lacks = ("aes",)
    refusal(RequirementError, "but it lacks aes", ciphers.build, ignore)
    machine.lacks, machine.missing = (), packages.listed(ciphers.PACKAGES)[:1]
    refusal(RequirementError, ciphers.WHAT, ciphers.build, ignore)
    machine.missing = []
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1 << 20))
        refusal(RequirementError, "expected 600 MiB of free space", ciphers.build, ignore)
    assert ciphers.are_possible()
    machine.ran.clear()
    (boot.MODULES / "6.1.176").rename(boot.MODULES / "7.2.12")
    assert not ciphers.are_possible(), "it keeps its ciphers elsewhere"
    refusal(RequirementError, r"before Linux 6\.16, .* found 7\.2\.12", ciphers.build, ignore)
    assert machine.ran == [] and machine.builds == 0


def test_the_source_of_ciphers_is_that_of_the_kernel_itself(machine: SimpleNamespace, tmp_path: Path) -> None:
    wanted = ciphers.recipe()
    for installed, title, path in (
        ("6.1.176-3", "linux-source-6.1 6.1.176-3", Path("/usr/src/linux-source-6.1.tar.xz")),
        ("6.1.192-2", "linux-source-6.1 6.1.176-1", tmp_path / "package/usr/src/linux-source-6.1.tar.xz"),
    ):
        machine.installed = ("linux-source-6.1", installed)
        source = ciphers._source(wanted, tmp_path, ignore)
        assert (source.title, source.path) == (title, path)
    assert "linux-source-6.1=6.1.176-1" in machine.ran[-2]
    machine.madison = MADISON.splitlines(keepends=True)[0]
    said = r"of Linux 6\.1\.176, of which .* found 6\.1\.192"
    refusal(RequirementError, said, ciphers._source, wanted, tmp_path, ignore)


@pytest.mark.usefixtures("machine")
def test_the_configuration_stays_debians() -> None:
    wanted = ciphers.recipe()
    options = "".join(f"CONFIG_{option}=m\n" for option in ciphers.MODULES.values())
    ciphers._require_same(wanted, DEBIANS.replace("gcc 12", "gcc 14") + options)
    for taken in (DEBIANS, options, DEBIANS.replace("UML=y", "UML=m") + options):
        refusal(RequirementError, "but it dropped: CONFIG_", ciphers._require_same, wanted, taken)
    # Ciphers of the custom kernel are the same.
    config = kernel.CONFIG.read_text(encoding="utf-8")
    others = set(ciphers.MODULES.values()) - {"CRYPTO_SIMD"}  # which the others select
    assert all(f"CONFIG_{option}=" in config for option in others)
