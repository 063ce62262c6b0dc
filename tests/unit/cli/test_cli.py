"""What the command says to bad usage: one sentence, exit status 2, no traceback, nothing made."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.model.errors import HarnessError, RequirementError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results.store import RunFolder
from harness.terminal import console
from harness.testbeds import testbed
from tests.unit.command import harness
from tests.unit.fakes import fio_output
from tests.unit.results_folder import run_of_a_cell


def assert_refused(done: subprocess.CompletedProcess[str], *names: str, status: int = 2) -> None:
    """Exit status 2, one sentence that names what was wrong, perhaps what to try, and no traceback."""
    assert (done.returncode, done.stdout) == (status, ""), done
    sentence, *others = done.stderr.splitlines()
    assert sentence.startswith("harness: ") and "Traceback" not in done.stderr, done.stderr
    assert all(line.startswith("  hint: ") for line in others), done.stderr
    assert all(name in done.stderr for name in names), done.stderr


BAD_RUNS = [
    *(("--link wierd", "wired"), ("--link wired:fast", "fast"), ("--link local:jumbo", "local")),
    *(("--link ../x.toml", "x.toml"), ("--link wired:mtu=9", "mtu"), ("--ipsec aes128gcm", "aes128gcm16")),
    *(("--ipsec ../../etc/passwd", "passwd"), ("--profile basci", "basic"), ("--testbed lap", "lab")),
    *(("--workload rand-raed-4k", "rand-read-4k"), ("--backing ramdisc", "ramdisk")),
    *(("--backing file:image", "absolute"), ("--backing ramdisk:/x", "path"), ("--seed -1", "seed")),
    *(("--repeats 0", "repeats"), ("--repeats -3", "repeats"), ("--repeats 1000000", "repeats")),
    *(("--size -1", "-1"), ("--size 0", "0"), ("--size nan", "nan"), ("--size 128MB", "128MB")),
    *(("--size 1000", "1000"), ("--size 8000G", "7.812 TiB"), ("--runtime 1e309s", "1e309s")),
    *(("--runtime 0s", "0s"), ("--runtime=-1s", "-1s"), ("--runtime inf", "inf")),
    *(("--runtime 99d", "8553600"), ("--resume \x1b[2J", "x1b")),
    *(("--resume ../x", "x"), ("--resume 20260101-000000-abcd", "20260101-000000-abcd")),
    *(("--link local --ipsec on", "--ipsec"), ("--link local --ipsec aes256gcm16", "--ipsec")),
    ("--results [/b] --link [/b]", "[/b]"),
]


@pytest.mark.parametrize(("words", "named"), BAD_RUNS)
def test_bad_run(tmp_path: Path, words: str, named: str) -> None:
    assert_refused(harness("run", *words.split(" "), cwd=tmp_path), named)
    assert list(tmp_path.iterdir()) == []


def test_what_the_parser_of_options_refuses(tmp_path: Path) -> None:
    for words in (
        *("run --no-such-option", "run --repeats many", "run --seed 0x10", "run --ipsec-mode beet"),
        *("run surplus", "lab start --memory 0", "lab exec --memory 0 -- true", "no-such-command"),
    ):
        done = harness(*words.split(), cwd=tmp_path)
        assert done.returncode == 2 and "Usage" in done.stderr and "Traceback" not in done.stderr, done
        assert list(tmp_path.iterdir()) == [], words


def test_tables_of_nothing_and_unknown_words_for_tables(tmp_path: Path) -> None:
    assert_refused(harness("table", cwd=tmp_path), "results")
    (tmp_path / "empty").mkdir()
    for words in (
        "empty",
        "absent",
        "--metric wrong",
        "--format wrong",
        "--ratio wrong",
        "--reference wrong",
    ):
        assert_refused(harness("table", *words.split(), cwd=tmp_path), words.split()[-1])


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"run_id": 5}', b"[]", b"\xff\xfe{\x00}\x00", b"[" * 100_000, b"null"],
    ids=["empty", "cut", "wrong type", "no object", "UTF-16", "deep", "null"],
)
def test_corrupt_record(tmp_path: Path, damage: bytes) -> None:
    cells = tmp_path / "results" / "r1" / "cells"
    cells.mkdir(parents=True)
    (cells / "wired.seq-read-4k.r1.json").write_bytes(damage)
    assert_refused(harness("table", cwd=tmp_path), "wired.seq-read-4k.r1.json")


@pytest.mark.parametrize("text", ["", "[job\nrw=read\n", "[a]\nrw=sideways\n", "[a]\nnosuchoption=1\n", "\0"])
def test_corrupt_job_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.fio").write_text(text, encoding="utf-8")
    assert_refused(harness("run", "--profile", "own.fio", cwd=tmp_path), "fio")
    assert [entry.name for entry in tmp_path.iterdir()] == ["own.fio"]


OTHER_OPTIONS = (
    *("--link wired", "--ipsec on", "--profile modern", "--workload rand-read-4k", "--testbed lab"),
    *("--repeats 3", "--runtime 1s", "--seed 0", "--size 128M", "--backing ramdisk", "--destroy x"),
    *("--ipsec-mode transport", "--auth psk", "--config own.toml", "--plan --repeats 5"),
)


@pytest.mark.parametrize("words", OTHER_OPTIONS)
def test_a_resumed_run_takes_no_other_options(tmp_path: Path, words: str) -> None:
    run_id = run_of_a_cell(tmp_path / "results").run_id
    (tmp_path / "own.toml").write_text("version = 1\n", encoding="utf-8")
    before = contents(tmp_path)
    assert_refused(harness("run", "--resume", run_id, *words.split(), cwd=tmp_path), "other options")
    assert contents(tmp_path) == before


def test_a_finished_run_resumed_has_nothing_left_to_measure(tmp_path: Path) -> None:
    run_id = run_of_a_cell(tmp_path / "elsewhere").run_id
    before = contents(tmp_path)
    done = harness("run", "--resume", run_id, "--results", "elsewhere", cwd=tmp_path)
    assert done.returncode == 0, done
    assert "nothing is left to measure" in done.stderr
    assert "rand-read-4k" in done.stdout and "4.10" in done.stdout, "its table is shown"
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_one_bad_fio_output(tmp_path: Path) -> None:
    (tmp_path / "disks").mkdir()
    (tmp_path / "disks" / "good.json").write_text(fio_output(write=False), encoding="utf-8")
    (tmp_path / "disks" / "bad.json").write_text(fio_output(write=False)[:100], encoding="utf-8")
    done = harness("table", "disks", cwd=tmp_path)
    assert done.returncode == 1 and "good" in done.stdout, done
    assert "disks/bad.json" in done.stdout, "the table is incomplete, and says so"
    assert done.stderr.startswith("harness: disks/bad.json: "), done
    for words in ("table disks/bad.json", "table disks disks/bad.json", "parse fio bad.json"):
        assert_refused(harness(*words.split(), cwd=tmp_path), "bad.json")
    (tmp_path / "cut.json").write_bytes(b'{"fio version": "fio-3.33", "jobs": [')
    assert_refused(harness("parse", "fio", "cut.json", cwd=tmp_path))


def test_a_results_folder_in_which_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "results").write_bytes(b"mine")
    (tmp_path / "only-read").mkdir(mode=0o500)
    for folder in ("results", "/proc/results" if os.geteuid() == 0 else "only-read"):
        assert_refused(harness("run", "--link", "local", "--results", folder, cwd=tmp_path), folder)
    assert (tmp_path / "results").read_bytes() == b"mine" and not list((tmp_path / "only-read").iterdir())
    done = harness("run", "--plan", "--config", "only-read", cwd=tmp_path)
    assert done.returncode == 2 and "disk" not in done.stderr, "it is only blamed where it can be"


@pytest.mark.parametrize("kind", ["run", "probe"])
def test_a_refused_run_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    refused = Mock(side_effect=RequirementError("the target could not be reached: connection refused"))
    nobody = "ssh://127.0.0.1:1"
    unreachable = ("--target", nobody, "--initiator", nobody, "--link", "wired=eth0")
    for kept in ([], [tmp_path / "results"], [tmp_path / "results", tmp_path / "results" / "mine"]):
        for folder in kept:
            folder.mkdir(exist_ok=True)
        done = harness(kind, *unreachable, cwd=tmp_path)
        assert done.returncode == 2 and "could not be reached" in done.stderr, done
        # It was named as the place of the results.
        (named,) = re.findall(r"results in (\S+)", done.stderr)
        assert f"nothing was measured, so {named} is removed again\n" in done.stderr, done
        assert sorted(tmp_path.rglob("*")) == kept, done
        # It is refused in a process of its own, which takes half a second to start: once is enough.
        monkeypatch.setattr(testbed, "events", refused)


def test_what_was_refused_without_a_record_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "holding", lambda _: contextlib.nullcontext(tmp_path))
    rows = ((2, False, False, False), (2, True, False, True), (2, False, True, True), (1, False, False, True))
    for number, (exit_code, has_record, is_resumed, stays) in enumerate(rows):
        folder = RunFolder(tmp_path / str(number) / "run")
        error = HarnessError("no")
        error.exit_code = exit_code
        measuring = console.measuring(make_plan(RunRequest()), folder, is_resumed=is_resumed)
        with pytest.raises(HarnessError, match="no"), measuring:
            if has_record:
                (folder.path / "probes").mkdir()
                (folder.path / "probes" / "one.json").touch()
            raise error
        assert folder.path.exists() == folder.path.parent.exists() == stays, rows[number]


def test_plan_changes_nothing(tmp_path: Path) -> None:
    done = harness("run", "--plan", "--link", "wired", "--ipsec", "both", "--seed", "7", cwd=tmp_path)
    assert done.returncode == 0, done
    assert "wired, wired+aes128gcm16" in done.stdout
    assert "2 columns x 8 workloads x 8 repeats = 128" in done.stdout
    assert list(tmp_path.iterdir()) == []
