"""tools/bisect-kernel.sh under a real `git bisect run`, with a harness that builds and measures nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "bisect-kernel.sh"

# The "kernel" is the file `speed` of the tree; its key is what is in it.
HARNESS = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$1 $2" in
"kernel build")
    speed=$(cat "$4/speed")
    [ "$speed" != broken ] || exit 1
    echo "to use it: harness run --lab-kernel $speed"
    ;;
"run "*)
    while [ $# -gt 0 ]; do
        case $1 in --lab-kernel) key=$2 ;; --results) results=$2 ;; --fails) exit "$2" ;; esac
        shift
    done
    [ "$key" != panics ] || exit 1
    mkdir -p "$results"
    echo "$key" > "$results/figure"
    ;;
"compare "*)
    ! grep -q noisy "$3/figure" || exit 3
    cmp -s "$2/figure" "$3/figure"
    ;;
esac
"""

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(shutil.which("git") is None, reason="needs git")]

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Runs a program in a git tree whose commits are tagged by the speed of their kernels."""
    program, tree = tmp_path / "bin" / "harness", tmp_path / "linux"
    program.parent.mkdir()
    tree.mkdir()
    program.write_text(HARNESS)
    program.chmod(0o755)
    people = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{program.parent}:{os.environ['PATH']}"
    around = {**os.environ, **people, "PATH": path, "CALLS": str(tmp_path / "calls"), "LC_ALL": "C"}

    def run(*argv: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, cwd=tree, env=around, capture_output=True, text=True, check=False)
        assert status in (None, done.returncode), done
        return done

    run("git", "init", "--quiet", ".")
    speeds = ["fast", "broken", "fast", "panics", "fast", "slow", "slow", "slow", "noisy"]
    for number, speed in enumerate(speeds):
        (tree / "speed").write_text(f"{speed}\n")
        run("git", "add", ".")
        run("git", "commit", "--quiet", "--allow-empty", "--message", f"{number}: {speed}")
        run("git", "tag", f"v{number}")
    return run


def judge(call: Call, tmp_path: Path, *options: str) -> int:
    return call("sh", str(SCRIPT), str(tmp_path / "results"), "1%", *options, status=None).returncode


def test_git_bisect_finds_the_commit_and_skips_what_has_no_answer(call: Call, tmp_path: Path) -> None:
    call("git", "checkout", "--quiet", "v0")
    assert judge(call, tmp_path, "--link", "wired") == 0
    call("git", "bisect", "start", "v7", "v0")
    done = call("git", "bisect", "run", "sh", str(SCRIPT), str(tmp_path / "results"), "1%", "--link", "wired")
    assert "5: slow" in done.stdout and "is the first bad commit" in done.stdout
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    results = tmp_path / "results"
    # An option of the caller's comes after the one that it replaces.
    assert calls[1] == f"run --repeats 5 --link wired --lab-kernel fast --results {results / 'unfinished'}"
    assert any(f"compare {results / 'good'} {results}/" in line for line in calls)


def test_the_status_is_what_git_bisect_wants(call: Call, tmp_path: Path) -> None:
    call("git", "checkout", "--quiet", "v0")
    assert judge(call, tmp_path) == 0
    for version, status in (("v1", 125), ("v3", 125), ("v4", 0), ("v5", 1), ("v8", 125)):
        call("git", "checkout", "--quiet", version)
        assert [judge(call, tmp_path) for _ in range(2)] == [status, status], f"{version}: the same again"


def test_only_what_concerns_the_commit_is_skipped_and_no_other_is_taken_for_the_good_one(
    call: Call, tmp_path: Path
) -> None:
    for status, said in (("1", 125), ("2", 128), ("130", 128)):
        assert judge(call, tmp_path, "--fails", status) == said
        assert not (tmp_path / "results" / "good").exists(), "it was not measured to its end"
    (tmp_path / "calls").unlink()
    call("git", "bisect", "start", "v7", "v0")
    assert judge(call, tmp_path) == 128
    assert not (tmp_path / "calls").exists()
    call("git", "bisect", "reset", "v8")
    assert judge(call, tmp_path) == 0
    assert "FOLDER MARGIN OPTION" in call("sh", str(SCRIPT), status=128).stderr
