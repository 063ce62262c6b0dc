"""What stays of a tree's build: the next one finds only what has changed, and never half an object file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.hosts import runner
from harness.model.errors import CommandFailed, UsageError
from harness.testbeds.lab.kernels import building, kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.building import BrokenOff, Steps
from harness.testbeds.lab.kernels.source import Tree
from harness.testbeds.lab.kernels.trees import TREES, kept_folder, patched_files, renew
from tests.unit.testbeds.test_kernel import Workshop, ignore, linux, workshop

pytestmark = pytest.mark.thorough

__all__ = ["workshop"]

LONG_AGO = 1_000_000_000

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def age(folder: Path) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def young(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if (file.is_symlink() or file.is_file()) and file.lstat().st_mtime != LONG_AGO
    }


def there(folder: Path) -> dict[str, str]:
    """The files of a folder with what is in them, and its empty folders."""
    found = {}
    for file in folder.rglob("*"):
        if file.is_symlink():
            found[str(file.relative_to(folder))] = f"-> {file.readlink()}"
        elif file.is_file():
            found[str(file.relative_to(folder))] = file.read_text(encoding="utf-8")
        elif not any(file.iterdir()):
            found[str(file.relative_to(folder))] = "empty"
    return found


# What is written


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    tree, copy = linux(tmp_path / "tree"), tmp_path / "copy"
    copy.mkdir()
    (tree / "to kernel").symlink_to("kernel")
    (tree / "build.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (tree / "old" / "er").mkdir(parents=True)
    (tree / "old" / "er" / "gone.c").touch()
    of_tree = sources.of(str(tree))
    assert isinstance(of_tree, Tree)
    wanted = {name: tree / name for name in of_tree.files}
    assert renew(copy, wanted) == len(wanted)
    assert there(copy) == there(tree)
    age(copy)
    assert renew(copy, wanted) == 0 and young(copy) == set()

    shutil.rmtree(tree / "old")
    (tree / "old").write_text("a file now\n", encoding="utf-8")
    (tree / "to kernel").unlink()
    (tree / "to kernel").symlink_to("old")
    (tree / "build.sh").chmod(0o755)
    fork = tree / "kernel" / "fork.c"
    size = fork.stat().st_size
    fork.write_text("int cork;\n", encoding="utf-8")
    assert fork.stat().st_size == size
    os.utime(fork, (LONG_AGO, LONG_AGO))  # as git does, or a backup: no time tells
    of_tree = sources.of(str(tree))
    assert isinstance(of_tree, Tree)
    wanted = {name: tree / name for name in of_tree.files}
    assert renew(copy, wanted) == 4
    assert there(copy) == there(tree) and young(copy) == {"old", "to kernel", "build.sh", "kernel/fork.c"}
    assert os.access(copy / "build.sh", os.X_OK)


def test_a_patched_file_that_is_the_same_as_before_stays_as_old_as_it_is(tmp_path: Path) -> None:
    tree, copy = linux(tmp_path / "tree"), tmp_path / "copy"
    copy.mkdir()

    def run(*argv: str) -> None:
        subprocess.run(argv, check=True, capture_output=True)

    def again(text: str) -> None:
        origin = sources.of(str(tree))
        assert isinstance(origin, Tree)
        patched = tmp_path / "patched"
        shutil.rmtree(patched, ignore_errors=True)
        patched.mkdir()
        origin.lend(patched_files([text]), patched)
        subprocess.run(  # patch(1) is installed for kernels alone
            ["git", "apply", "-"], input=text.encode(), cwd=patched, check=True, capture_output=True
        )
        origin.renew(run, copy, patched)

    patch = """\
--- a/kernel/fork.c
+++ b/kernel/fork.c
@@ -1 +1 @@
-int fork;
+int patched;
--- /dev/null
+++ b/kernel/simd.h
@@ -0,0 +1 @@
+int added;
"""
    assert patched_files([patch]) == {"kernel/fork.c", "kernel/simd.h"}
    again(patch)
    assert there(copy)["kernel/fork.c"] == "int patched;\n" and there(copy)["kernel/simd.h"] == "int added;\n"
    assert there(tree)["kernel/fork.c"] == "int fork;\n", "the tree is the user's"
    age(copy)
    again(patch)
    assert young(copy) == set()
    again(patch.replace("patched", "mended").partition("--- /dev/null")[0])
    assert there(copy)["kernel/fork.c"] == "int mended;\n" and young(copy) == {"kernel/fork.c"}
    assert "kernel/simd.h" not in there(copy), "of a patch that is no more"


# What is kept


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing all of the machine's files to its disks takes seconds on some."""
    real = runner.run

    def run(argv: list[str], **options: object) -> object:
        return None if argv[0] == "sync" else real(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run", run)


@pytest.mark.parametrize(
    ("error", "stays"),
    [(None, True), (CommandFailed("cc"), True), (BrokenOff("cc"), False), (KeyboardInterrupt(), False)],
)
def test_objects_stay_unless_a_program_was_broken_off(
    tmp_path: Path, error: BaseException | None, stays: bool
) -> None:
    tree = linux(tmp_path / "tree")

    def build() -> None:
        with kept_folder(tmp_path, tree) as folder:
            (folder / "objects" / "fork.o").touch()
            if error is not None:
                raise error

    if error is None:
        build()
    else:
        with pytest.raises(type(error)):
            build()
    with kept_folder(tmp_path, tree) as folder:
        assert (folder / "objects" / "fork.o").exists() is stays


def test_what_a_killed_build_left_does_not_count(tmp_path: Path) -> None:
    tree = linux(tmp_path / "tree")
    with kept_folder(tmp_path, tree) as folder:
        (folder / "objects" / "fork.o").touch()
        shutil.copytree(folder, tmp_path / "as it was then")
    folder.rename(tmp_path / "whole")
    (tmp_path / "as it was then").rename(folder)
    with kept_folder(tmp_path, tree) as again:
        assert again == folder and not (folder / "objects" / "fork.o").exists()


def test_folders_of_trees_that_are_gone_are_removed(tmp_path: Path) -> None:
    trees = [linux(tmp_path / name) for name in ("one", "other")]
    folders = []
    for tree in trees:
        with kept_folder(tmp_path, tree) as folder:
            folders.append(folder)
    assert len(set(folders)) == 2 and all(folder.is_dir() for folder in folders)
    shutil.rmtree(trees[0])
    with kept_folder(tmp_path, trees[1]):
        assert list((tmp_path / TREES).iterdir()) == [folders[1]]


def test_each_tree_is_built_where_it_was_before_and_other_sources_anew(
    workshop: Workshop, tmp_path: Path
) -> None:
    tree = linux(tmp_path / "tree")
    kernel.build(ignore, sources.of(str(tree)))
    (tree / "kernel" / "fork.c").write_text("int forked;\n", encoding="utf-8")
    kernel.build(ignore, sources.of(str(tree)))
    kernel.build(ignore)
    once, again, other = workshop.bases
    assert once == again and once.parent == workshop.cache / TREES and once.is_dir()
    assert other == workshop.cache / "building"


@pytest.mark.parametrize(("script", "error"), [("exit 2", CommandFailed), ("kill -9 $$", BrokenOff)])
def test_a_compiler_error_is_distinguished_from_a_kill(
    tmp_path: Path, script: str, error: type[CommandFailed]
) -> None:
    for wrapper in ((), ("sh", "-c", '"$@"; exit $?', "sh")):
        (tmp_path / "log").touch()
        steps = Steps(what="it", wrapper=wrapper, temporary=tmp_path, log=tmp_path / "log", report=ignore)
        with pytest.raises(CommandFailed) as failed:
            steps.run("compiling", "sh", "-c", script, until=(0, 1))
        assert type(failed.value) is error


def test_silence_breaks_a_step_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "SILENCE_S", 0.1)
    monkeypatch.setattr(building, "POLL_S", 0.01)
    (tmp_path / "log").touch()
    steps = Steps(what="it", wrapper=(), temporary=tmp_path, log=tmp_path / "log", report=ignore)
    with pytest.raises(BrokenOff):
        steps.run("compiling", "sleep", "60", until=(0, 1))


# What a kernel is called


@needs_git
def test_a_git_tree_names_its_commit(tmp_path: Path) -> None:
    tree = linux(tmp_path / "tree")

    def commit() -> str:
        origin = sources.of(str(tree))
        assert isinstance(origin, Tree)
        return origin.commit

    assert commit() == ""
    git = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    asked = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True)
    name = asked.stdout.decode().strip()
    index = (tree / ".git" / "index").read_bytes()
    assert commit() == name
    (tree / "kernel" / "fork.c").write_text("int forked;\n", encoding="utf-8")
    assert commit() == f"{name}-dirty"
    assert (tree / ".git" / "index").read_bytes() == index, "the tree is only read"


# A tree of somebody else's

PROGRAMS = (
    *("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.askPass", "core.pager", "core.editor"),
    *("filter.own.clean", "filter.own.smudge", "filter.own.process", "diff.external", "diff.own.command"),
    *("diff.own.textconv", "merge.own.driver", "gpg.program", "credential.helper", "sequence.editor"),
    *("alias.ls-files", "alias.ls-tree", "alias.rev-parse", "pager.ls-files", "pager.ls-tree"),
)
"""What a repository's configuration can name for git to start."""

HOOKS = ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout", "pre-auto-gc")


def git(tree: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    who = ("-c", "user.name=x", "-c", "user.email=x")
    argv = ["git", "-C", str(tree), *who, *words]
    return subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


def committed(tree: Path) -> Path:
    """A git tree with one commit."""
    linux(tree)
    (tree / ".gitattributes").write_text("* filter=own diff=own\n", encoding="utf-8")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"]):
        assert git(tree, *words).returncode == 0
    return tree


def booby_trapped(tree: Path, program: Path) -> Path:
    """The tree with ``program`` wherever git may start one; returns the file that says that it was."""
    ran = program.with_suffix(".ran")
    program.write_text(f'#!/bin/sh\necho "$@" >> {ran}\nexit 1\n', encoding="utf-8")
    program.chmod(0o755)
    for name in PROGRAMS:
        assert git(tree, "config", name, str(program)).returncode == 0
    for hook in HOOKS:
        (tree / ".git" / "hooks" / hook).symlink_to(program)
    ran.unlink(missing_ok=True)
    return ran


@needs_git
def test_a_tree_s_own_configuration_starts_nothing(tmp_path: Path) -> None:
    tree = committed(tmp_path / "tree")
    ran = booby_trapped(tree, tmp_path / "program")
    (tree / "kernel" / "fork.c").write_text("int form;\n", encoding="utf-8")
    found = sources.of(str(tree))
    assert isinstance(found, Tree) and found.commit.endswith("-dirty")
    assert not ran.exists()
    git(tree, "status")
    assert ran.exists(), "otherwise this test tries nothing"


@needs_git
def test_what_a_partial_clone_lacks_is_not_fetched(tmp_path: Path) -> None:
    origin = committed(tmp_path / "origin")
    git(origin, "config", "uploadpack.allowFilter", "true")
    words = (
        "clone",
        "--quiet",
        "--no-checkout",
        "--filter=tree:0",
        f"file://{origin}",
        str(tmp_path / "tree"),
    )
    assert git(origin, *words).returncode == 0
    tree = linux(tmp_path / "tree")
    ran = booby_trapped(tree, tmp_path / "program")
    git(tree, "config", "remote.origin.url", "ssh://192.0.2.1/x")
    with pytest.raises(CommandFailed, match="git could not list"):
        sources.of(str(tree))
    assert not ran.exists()
    git(tree, "ls-tree", "-r", "HEAD")
    assert ran.exists(), "otherwise this test tries nothing"


@needs_git
def test_a_git_tree_of_another_user_s_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = committed(tmp_path / "tree")
    # What git's own tests use; nobody but root could give a folder away.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(UsageError, match="which belongs to another user") as refused:
        sources.of(str(tree))
    assert (refused.value.hint or "").endswith(f"--add safe.directory {tree}")


@needs_git
def test_a_git_tree_is_dirty_by_what_is_in_its_files(tmp_path: Path) -> None:
    tree = committed(tmp_path / "tree")

    def is_dirty() -> bool:
        found = sources.of(str(tree))
        assert isinstance(found, Tree) and len(found.commit.removesuffix("-dirty")) == 12
        return found.commit.endswith("-dirty")

    file = tree / "kernel" / "fork.c"
    (tree / "others").write_text("", encoding="utf-8")
    file.touch()
    assert not is_dirty()
    git(tree, "add", "others")
    assert is_dirty(), "it was added"
    git(tree, "reset", "--quiet")
    file.chmod(0o755)
    assert is_dirty(), "it is a program"
    file.chmod(0o644)
    file.unlink()
    assert is_dirty(), "it is gone"
    file.symlink_to("../Makefile")
    assert is_dirty(), "it is a link"
    git(tree, "checkout", "--", ".")
    assert not is_dirty()


@pytest.mark.parametrize("name", ["Makefile", "kernel/fork.c", "kernel/new"])
def test_a_pipe_in_a_tree_is_refused(tmp_path: Path, name: str) -> None:
    tree = linux(tmp_path / "tree")
    (tree / name).unlink(missing_ok=True)
    os.mkfifo(tree / name)
    with pytest.raises(UsageError, match="found no Makefile" if name == "Makefile" else "found a named pipe"):
        sources.of(str(tree))


@needs_git
def test_a_pipe_in_a_git_tree_is_refused_if_it_is_tracked(tmp_path: Path) -> None:
    tree = committed(tmp_path / "tree")
    before = sources.of(str(tree))
    os.mkfifo(tree / "pipe")
    assert sources.of(str(tree)) == before, "git would not add it"
    (tree / "kernel" / "fork.c").unlink()
    os.mkfifo(tree / "kernel" / "fork.c")
    with pytest.raises(UsageError, match="found a named pipe"):
        sources.of(str(tree))
