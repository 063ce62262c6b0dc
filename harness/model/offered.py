"""Extensions: a module added to a package is found without being entered in a list."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterator
from typing import Any


def offered(room: str, *, within: str | None = None) -> Iterator[Any]:
    """The tuple ``OFFERED`` of each module in a package that has one.

    With ``within``, what each of the packages in it offers, by its module of that name; "": by itself.
    """
    for found in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
        name = f"{found.name}.{within}" if within else found.name
        if found.ispkg == (within is not None) and importlib.util.find_spec(name) is not None:
            yield from getattr(importlib.import_module(name), "OFFERED", ())
