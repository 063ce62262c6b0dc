"""Where the command prints to: closed, full, gone, not UTF-8; and names that are markup or bytes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness import cli
from harness.model.escape import in_ascii
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from tests import flat
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness
from tests.unit.processes import Server
from tests.unit.results_folder import fio_json, run_of_a_cell

pytestmark = pytest.mark.thorough

HARNESS = str(Path(sys.executable).with_name("harness"))
ASCII = {"PYTHONIOENCODING": "ascii"}
NO_UTF8 = ({"LC_ALL": "C"}, ASCII, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
TITLE = "4K reads, \N{MICRO SIGN}s [/b] \N{HANGUL SYLLABLE HA}"


def command(*words: str, cwd: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    """The command, started by a line of shell."""
    argv = ["sh", "-c", line, "sh", HARNESS, *words]
    env = {**os.environ, "TERM": "dumb", "COLUMNS": "300"}
    return subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def assert_quiet(said: str | bytes) -> None:
    assert not re.search(r"Traceback|Exception ignored|Fatal|\wError:", str(said)), said


@pytest.fixture(scope="module", params=NO_UTF8, ids=str)
def without_utf8(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Processes of a Python that was started in such a locale."""
    server = Server(request.param, ("harness.cli.table", "harness.cli.explain"))
    yield server
    server.close()


@pytest.mark.parametrize("words", ["table", "explain", "export"])
def test_a_locale_that_is_not_utf8(tmp_path: Path, without_utf8: Server, words: str) -> None:
    run_of_a_cell(tmp_path / "results", link_title=TITLE, reason=TITLE)
    done = without_utf8.run(words, "results", cwd=tmp_path)
    assert_quiet(done.stderr)
    assert done.returncode == 0 and done.stdout, done


def named(tmp_path: Path, name: bytes) -> Path:
    """A folder of that name with results."""
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    place.mkdir(parents=True)
    run_of_a_cell(place, "20260101-000000-abcd")
    return place


NAMES = (b"\xff\xfe", b"\xc3\xa9", b"[/b]", b"\x1b[2J", b"[red]")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_folders_that_are_bytes_or_markup(tmp_path: Path, name: bytes, encoding: str) -> None:
    place = named(tmp_path, name)
    for words in (
        ("table", place),
        ("table", place / "absent"),
        ("report", place, "-o", place / "r.html"),
        ("run", "--resume", place / "20260101-000000-abcd" / ".."),
        ("run", "--plan", "--link", place / "x.toml"),
        ("parse", "fio", place / "x"),
    ):
        done = harness(*map(str, words), cwd=tmp_path, encoding=encoding)
        assert_quiet(done.stderr)
        assert done.returncode in (0, 1, 2), done
        assert "\x1b[2J" not in done.stderr


@pytest.mark.parametrize("without_utf8", [ASCII], indirect=True, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_process_has_the_same_names(tmp_path: Path, without_utf8: Server, name: bytes) -> None:
    place = named(tmp_path, name)
    inside = harness("table", str(place), str(place / "absent"), cwd=tmp_path, encoding="ascii")
    done = without_utf8.run("table", bytes(place), bytes(place / "absent"), cwd=tmp_path)
    assert_quiet(done.stderr)
    assert (done.returncode, done.stderr) == (2, inside.stderr)


def test_a_name_that_no_plan_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(cli, "complain", said.append)
    planned = make_plan(RunRequest(testbed="host", backing="file:/x", size="32M"))
    made = flat.changed(planned, backing=msgspec.structs.replace(planned.storage.backing, path="/x\udcff"))
    monkeypatch.setattr(cli, "app", lambda **_: msgspec.json.encode(made))
    assert cli._carry_out() == 2
    assert "expected a name in UTF-8, found " in said[0] and "/x\udcff" in said[0]


DRIVING = "\x7f\x85\x9b\u061c\u200f\u2028\u2029\u202e\u2066\U000e0001"


def test_json_and_csv_drive_no_terminal(tmp_path: Path) -> None:
    name = f"4K{DRIVING}\N{MICRO SIGN}"
    run_of_a_cell(tmp_path / "results", link_title=name, warnings=(name,))
    (tmp_path / "fio.json").write_bytes(fio_json(name, {1000: 1}))
    for words in (
        *("export results --format jsonl", "export results --format csv", "export results --format influx"),
        *("table results --format json", "explain results --format json", "parse fio fio.json"),
    ):
        done = harness(*words.split(), cwd=tmp_path)
        assert done.stdout and not set(done.stdout) & set(DRIVING), done
        assert done.stdout.isascii() or "json" not in words
    text = f"{name}\N{CRAB}\\u2028\n"
    assert json.loads(in_ascii(msgspec.json.encode(text).decode())) == text, "it is the same JSON"


@contextlib.contextmanager
def nobody(how: str) -> Iterator[int | None]:
    """A descriptor behind which nobody takes anything."""
    if how == "closed":
        yield None
    elif how == "full":
        with Path("/dev/full").open("wb") as full:
            yield full.fileno()
    else:
        gone, pipe = os.pipe()
        os.close(gone)
        yield pipe
        os.close(pipe)


REFUSED = ("table absent", "clean -x")
COMMANDS = (*(f"table results --format {name}" for name in ("text", "json", "csv")), "--help", *REFUSED)
NOWHERE = ("1 full", "1 closed", "1 gone", "2 full", "2 closed", "12 closed", "12 gone")
CLOSED = "standard output is closed: send it to a file, or to /dev/null"


@pytest.mark.parametrize("where", NOWHERE)
@pytest.mark.parametrize("words", COMMANDS)
def test_outputs_that_nobody_takes(tmp_path: Path, processes: Server, where: str, words: str) -> None:
    numbers, how = where.split()
    run_of_a_cell(tmp_path / "results")
    with nobody(how) as descriptor:
        done = processes.run(*words.split(), cwd=tmp_path, streams={int(n): descriptor for n in numbers})
    assert_quiet(done.stderr)
    if numbers == "2":
        assert done.returncode == (2 if words in REFUSED else 0), "unread, it is the same error"
    elif where == "1 full" and words not in REFUSED:
        assert_refused(done, "No space left on device", "is the disk full", status=1)
    elif where == "1 closed" and words not in REFUSED:
        assert (done.returncode, done.stderr) == (1, f"harness: Bad file descriptor\n  hint: {CLOSED}\n")
    else:
        assert done.returncode in (0, 1, 2)


def test_an_interpreter_that_starts_without_streams(tmp_path: Path) -> None:
    run_of_a_cell(tmp_path / "results")
    for to in (">&-", "2>&-", ">&- 2>&-"):
        done = command("table", "absent", cwd=tmp_path, line=f'{{ "$@"; echo $? >status; }} {to}')
        assert_quiet(done.stderr)
        assert (tmp_path / "status").read_text(encoding="utf-8") == "2\n", to
    for words in ("--version", "--help", "table results"):
        done = command(*words.split(), cwd=tmp_path, line='"$@" >&-')
        assert (done.returncode, done.stderr.count(b"standard output is closed")) == (1, 1), done
    done = command("table", "results", cwd=tmp_path, line='"$@" | head -1')
    assert done.stdout and done.stderr == b"", "the reader of a table may stop early"


@pytest.mark.parametrize(
    "words", ["table", "table x", "run --plan", "run", "report", "run --plan --config x", "clean"]
)
def test_a_working_directory_that_was_removed(tmp_path: Path, processes: Server, words: str) -> None:
    (gone := tmp_path / "gone").mkdir()
    folder = os.open(gone, os.O_RDONLY)
    gone.rmdir()
    done = processes.run(*words.split(), cwd=folder, env={"PWD": str(gone)})
    os.close(folder)
    ends = [(done.returncode, done.stderr)]
    if words == "run --plan":  # an interpreter imports its modules there
        gone.mkdir()
        whole = command(*words.split(), cwd=gone, line='rmdir "$PWD" && exec "$@"')
        ends.append((whole.returncode, whole.stderr.decode()))
    for status, said in ends:
        assert_quiet(said)
        assert status in (0, 1, 2) and (not status or said.startswith("harness: ")), said


FEW_INODES = """
import ctypes, os, sys
from pathlib import Path
folder, inodes = sys.argv[1:]
libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x00020000):  # CLONE_NEWUSER and CLONE_NEWNS
    sys.exit(77)
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"0 {user} 1")
Path("/proc/self/gid_map").write_text(f"0 {group} 1")
if libc.mount(b"few", os.fsencode(folder), b"tmpfs", 0, f"nr_inodes={inodes}".encode()):
    sys.exit(77)
sys.argv = ["harness", "run", "--results", f"{folder}/r"]
from harness.__main__ import main
main()
"""


@pytest.mark.parametrize(("inodes", "words"), [(20, "expected room for 1000 files"), (2, "No space left")])
def test_a_results_folder_without_inodes(tmp_path: Path, processes: Server, inodes: int, words: str) -> None:
    apart = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces")
    with processes.start(str(tmp_path), str(inodes), cwd=tmp_path, program=FEW_INODES) as process:
        _, said = process.communicate()
    assert_quiet(said)
    assert process.returncode == 2 and words in said, (process.returncode, said)
