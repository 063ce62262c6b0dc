"""What somebody planted in place of a file of results: pipes, devices, links, folders, names of all kinds."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.driver import Case, several
from tests.fuzz.folders import COMMANDS, in_folder, names
from tests.fuzz.mutate import TEXTS

PLANTS = (
    *("fifo", "socket", "folder", "missing", "empty", "huge", "loop", "file"),
    *("/dev/zero", "/dev/full", "/dev/null", "/proc", "/proc/self/mem", "/proc/self/environ", "/etc/passwd"),
    *("/", ".", "..", "../outside", "nowhere", "/sys/kernel", "/dev/tty", "/dev/stdin"),
)
"""What is planted; a path stands for a symbolic link to it."""

OUTPUTS = ("page.html", "picture.svg", "rows.parquet")
FOLDERS = ("", "cells", "probes", "raw", "raw/wired.rand-read-4k.r1")


@dataclass(frozen=True)
class Plant:
    """Something in place of a file, or of a new name. ``name`` is relative to the run's folder."""

    kind: str
    name: str

    def __call__(self, run: Path) -> None:
        # A name that no file system takes, or a place that an earlier plant has taken away.
        with contextlib.suppress(OSError, ValueError):
            self._plant(run / self.name)

    def _plant(self, place: Path) -> None:
        if place.is_dir() and not place.is_symlink() and self.kind not in ("folder", "file"):
            shutil.rmtree(place)
        elif os.path.lexists(place):
            place.unlink()
        place.parent.mkdir(parents=True, exist_ok=True)
        match self.kind:
            case "missing":
                pass
            case "fifo":
                os.mkfifo(place)
            case "socket":
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(os.path.relpath(place))
            case "folder":
                place.mkdir()
            case "empty":
                place.touch()
            case "file":
                place.write_text("{}", encoding="utf-8")
            case "huge":
                with place.open("wb") as file:
                    file.truncate(1 << 40)
            case target:
                place.symlink_to(place.name if target == "loop" else target)


class Planted:
    name = "planted"

    def draw(self, chance: Random) -> Case:
        def part(chance: Random) -> Plant:
            where = chance.random()
            if where < 0.6:
                name = chance.choice(names())
            elif where < 0.75:
                name = chance.choice(FOLDERS)
            elif where < 0.85:
                name = f"../{chance.choice(OUTPUTS)}"
            else:
                odd = chance.choice([text for text in TEXTS if "/" not in text and "\0" not in text])
                odd = os.fsdecode(odd.encode("utf-8", "replace") + chance.choice((b"", b"\xff")))
                name = f"{chance.choice(FOLDERS)}/{odd}{chance.choice(('', '.json'))}".lstrip("/")
            return Plant(chance.choice(PLANTS), name)

        return Case(chance.choice(list(COMMANDS)), several(chance, part, most=4))

    def check(self, case: Case) -> None:
        in_folder(COMMANDS[case.start], case.parts)
