"""The lab before it boots: where its files and its memory go, and how its settings are written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import lab
from harness.errors import RequirementError
from harness.lab import MIB, Lab, ScratchFolder, require_visible, roomy_folder
from tests.unit.fakes import World

HOSTILE = ["plain", "a b", "it's", '$(touch PWNED)`touch PWNED`"; touch PWNED', "new\nline", "-n", "ü\\n*?"]


@pytest.fixture(autouse=True)
def _no_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    made = [tmp_path / name for name in ("first", "second")]
    for folder in made:
        folder.mkdir()
    return list(map(str, made))


class FileSystems:
    """In place of statvfs(2): megabytes free and flags, by folder; plenty and none elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_mib: dict[str, int] = {}
        self.flags: dict[str, int] = {}
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def _statvfs(self, path: str) -> SimpleNamespace:
        free = self.free_mib.get(path, 10**6)
        return SimpleNamespace(f_flag=self.flags.get(path, 0), f_bavail=free * 256, f_frsize=4096)


@pytest.fixture
def file_systems(monkeypatch: pytest.MonkeyPatch) -> FileSystems:
    return FileSystems(monkeypatch)


# Where there is room


def test_the_first_folder_that_will_do_is_taken(folders: list[str], file_systems: FileSystems) -> None:
    assert roomy_folder(512 * MIB, folders) == Path(folders[0])
    file_systems.free_mib[folders[0]] = 511
    assert roomy_folder(512 * MIB, folders) == Path(folders[1])
    file_systems.free_mib[folders[0]] = 512
    assert roomy_folder(512 * MIB, folders) == Path(folders[0])


def test_a_folder_that_forbids_execution_is_passed_over(
    folders: list[str], file_systems: FileSystems
) -> None:
    file_systems.flags[folders[0]] = os.ST_NOEXEC
    assert roomy_folder(MIB, folders) == Path(folders[1])


def test_a_folder_that_may_not_be_written_is_passed_over(
    folders: list[str], file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    del file_systems
    monkeypatch.setattr(os, "access", lambda path, _mode: path != folders[0])
    assert roomy_folder(MIB, folders) == Path(folders[1])


def test_the_users_choice_goes_before_all_others(
    folders: list[str], file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", folders[1])
    assert roomy_folder(MIB, folders) == Path(folders[1])
    file_systems.free_mib[folders[1]] = 0
    assert roomy_folder(MIB, folders) == Path(folders[0])


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b", "quo'te", "x\ny", "$x", "relative", "FILE", "MISSING"])
def test_a_choice_that_no_kernel_could_be_told_is_passed_over(
    tmp_path: Path, folders: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / name
    if name == "FILE":
        place.write_text("", encoding="utf-8")
    elif name != "MISSING":
        place.mkdir()
    monkeypatch.setenv("TMPDIR", name if name == "relative" else str(place))
    assert roomy_folder(1, folders) == Path(folders[0])


def test_without_room_all_that_was_tried_is_named(
    tmp_path: Path, folders: list[str], file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "o dd"
    odd.mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    file_systems.free_mib[folders[0]] = 64
    file_systems.flags[folders[1]] = os.ST_NOEXEC
    with pytest.raises(RequirementError) as refused:
        roomy_folder(544 * MIB, folders)
    message = refused.value.message
    assert "a folder with 544 MiB free that allows execution" in message
    assert f"{folders[0]} (64 MiB free)" in message
    assert f"{folders[1]} (noexec)" in message
    assert "o dd' (not absolute, or unusual characters" in message
    assert "TMPDIR" in (refused.value.hint or "")


# What it is told


@pytest.mark.parametrize("word", HOSTILE)
def test_the_command_reaches_the_lab_word_by_word(tmp_path: Path, word: str) -> None:
    """As init.sh reads it: the settings are sourced, the command is evaluated."""
    state, results = tmp_path / "state", tmp_path / "res ults"
    state.mkdir()
    results.mkdir()
    lab._write_settings(state, ["printf", "%s|", word, "last"], results, lab.MODULES)
    script = '. "$1/settings"; test "$STATE" = "$1" || exit 9; printf "%s/" "$RESULTS"; eval "$COMMAND"'
    done = subprocess.run(
        ["/bin/sh", "-euc", script, "sh", str(state)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout == f"yes/{word}|last|"
    assert not (tmp_path / "PWNED").exists()
    assert (state / "results").resolve() == results
    assert (state / "init.sh").read_bytes() == (lab.HERE / "init.sh").read_bytes()


def test_hostile_folders_of_state_are_quoted(tmp_path: Path) -> None:
    for number, word in enumerate(HOSTILE):
        state = tmp_path / f"{number}{word}".replace("/", "_")
        state.mkdir()
        lab._write_settings(state, ["true"], None, lab.MODULES)
        done = subprocess.run(
            ["/bin/sh", "-euc", '. "$1/settings"; printf "%s|%s" "$STATE" "$RESULTS"', "sh", str(state)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        assert done.stdout == f"{state}|"
        assert not (state / "results").exists()
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("path", ["/run/user/1000/venv", "/dev/shm/venv", "/proc/self", "/sys", "/run"])
def test_what_the_lab_cannot_see_is_refused(path: str) -> None:
    with pytest.raises(
        RequirementError, match=rf"the harness is {path}, which the lab cannot see"
    ) as refused:
        require_visible(Path(path), "the harness")
    assert refused.value.hint


def test_a_link_to_what_the_lab_cannot_see_is_refused(tmp_path: Path) -> None:
    (tmp_path / "venv").symlink_to("/dev/shm/venv")
    with pytest.raises(RequirementError, match="it has its own /dev"):
        require_visible(tmp_path / "venv" / "bin", "the harness")


@pytest.mark.parametrize("path", ["/home/me/venv", "/usr", "/runner/x", "/developer", "/srv/run/x"])
def test_what_the_lab_can_see_is_let_through(path: str) -> None:
    require_visible(Path(path), "the harness")


# What it leaves


def test_the_scratch_folder_is_private_and_goes(tmp_path: Path) -> None:
    world = World()
    folder = ScratchFolder(str(tmp_path / "harness-lab-1"))
    folder.acquire(world.host("machine"))
    folder.release(world.host("machine"))
    assert [command.argv for command in world.commands] == [
        ("mkdir", "-m", "0700", folder.path),
        ("rm", "-rf", "--one-file-system", folder.path),
    ]


@pytest.mark.parametrize(
    ("console", "status"),
    [
        ("", None),
        ("booting\nharness-lab-exit 0\nHalting.\n", 0),
        ("harness-lab-exit 1\nharness-lab-exit 137\n", 137),
        ("Kernel panic - not syncing\n", None),
    ],
)
def test_the_status_of_the_command_is_told_on_the_console(
    tmp_path: Path, console: str, status: int | None
) -> None:
    (tmp_path / "console").write_text(console, encoding="utf-8")
    with subprocess.Popen(["true"]) as process:
        booted = Lab(process=process, console=tmp_path / "console")
        assert booted.exit_status() == status
