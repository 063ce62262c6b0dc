"""What is kept from the build of a user's tree, so that its next kernel compiles only what changed.

A folder below ``trees`` in the cache for each tree, with the patched copy (``source``), the ``objects``, and
the tree's path. ``make`` decides by times what is out of date, so only files that differ are written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.hosts import runner
from harness.model.errors import CommandFailed
from harness.testbeds.lab.kernels.building import SILENCE_S, BrokenOff

TREES = "trees"

_ORIGIN = "tree"
_UNFINISHED = "unfinished"

_PATCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)


@contextlib.contextmanager
def kept_folder(cache: Path, tree: Path) -> Iterator[Path]:
    """The folder of a tree, while its kernel is being built. Folders of trees that are gone are removed.

    A compiler error leaves it as it is. A killed build may leave half an object file that looks new, so the
    folder is removed then: at once or, after a SIGKILL, at the next build.
    """
    trees = cache / TREES
    for other in list(trees.glob(f"*/{_ORIGIN}")):
        if not Path(os.fsdecode(other.read_bytes())).is_dir():
            shutil.rmtree(other.parent)
    folder = trees / hashlib.sha256(os.fsencode(tree)).hexdigest()[:12]
    unfinished = folder / _UNFINISHED
    if unfinished.exists() or not (folder / _ORIGIN).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    unfinished.touch()
    (folder / _ORIGIN).write_bytes(os.fsencode(tree))
    for name in ("source", "objects"):
        (folder / name).mkdir(exist_ok=True)
    is_whole = False
    try:
        yield folder
        is_whole = True
    except CommandFailed as failed:
        is_whole = not isinstance(failed, BrokenOff)
        raise
    finally:
        if is_whole:
            # The objects first: after a power failure, too, what does not say `unfinished` is whole.
            runner.run(["sync", "--file-system", str(folder)], timeout_s=SILENCE_S)
            unfinished.unlink()
        else:
            shutil.rmtree(folder, ignore_errors=True)


def patched_files(patches: Sequence[str]) -> set[str]:
    """The files that patches change, by their text."""
    return {name for text in patches for name in _PATCHED.findall(text)}


def renew(folder: Path, wanted: Mapping[str, Path]) -> int:
    """Make ``folder`` consist of the files ``wanted``, by their names in it; returns how many it wrote.

    A file that is the same already is left alone, with its time.
    """
    for found, folders, names in os.walk(folder, topdown=False):
        here = Path(found)
        links = [name for name in folders if (here / name).is_symlink()]
        for name in (*names, *links):
            if str((here / name).relative_to(folder)) not in wanted:
                (here / name).unlink()
        if here != folder and not any(here.iterdir()):
            here.rmdir()
    written = 0
    for name, origin in wanted.items():
        to = folder / name
        if _is_same(origin, to):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        # Its time is now: later than that of every object.
        shutil.copy(origin, to, follow_symlinks=False)
        written += 1
    return written


def _is_same(one: Path, other: Path) -> bool:
    if not os.path.lexists(other) or one.is_symlink() is not other.is_symlink():
        return False
    if one.is_symlink():
        return one.readlink() == other.readlink()
    stats = one.stat(), other.stat()
    facts = [(stat.st_size, stat.st_mode) for stat in stats]
    return facts[0] == facts[1] and one.read_bytes() == other.read_bytes()
