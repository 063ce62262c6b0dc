"""What stays of a tree's build: the next one finds only what has changed, and never half an object file."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.model.errors import CommandFailed, UsageError
from harness.testbeds.lab.kernels import kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.building import BrokenOff
from harness.testbeds.lab.kernels.source import Tree
from harness.testbeds.lab.kernels.trees import TREES, kept_folder, patched_files, renew
from tests.unit.testbeds.refusals import refusal
from tests.unit.testbeds.test_kernel import Workshop, ignore, linux, synced, workshop

pytestmark = pytest.mark.thorough
__all__ = ["synced", "workshop"]
LONG_AGO = 1_000_000_000
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return linux(tmp_path / "tree")


def age(folder: Path) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def young(folder: Path) -> set[str]:
    return {name for name in there(folder) if (folder / name).lstat().st_mtime != LONG_AGO}


def there(folder: Path) -> dict[str, str]:
    """The files of a folder with what is in them, and its empty folders."""
    found = {}
    for file in folder.rglob("*"):
        name = str(file.relative_to(folder))
        if file.is_symlink():
            found[name] = f"-> {file.readlink()}"
        elif file.is_file():
            found[name] = file.read_text(encoding="utf-8")
        elif not any(file.iterdir()):
            found[name] = "empty"
    return found


def read(tree: Path) -> Tree:
    found = sources.of(str(tree))
    assert isinstance(found, Tree)
    return found


def edit(tree: Path, text: str = "int forked;\n", file: str = "kernel/fork.c") -> None:
    (tree / file).write_text(text, encoding="utf-8")


def test_only_what_differs_is_written(tree: Path, tmp_path: Path) -> None:
    (copy := tmp_path / "copy").mkdir()
    (tree / "to kernel").symlink_to("kernel")
    edit(tree, "#!/bin/sh\n", "build.sh")
    (tree / "old" / "er").mkdir(parents=True)
    (tree / "old" / "er" / "gone.c").touch()

    def renewed() -> int:
        return renew(copy, {name: tree / name for name in read(tree).files})

    assert renewed() == len(read(tree).files)
    assert there(copy) == there(tree)
    age(copy)
    assert renewed() == 0 and young(copy) == set()

    shutil.rmtree(tree / "old")
    edit(tree, "a file now\n", "old")
    (tree / "to kernel").unlink()
    (tree / "to kernel").symlink_to("old")
    (tree / "build.sh").chmod(0o755)
    fork = tree / "kernel" / "fork.c"
    size = fork.stat().st_size
    edit(tree, "int cork;\n")
    assert fork.stat().st_size == size
    os.utime(fork, (LONG_AGO, LONG_AGO))  # as git does, or a backup: no time tells
    assert renewed() == 4
    assert there(copy) == there(tree) and young(copy) == {"old", "to kernel", "build.sh", "kernel/fork.c"}
    assert os.access(copy / "build.sh", os.X_OK)


PATCH = """\
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


def test_a_patched_file_that_is_the_same_as_before_stays_as_old_as_it_is(tree: Path, tmp_path: Path) -> None:
    (copy := tmp_path / "copy").mkdir()

    def run(*argv: str, **options: Any) -> None:
        subprocess.run(argv, check=True, capture_output=True, **options)

    def again(text: str) -> None:
        patched = tmp_path / "patched"
        shutil.rmtree(patched, ignore_errors=True)
        patched.mkdir()
        read(tree).lend(patched_files([text]), patched)
        run("git", "apply", "-", input=text.encode(), cwd=patched)  # patch(1) is installed for kernels alone
        read(tree).renew(run, copy, patched)

    assert patched_files([PATCH]) == {"kernel/fork.c", "kernel/simd.h"}
    again(PATCH)
    found = there(copy)
    assert (found["kernel/fork.c"], found["kernel/simd.h"]) == ("int patched;\n", "int added;\n")
    assert there(tree)["kernel/fork.c"] == "int fork;\n", "the tree is the user's"
    age(copy)
    again(PATCH)
    assert young(copy) == set()
    again(PATCH.replace("patched", "mended").partition("--- /dev/null")[0])
    assert there(copy)["kernel/fork.c"] == "int mended;\n" and young(copy) == {"kernel/fork.c"}
    assert "kernel/simd.h" not in there(copy), "of a patch that is no more"


@pytest.mark.parametrize(
    ("error", "stays"),
    [(None, True), (CommandFailed("cc"), True), (BrokenOff("cc"), False), (KeyboardInterrupt(), False)],
)
def test_objects_stay_unless_a_program_was_broken_off(
    tree: Path, tmp_path: Path, error: BaseException | None, stays: bool
) -> None:
    broken = pytest.raises(type(error)) if error else contextlib.nullcontext()
    with broken, kept_folder(tmp_path, tree) as folder:
        (folder / "objects" / "fork.o").touch()
        if error is not None:
            raise error
    with kept_folder(tmp_path, tree) as folder:
        assert (folder / "objects" / "fork.o").exists() is stays


def test_what_a_killed_build_left_and_folders_of_trees_that_are_gone_go(tree: Path, tmp_path: Path) -> None:
    other = linux(tmp_path / "other")
    with kept_folder(tmp_path, tree) as folder, kept_folder(tmp_path, other) as others:
        (folder / "objects" / "fork.o").touch()
        shutil.copytree(folder, tmp_path / "as it was then")
    folder.rename(tmp_path / "whole")
    (tmp_path / "as it was then").rename(folder)
    with kept_folder(tmp_path, tree) as again:
        assert again == folder != others and not (folder / "objects" / "fork.o").exists()
    assert folder.is_dir() and others.is_dir()
    shutil.rmtree(tree)
    with kept_folder(tmp_path, other):
        assert list((tmp_path / TREES).iterdir()) == [others]


def test_a_tree_is_built_where_it_was_before_and_other_sources_anew(workshop: Workshop, tree: Path) -> None:
    kernel.build(ignore, read(tree))
    edit(tree)
    kernel.build(ignore, read(tree))
    kernel.build(ignore)
    once, again, other = workshop.bases
    assert once == again and once.parent == workshop.cache / TREES and once.is_dir()
    assert other == workshop.cache / "building"


PROGRAMS = (
    *("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.askPass", "core.pager", "core.editor"),
    *("filter.own.clean", "filter.own.smudge", "filter.own.process", "diff.external", "diff.own.command"),
    *("diff.own.textconv", "merge.own.driver", "gpg.program", "credential.helper", "sequence.editor"),
    *("alias.ls-files", "alias.ls-tree", "alias.rev-parse", "pager.ls-files", "pager.ls-tree"),
)
"""What a repository's configuration can name for git to start."""
HOOKS = ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout", "pre-auto-gc")


def git(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x", *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


def commit(tree: Path) -> Path:
    edit(tree, "* filter=own diff=own\n", ".gitattributes")
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
def test_a_git_tree_names_its_commit_and_its_configuration_starts_nothing(tree: Path, tmp_path: Path) -> None:
    assert read(tree).commit == ""
    git(tree, "init", "--quiet")
    assert read(tree).commit == "", "it has none yet"
    commit(tree)
    git(tree, "tag", "v1")
    name = git(tree, "rev-parse", "--short=12", "HEAD").stdout.strip()
    index = (tree / ".git" / "index").read_bytes()
    assert read(tree).commit == name
    edit(tree)
    assert read(tree).commit == f"{name}-dirty"
    assert (tree / ".git" / "index").read_bytes() == index, "the tree is only read"
    ran = booby_trapped(tree, tmp_path / "program")
    edit(tree, "int form;\n")
    assert read(tree).commit.endswith("-dirty") and not ran.exists()
    git(tree, "status")
    assert ran.exists(), "otherwise this test tries nothing"


@needs_git
def test_what_a_partial_clone_lacks_is_not_fetched(tmp_path: Path) -> None:
    origin, tree = commit(linux(tmp_path / "origin")), tmp_path / "tree"
    git(origin, "config", "uploadpack.allowFilter", "true")
    words = ("--quiet", "--no-checkout", "--filter=tree:0", f"file://{origin}", str(tree))
    assert git(origin, "clone", *words).returncode == 0
    ran = booby_trapped(linux(tree), tmp_path / "program")
    git(tree, "config", "remote.origin.url", "ssh://192.0.2.1/x")
    refusal(CommandFailed, "git could not list", read, tree)
    assert not ran.exists()
    git(tree, "ls-tree", "-r", "HEAD")
    assert ran.exists(), "otherwise this test tries nothing"


@needs_git
def test_a_git_tree_of_another_user_s_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tree)
    # What git's own tests use; nobody but root could give a folder away.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    hint = refusal(UsageError, "which belongs to another user", read, tree)
    assert hint.endswith(f"--add safe.directory {tree}")


@needs_git
def test_a_git_tree_is_dirty_by_what_is_in_its_files_and_what_git_ignores_does_not_count(tree: Path) -> None:
    edit(tree, "*.o\n", ".gitignore")
    clean, file = read(commit(tree)), tree / "kernel" / "fork.c"

    def is_dirty() -> bool:
        name = read(tree).commit
        assert name.removesuffix("-dirty") == clean.commit and len(clean.commit) == 12
        return name.endswith("-dirty")

    (tree / "kernel" / "fork.o").touch()
    os.mkfifo(tree / "pipe")
    file.touch()
    assert read(tree) == clean, "git would add neither the object nor the pipe"
    edit(tree, "", "others")
    assert not is_dirty() and read(tree).identity != clean.identity
    git(tree, "add", "others")
    assert is_dirty(), "it was added"
    git(tree, "reset", "--quiet")
    file.chmod(0o755)
    assert is_dirty(), "it is a program"
    file.chmod(0o644)
    file.unlink()
    assert is_dirty(), "it is gone"
    assert read(tree).files == (".gitattributes", ".gitignore", "Makefile", "others")
    file.symlink_to("../Makefile")
    assert is_dirty(), "it is a link"
    git(tree, "checkout", "--", ".")
    assert not is_dirty()
    file.unlink()
    os.mkfifo(file)
    refusal(UsageError, "found a named pipe", read, tree)


@pytest.mark.parametrize("name", ["Makefile", "kernel/fork.c", "kernel/new"])
def test_a_pipe_in_a_tree_is_refused(tree: Path, name: str) -> None:
    (tree / name).unlink(missing_ok=True)
    os.mkfifo(tree / name)
    refusal(UsageError, "found no Makefile" if name == "Makefile" else "found a named pipe", read, tree)
