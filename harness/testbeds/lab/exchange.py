"""Messages between the keeper of a standing lab and the program that waits in its kernel, as files.

The folder is the machine's, and mounted in the lab through hostfs: it has no other way in that needs no
network, and no network may be up between runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec


class Order(msgspec.Struct, frozen=True):
    """To the program in the lab: carry out the plan in this folder of the results; with number 0, go on with
    these ``files``, by their names, as they are now: None if one is gone.

    They are in the message because the lab's kernel keeps what it has seen of a file of the machine's.
    """

    number: int
    folder: str = ""
    files: dict[str, bytes | None] = {}


class Report(msgspec.Struct, frozen=True):
    """From the program in the lab: number 0 when it begins to wait for orders, then each order's end.

    Number 0 with a ``status`` says that the code as it is now cannot be loaded.
    ``left`` are things in the kernel that were not there before.
    """

    number: int
    status: int = 0
    left: tuple[str, ...] = ()


M = TypeVar("M")


class Exchange:
    """Messages in files of one folder. Each is renamed to its name when it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, message: Order | Report) -> None:
        name = type(message).__name__
        new = self._folder / f"{name}.new"
        new.write_bytes(msgspec.json.encode(message))
        new.rename(self._folder / name)

    def take(self, kind: type[M]) -> M | None:
        """The message of that kind, which is removed; None if there is none."""
        file = self._folder / kind.__name__
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            return None
        file.unlink()
        return msgspec.json.decode(text, type=kind)
