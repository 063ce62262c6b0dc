"""Messages with the program that waits in the kernel of a persistent lab, as files.

The folder is the machine's, and mounted in the lab through hostfs: it has no other way in that needs no
network, and no network may be up between runs. Each file is renamed to its name when it is whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.model.texts import FileName, Prose


class WorkerOrder(msgspec.Struct, frozen=True):
    """To the program: carry out the plan in this folder of the results, as the ``number``-th run."""

    number: int
    folder: FileName


class Renewal(msgspec.Struct, frozen=True):
    """To the program: load the harness anew, which has changed."""


class WorkerReport(msgspec.Struct, frozen=True):
    """From the program: how many runs it has carried out, and that it waits for the next one.

    ``status`` is the last one's exit status. ``left`` are things in the kernel that were not there before it.
    """

    number: int
    status: int = 0
    left: tuple[Prose, ...] = ()


def run_console(folder: Path) -> int:
    """A run's console, to append to. Not through a link that lies there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.open(folder / "console.log", flags, 0o644)


M = TypeVar("M", WorkerOrder, Renewal, WorkerReport)


@dataclass(frozen=True)
class Exchange:
    """The last message of each kind, in files of one folder."""

    folder: Path

    def put(self, message: WorkerOrder | Renewal | WorkerReport) -> None:
        name = type(message).__name__
        new = self.folder / f"{name}.new"
        new.write_bytes(msgspec.json.encode(message))
        new.rename(self.folder / name)

    def read(self, kind: type[M]) -> M | None:
        """The last message of that kind; None if there is none."""
        try:
            return msgspec.json.decode((self.folder / kind.__name__).read_bytes(), type=kind)
        except FileNotFoundError:
            return None

    def remove(self, kind: type[M]) -> None:
        (self.folder / kind.__name__).unlink(missing_ok=True)
