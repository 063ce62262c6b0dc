"""Extensions: a module added to a package is found without being entered in a list."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def offered(room: str, *, within: str | None = None) -> Iterator[Any]:
    """The tuple ``OFFERED`` of each module in a package that has one.

    With ``within``, what each of the packages in it offers, by its module of that name; "": by itself.
    """
    for found in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
        name = f"{found.name}.{within}" if within else found.name
        if found.ispkg == (within is not None) and importlib.util.find_spec(name) is not None:
            yield from getattr(importlib.import_module(name), "OFFERED", ())


class OfKinds(Mapping[str, T]):
    """What kinds offer in a package, by their names: each in the module that ``folders`` says, or with
    ``within`` in the one of that name in its folder.

    A module is imported when its kind is asked for: most commands need few of them.
    """

    def __init__(self, room: str, folders: Mapping[str, str], *, within: str = "") -> None:
        folder = Path(importlib.import_module(room).__path__[0])
        places = {name: [each, within] if within else [each] for name, each in folders.items()}
        self._modules = {
            name: ".".join([room, *place])
            for name, place in places.items()
            if folder.joinpath(*place).with_suffix(".py").exists()
        }

    def __getitem__(self, name: str) -> T:
        by_name: dict[str, T] = {
            each.name: each for each in importlib.import_module(self._modules[name]).OFFERED
        }
        return by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
