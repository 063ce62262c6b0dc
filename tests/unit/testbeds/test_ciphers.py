"""The processor's ciphers for Debian's kernel: source, cache, and what is refused. Nothing is compiled."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.hosts import packages, runner
from harness.model.errors import CommandFailed, HarnessError, RequirementError
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import building, ciphers, kernel
from harness.testbeds.lab.kernels.kernel import Recipe
from tests.unit.testbeds.refusals import refusal
from tests.unit.testbeds.test_kernel import ignore

CONFIG = 'CONFIG_UML=y\nCONFIG_CC_VERSION_TEXT="gcc 12"\n'
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
        answers = {"apt-cache": given.madison, str(tmp_path / "linux"): CONFIG}
        if "download" in argv:
            (Path(argv[1].removeprefix("--chdir=")) / "source.deb").touch()
        return SimpleNamespace(stdout=answers.get(argv[0], ""), status=0)

    def build(_wanted: Recipe, work: Path, _log: Path, _report: object) -> Path:
        given.builds += 1
        (work / "result").mkdir()
        return work / "result"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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


def refused(error: type[HarnessError], words: str) -> None:
    refusal(error, words, ciphers.build, ignore)


def test_they_are_built_once_and_then_found_for_that_release(machine: SimpleNamespace) -> None:
    assert ciphers.cached() is None
    assert [ciphers.build(ignore), ciphers.build(ignore)] == [True, False]
    assert machine.builds == 1
    found = ciphers.cached()
    assert found is not None and found.binary.name == "linux"
    assert found.modules == building.cache_folder() / "ciphers" / ciphers.recipe().key / "lib" / "modules"
    (boot.MODULES / "6.1.176").rename(boot.MODULES / "6.1.180")
    assert ciphers.cached() is None and machine.builds == 1


def test_what_no_kernel_takes_is_not_kept(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kernel: boot.Kernel, _work: Path) -> None:
        raise CommandFailed("it does not take them")

    monkeypatch.setattr(ciphers, "_try", refuse)
    refused(CommandFailed, "it does not take them")
    assert machine.builds == 1 and ciphers.cached() is None
    assert {file.name for file in (building.cache_folder() / "ciphers").iterdir()} <= {"lock", "build.log"}


def test_who_cannot_have_them_is_told_so(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.lacks = ("aes",)
    refused(RequirementError, "but it lacks aes")
    machine.lacks, machine.missing = (), packages.listed(ciphers.PACKAGES)[:1]
    refused(RequirementError, ciphers.WHAT)
    machine.missing = []
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1 << 20))
        refused(RequirementError, "expected 600 MiB of free space")
    assert ciphers.are_possible()
    machine.ran.clear()
    (boot.MODULES / "6.1.176").rename(boot.MODULES / "7.2.12")
    assert not ciphers.are_possible(), "it keeps its ciphers elsewhere"
    refused(RequirementError, r"before Linux 6\.16, .* found 7\.2\.12")
    assert machine.ran == [] and machine.builds == 0


def test_the_source_is_that_of_the_kernel_itself(machine: SimpleNamespace, tmp_path: Path) -> None:
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
    ciphers._require_same(wanted, CONFIG.replace("gcc 12", "gcc 14") + options)
    for taken in (CONFIG, options, CONFIG.replace("UML=y", "UML=m") + options):
        refusal(RequirementError, "but it dropped: CONFIG_", ciphers._require_same, wanted, taken)
    # Ciphers of the own kernel are the same.
    config = kernel.CONFIG.read_text(encoding="utf-8")
    others = set(ciphers.MODULES.values()) - {"CRYPTO_SIMD"}  # which the others select
    assert all(f"CONFIG_{option}=" in config for option in others)
