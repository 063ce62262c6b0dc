"""Which transports, protections, kinds of hops and of radios there are, by the ``kind.toml`` of each folder.

Who reads results needs to know that much, and imports nothing of what brings one up. A module added to a
package that has some of each kind is found there without being entered in a list.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.model.stalls import KERNEL
from harness.model.units import parse_size, unknown_name

FILE = "kind.toml"


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name`` is typed, and in results; ``title`` is for people, who find kinds in their ``order``. Its file
    is in ``folder``. With ``needs_custom_kernel`` Debian's user-mode kernel lacks it."""

    name: str
    title: str
    order: int
    folder: str = ""
    needs_custom_kernel: bool = False


class SessionParameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter of sessions that a run may ask for. ``typed_as`` is its name for the initiator's program or
    kernel. ``sysfs`` is the file with the value that both ends agreed on.

    ``least`` and ``most`` bound a number; without them the value is one of ``words``, each with what sysfs
    says of it. With ``is_initiators`` the target has no such parameter. ``usual`` is what both ends have if
    nobody asks, where a run has something else.
    """

    typed_as: str
    sysfs: str = ""
    least: int = 0
    most: int | None = None
    words: dict[str, str] | None = None
    is_initiators: bool = False
    usual: str = ""

    def value(self, text: str) -> str | None:
        """``text`` as both ends write it, with sizes such as 64K in bytes; None if it is out of range."""
        if self.words is not None:
            return next((word for word in self.words if word.casefold() == text.casefold()), None)
        number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else parse_size(text)
        return str(number) if self.least <= number <= (self.most or number) else None

    def in_sysfs(self, value: str) -> str:
        """What sysfs says of an agreed ``value``."""
        return value if self.words is None else self.words[value]

    @property
    def expected(self) -> str:
        return f"{self.least} to {self.most}" if self.words is None else " or ".join(self.words)


class Timer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kernel or daemon, the ``source`` (``stalls.LogLine``), says of a timer: ``said`` is a pattern,
    whose groups ``did`` may name. ``parameters`` of a session, or of what the ends agreed on, set it. The
    source says so when the timer has run out and ``did`` what it is for, or when it ``begins``. If it says
    ``unless`` at the same time, something else did. One that ``repeats`` runs out again and again, and
    matters where it decided."""

    source: str = KERNEL
    said: str
    unless: str = ""
    did: str
    parameters: tuple[str, ...] = ()
    begins: bool = False
    repeats: bool = False


class TransportKind(Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``port`` is its IANA port. ``kernel_target``: its target is in the kernel, and no program.
    ``page_cache``: it reads a file through that. ``logical_units``: a target has several; otherwise a portal
    names it. ``column_s`` is how long it takes to bring up a column.

    ``parameters`` are those of its sessions, by the names that users type, with the option ``--OPTION`` of
    ``harness run``; "" if it has none. ``hint`` says where they are described. ``timers`` are at work once a
    peer no longer answers, the first until the connection is given up. ``retry_s`` is how long an initiator
    waits before it tries a lost connection again, where no timer says so; 0 if it does not. ``connect_s`` is
    how long it waits before it looks again whether a connection is up that was not at once.
    """

    port: int
    column_s: float
    kernel_target: bool = True
    page_cache: bool = True
    logical_units: bool = True
    option: str = ""
    hint: str = ""
    parameters: dict[str, SessionParameter] = {}
    timers: tuple[Timer, ...] = ()
    retry_s: float = 0.0
    connect_s: float = 0.0


class HopKind(Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What passes packets on between the ends of a link: ``least`` to ``most`` hops, each a ``title``, two
    of them ``several``.

    ``hops`` are their names; without, they are numbered. If it ``is_routed``, each segment is a network of
    its own. ``is_timed``: the profile says how long each hop takes.
    """

    least: int = 0
    most: int
    several: str = ""
    hops: tuple[str, ...] = ()
    is_routed: bool = False
    speaks_ipv6: bool = True
    is_timed: bool = True

    def names(self, count: int) -> tuple[str, ...]:
        """The names of so many hops, starting at the initiator's side."""
        return self.hops or tuple(f"{self.name}{number}" for number in range(1, count + 1))


class RadioKind(Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What simulates radios, where the kernel has ``kernel_option``: links of at most ``most_paths`` paths,
    which take ``column_s`` more to come up than over a cable, and ``cell_s`` more for each cell."""

    kernel_option: str
    most_paths: int
    cell_s: float
    column_s: float


K = TypeVar("K", bound=Declared)
T = TypeVar("T")


def declared(package: str, declared_type: type[K]) -> dict[str, K]:
    """The kinds of a package of the harness, by name."""
    files = Path(__file__).parents[1].joinpath(package).glob(f"*/{FILE}")
    found = [
        msgspec.convert({"folder": file.parent.name, **kind}, declared_type)
        for file in files
        for kind in msgspec.toml.decode(file.read_bytes())["kind"]
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.order)}


def folders(found: Mapping[str, Declared]) -> dict[str, str]:
    """Where each of them is, by name."""
    return {name: each.folder for name, each in found.items() if each.folder}


TRANSPORTS = declared("storage", TransportKind)
HOPS = declared("network/paths", HopKind)
AIR = declared("network/air", RadioKind)
RADIOS = next(iter(AIR.values()), None)
"""None where it was taken out: WiFi is emulated then."""


def transport(name: str) -> TransportKind:
    """UsageError for one that is not here: results may be of another version."""
    if name not in TRANSPORTS:
        raise unknown_name("transport", name, TRANSPORTS)
    return TRANSPORTS[name]


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
