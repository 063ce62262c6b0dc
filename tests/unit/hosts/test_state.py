"""The lock with its owner, and the folder that it lies in."""

from __future__ import annotations

import contextlib
import itertools
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


def assert_busy(run_id: str, holder: str) -> BusyError:
    with pytest.raises(BusyError, match=holder) as refused, state.exclusive(run_id):
        pytest.fail("it was let in")
    return refused.value


def holder(folder: Path) -> str:
    return str(json.loads((folder / "lock").read_bytes())["run_id"])


def test_a_second_run_is_refused_and_reported_who_holds_the_testbed(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.hosts import state\n"
        "state.state_folder = lambda: state.own_folder(Path(sys.argv[1]))\n"
        "with state.exclusive('20260101-000001-cafe'): print('let in')"
    )
    with state.exclusive("20260101-000000-beef") as held:
        assert held == folder
        refused = assert_busy("20260101-000001-cafe", "run 20260101-000000-beef")
        assert f"run 20260101-000000-beef (process {os.getpid()}, since 20" in refused.message
        assert refused.hint is not None and refused.exit_code == 2
        assert_busy("20260101-000002-f00d", "beef")  # the refusal did not take the holder's name away
        argv = [sys.executable, "-c", code, str(folder)]
        other = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert other.stdout == ""
    assert "BusyError" in other.stderr and "20260101-000000-beef" in other.stderr


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
def test_the_lock_is_free_however_the_run_ended(folder: Path, error: type[BaseException] | None) -> None:
    with pytest.raises(error) if error else contextlib.nullcontext(), state.exclusive("first"):
        assert folder.is_dir()
        if error is not None:
            raise error
    assert not folder.exists(), "nothing is left of a run that ended"
    with state.exclusive("second") as held:
        assert holder(held) == "second"


def test_a_folder_that_somebody_removes_does_not_spoil_the_end_of_a_run(folder: Path) -> None:
    with state.exclusive("first"):
        shutil.rmtree(folder)
    assert not folder.exists()
    with contextlib.ExitStack() as second:
        with state.exclusive("first"):
            shutil.rmtree(folder)
            second.enter_context(state.exclusive("second"))
        assert_busy("third", "second")
    assert not folder.exists()


def test_a_journal_that_still_names_something_stays_and_a_lock_of_a_killed_run(folder: Path) -> None:
    with state.exclusive("first"):
        (folder / "journal-first.jsonl").write_text("{}", encoding="utf-8")
    assert [file.name for file in folder.iterdir()] == ["journal-first.jsonl"]
    (folder / "lock").write_text('{"pid": 1, "run_id": "killed", "since": ""}', encoding="utf-8")
    with state.exclusive("next"):
        assert holder(folder) == "next"


def test_a_holder_that_has_not_written_its_name_is_refused_politely(folder: Path) -> None:
    with state.exclusive("first"):
        for content in (b"", b'{"pid": 1, "run', b"\xff\xfe", b"[]"):
            (folder / "lock").write_bytes(content)
            assert_busy("second", "another run that has only just begun")


def test_a_folder_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "harness"
    folder.mkdir()
    for mode in (0o770, 0o707, 0o722, 0o777, 0o1777, 0o700):
        folder.chmod(mode)
        if mode == 0o700:
            monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        with pytest.raises(RequirementError, match="only its owner") as refused:
            state.own_folder(folder)
        assert str(folder) in refused.value.message and "rm -r" in (refused.value.hint or "")


def test_the_folder_is_its_owner_s_alone_and_what_is_none_is_refused(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "harness", tmp_path / "elsewhere"
    for _ in range(2):
        folder = state.own_folder(place)
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    for kind in ("a file", "a dangling link", "a link"):
        if kind == "a file":
            place.touch()
        else:
            place.symlink_to(elsewhere)
        if kind == "a link":
            elsewhere.mkdir(mode=0o700)
        with pytest.raises(RequirementError, match="to be a folder that only its owner"):
            state.own_folder(place)
        assert elsewhere.exists() == (kind == "a link")
        place.unlink()


def test_each_user_has_one_folder_in_any_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A login session has a folder of its own, cron has none: both have to find each other's runs.
    monkeypatch.setattr(state, "_is_writable", lambda _: True)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for runtime, uid in itertools.product((None, "", "/nowhere/at/all", str(tmp_path)), (0, 1000, 1001)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        if runtime is not None:
            monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert state.state_folder() == Path(f"/tmp/harness-{uid}" if uid else "/run/harness")


@pytest.mark.parametrize("why", ["read-only", "full", "kept as it was"])
def test_where_tmp_is_full_another_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
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


def test_a_folder_of_another_user_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir(mode=0o700)
    of_theirs = f'{{"pid": {os.getpid()}, "run_id": "theirs", "since": ""}}'
    (theirs / "lock").write_text(of_theirs, encoding="utf-8")
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


def test_each_user_has_a_folder_that_a_reboot_does_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for uid, may_write, expected in (
        (0, True, "/var/lib/harness"),
        (1000, False, "/var/tmp/harness-1000"),
        (0, False, "/var/tmp/harness-0"),  # root of a user namespace
    ):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        monkeypatch.setattr(os, "access", lambda *_, may_write=may_write: may_write)
        assert state.lasting_folder() == Path(expected)
