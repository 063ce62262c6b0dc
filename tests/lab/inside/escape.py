"""Root in the lab tries to change the machine below it: ``escape.py VICTIM NAME...``, all absolute paths.

VICTIM is a folder of the machine with a file ``file``; each NAME is one that must not come into being there.
What succeeds is printed, a line each. /run/results, the one folder that may be written, is used for links.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

AGAIN = Path("/run/again")
"""Where the machine's root is mounted again."""

RESULTS = Path("/run/results")
NULL = os.makedev(1, 3)


def hostfs(place: Path, root: str) -> None:
    place.mkdir(parents=True)
    environment = {**os.environ, "LIBMOUNT_FORCE_MOUNT2": "always"}
    subprocess.run(
        ["mount", "-n", "-t", "hostfs", "-o", root, "none", str(place)], env=environment, check=True
    )


def attempts(victim: Path, names: list[Path]) -> dict[str, Callable[[], object]]:
    """What is tried; each raises OSError if it fails."""
    file = victim / "file"
    tries: dict[str, Callable[[], object]] = {
        "append to a file": lambda: os.close(os.open(file, os.O_WRONLY | os.O_APPEND)),
        "truncate a file": lambda: os.truncate(file, 0),
        "change a mode": lambda: file.chmod(0o777),
        "change an owner": lambda: os.chown(file, 1, 1),
        "change a time": lambda: os.utime(file, (1, 1)),
        "remove a file": file.unlink,
        "rename a file": lambda: file.rename(victim / "renamed"),
        "link a file": lambda: (victim / "hard").hardlink_to(file),
        "plant a link": lambda: (victim / "soft").symlink_to("/"),
        "make a folder": (victim / "folder").mkdir,
        "make a pipe": lambda: os.mkfifo(victim / "pipe"),
        "make a device": lambda: os.mknod(victim / "null", stat.S_IFCHR | 0o666, NULL),
        "take what is written out of a file": lambda: (RESULTS / "hard").hardlink_to(file),
        "make a device among the results": lambda: os.mknod(RESULTS / "null", stat.S_IFCHR | 0o666, NULL),
        "speak to a daemon": lambda: connect(victim / "socket"),
    }
    for name in names:
        tries[f"write {name}"] = (AGAIN / str(name).lstrip("/")).touch
    for setting in ("sys/kernel/sysrq", "sysrq-trigger"):
        tries[f"write /proc/{setting}"] = partial(os.open, AGAIN / "proc" / setting, os.O_WRONLY)
    return tries


def connect(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.connect(str(path))


def main(words: list[str]) -> None:
    hostfs(AGAIN, "/")
    there = AGAIN / words[0].lstrip("/")
    for name, attempt in attempts(there, [Path(word) for word in words[1:]]).items():
        with contextlib.suppress(OSError):
            attempt()
            print("succeeded:", name)
    # In the lab a link leads to the overlay's file; on the machine it must lead nowhere either.
    (RESULTS / "link").symlink_to(Path(words[0]) / "by-link")
    (RESULTS / "link").touch()
    (RESULTS / "out").symlink_to(words[0])
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        hostfs(Path("/run/through"), f"{words[0]}/../results/out")
        (Path("/run/through") / "through").touch()
        print("succeeded: write where a link among the results leads")
    (RESULTS / "mine").write_text("may be written", encoding="utf-8")
    print("tried all")


if __name__ == "__main__":
    main(sys.argv[1:])
