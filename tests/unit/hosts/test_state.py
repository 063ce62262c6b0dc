"""The lock with its owner, and the folder that it lies in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.hosts import state
from harness.model.errors import BusyError, RequirementError

pytestmark = pytest.mark.thorough


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of this test; not made yet."""
    place = tmp_path / "harness"
    monkeypatch.setattr(state, "state_folder", lambda: state.own_folder(place))
    return place


# The lock


def test_a_second_run_is_refused_and_reported_who_holds_the_testbed(folder: Path) -> None:
    with state.exclusive("20260101-000000-beef") as held:
        assert held == folder
        with pytest.raises(BusyError) as refused, state.exclusive("20260101-000001-cafe"):
            pytest.fail("it was let in")
        message = refused.value.message
        assert f"run 20260101-000000-beef (process {os.getpid()}, since 20" in message
        assert refused.value.hint is not None
        assert refused.value.exit_code == 2
        # The refusal did not take the holder's name away.
        with pytest.raises(BusyError, match="beef"), state.exclusive("20260101-000002-f00d"):
            pytest.fail("it was let in")


def test_another_process_is_refused_as_well(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.hosts import state\n"
        "state.state_folder = lambda: state.own_folder(Path(sys.argv[1]))\n"
        "with state.exclusive('20260101-000001-cafe'): print('let in')"
    )
    with state.exclusive("20260101-000000-beef"):
        other = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
    assert other.stdout == ""
    assert "BusyError" in other.stderr
    assert "20260101-000000-beef" in other.stderr


CONTENDING = """
import contextlib, sys
from pathlib import Path
from harness.hosts import state
from harness.model.errors import BusyError

here = Path(sys.argv[1])
state._places = lambda: [here / "first", here / "second"]
held = 0
while held < 100:
    with contextlib.suppress(BusyError), state.exclusive("contending") as folder:
        assert folder == here / "first"
        (here / "inside").mkdir()
        (here / "inside").rmdir()
        held += 1
"""


def test_runs_that_begin_while_others_end_hold_the_testbed_one_at_a_time(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CONTENDING, str(tmp_path)]
    contending = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate()[1] for each in contending] == ["", "", ""]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_the_lock_is_free_again_however_the_run_ended(
    folder: Path, error: type[BaseException] | None
) -> None:
    del folder
    try:
        with state.exclusive("first"):
            if error is not None:
                raise error
    except BaseException as raised:
        assert error is not None
        assert isinstance(raised, error)
    with state.exclusive("second") as held:
        assert json.loads((held / "lock").read_bytes())["run_id"] == "second"


def test_nothing_is_left_of_a_run_that_ended(folder: Path) -> None:
    with state.exclusive("first"):
        assert folder.is_dir()
    assert not folder.exists()


def test_a_folder_that_somebody_removes_does_not_spoil_the_end_of_a_run(folder: Path) -> None:
    with state.exclusive("first"):
        shutil.rmtree(folder)
    assert not folder.exists()
    with contextlib.ExitStack() as second:
        with state.exclusive("first"):
            shutil.rmtree(folder)
            second.enter_context(state.exclusive("second"))
        with pytest.raises(BusyError, match="second"), state.exclusive("third"):
            pytest.fail("it was let in")
    assert not folder.exists()


def test_a_journal_that_still_names_something_stays(folder: Path) -> None:
    with state.exclusive("first"):
        (folder / "journal-first.jsonl").write_text("{}", encoding="utf-8")
    assert [file.name for file in folder.iterdir()] == ["journal-first.jsonl"]


def test_the_lock_of_a_killed_run_locks_nobody_out(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "lock").write_text('{"pid": 1, "run_id": "killed", "since": ""}', encoding="utf-8")
    with state.exclusive("next"):
        assert json.loads((folder / "lock").read_bytes())["run_id"] == "next"


@pytest.mark.parametrize("content", [b"", b'{"pid": 1, "run', b"\xff\xfe", b"[]"])
def test_a_holder_that_has_not_written_its_name_is_refused_politely(folder: Path, content: bytes) -> None:
    with state.exclusive("first"):
        (folder / "lock").write_bytes(content)
        with (
            pytest.raises(BusyError, match="another run that has only just begun"),
            state.exclusive("second"),
        ):
            pytest.fail("it was let in")


# The folder


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = state.own_folder(tmp_path / "harness")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert state.own_folder(folder) == folder


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "harness"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(RequirementError, match="only its owner") as refused:
        state.own_folder(folder)
    assert str(folder) in refused.value.message
    assert "rm -r" in (refused.value.hint or "")


def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state.own_folder(tmp_path / "harness")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(RequirementError, match="only its owner"):
        state.own_folder(folder)


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_what_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    place, elsewhere = tmp_path / "harness", tmp_path / "elsewhere"
    if kind == "file":
        place.write_text("", encoding="utf-8")
    else:
        place.symlink_to(elsewhere)
    if kind == "link":
        elsewhere.mkdir(mode=0o700)
    with pytest.raises(RequirementError, match="to be a folder that only its owner"):
        state.own_folder(place)
    assert elsewhere.exists() == (kind == "link")


@pytest.mark.parametrize(
    ("uid", "expected"),
    [(0, "/run/harness"), (1000, "/tmp/harness-1000"), (1001, "/tmp/harness-1001")],
)
@pytest.mark.parametrize("runtime", ["HERE", "", "/nowhere/at/all", None])
def test_each_user_has_one_folder_whatever_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, runtime: str | None, expected: str
) -> None:
    # A login session has a folder of its own, cron has none: both have to find each other's runs.
    monkeypatch.setattr(state, "_is_writable", lambda _: True)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    if runtime is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime.replace("HERE", str(tmp_path)))
    assert state.state_folder() == Path(expected)


@pytest.mark.parametrize("why", ["read-only", "full", "kept as it was"])
def test_where_tmp_takes_nothing_another_folder_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    takes_nothing = {Path("/tmp/harness-1000"), Path("/dev/shm/harness-1000")}

    def is_writable(folder: Path) -> bool:
        if folder in takes_nothing and why != "kept as it was":
            raise OSError(30 if why == "read-only" else 28, why)
        return folder not in takes_nothing

    monkeypatch.setattr(state, "_is_writable", is_writable)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert state.state_folder() == tmp_path / "harness-1000"
    monkeypatch.delenv("TMPDIR")
    with pytest.raises(RequirementError, match="none could be made: /tmp/harness-1000"):
        state.state_folder()


def test_a_folder_that_another_user_has_made_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir(mode=0o700)
    (theirs / "lock").write_text(
        f'{{"pid": {os.getpid()}, "run_id": "theirs", "since": ""}}', encoding="utf-8"
    )
    # Nobody but root could give it away.
    whole = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        found = whole(path)
        return os.stat_result([*found[:4], os.geteuid() + 1, *found[5:]]) if path == theirs else found

    monkeypatch.setattr(Path, "lstat", lstat)
    monkeypatch.setattr(state, "_places", lambda: [theirs, mine])
    assert state.owner() is None
    with state.exclusive("ours") as held:
        assert held == mine and (found := state.owner()) is not None and found.run_id == "ours"
    monkeypatch.setattr(state, "_places", lambda: [theirs])
    with pytest.raises(RequirementError, match=r"none could be made: .*theirs \(another user's\)"):
        state.state_folder()


@pytest.mark.parametrize(
    ("uid", "may_write", "expected"),
    [
        (0, True, "/var/lib/harness"),
        (1000, False, "/var/tmp/harness-1000"),
        (0, False, "/var/tmp/harness-0"),
    ],
    ids=["root", "user", "root of a user namespace"],
)
def test_each_user_has_a_folder_that_a_reboot_does_not_empty(
    monkeypatch: pytest.MonkeyPatch, uid: int, may_write: bool, expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "access", lambda *_: may_write)
    assert state.lasting_folder() == Path(expected)
