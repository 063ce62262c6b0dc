"""Distributions and their releases, as data: releases/*.toml.

How a distribution calls Debian's packages, what installs them, and which of its releases were tried.
releases/README.md says what the lines of a file mean. tools/install-packages.sh reads the same files.
"""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Sequence

import msgspec

from harness.parse.profiles import data_folder


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A release. ``words`` are os-release(5)'s VERSION_ID and VERSION_CODENAME of it; none of them: any.

    ``was_tried``: the harness was run on it; otherwise only names are known. ``versions`` and ``kernel`` are
    for people.
    """

    words: tuple[str, ...]
    title: str
    was_tried: bool
    versions: str
    kernel: str


class LinuxDistribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of releases/. ``ids`` are words of os-release(5)'s ID and ID_LIKE.

    ``install`` is a command that takes names. ``names`` are the names here by Debian's; of ``names_as`` are
    those without a line.
    """

    title: str
    ids: tuple[str, ...]
    install: str
    looked_up: str
    names: dict[str, str]
    names_as: str = ""
    releases: tuple[Release, ...] = ()

    @property
    def manager(self) -> str:
        return self.install.partition(" ")[0]

    def names_of(self, debians: Sequence[str]) -> tuple[str, ...] | None:
        """The names here of a package that Debian calls by one of ``debians``.

        Empty if there is no such package; None if nothing is known of it.
        """
        line = self.names.get("|".join(debians))
        if line is not None:
            return tuple(line.split())
        return tuple(debians[:1]) if self.names_as else None

    def release(self, words: Sequence[str]) -> Release | None:
        """The release that os-release(5) calls by any of these words; None if it is not known."""
        return next((r for r in self.releases if not r.words or set(r.words) & set(words)), None)


def distributions() -> list[LinuxDistribution]:
    """All of releases/."""
    files = sorted((data_folder() / "releases").glob("*.toml"))
    return [
        msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), LinuxDistribution) for file in files
    ]


def named(families: Sequence[str]) -> LinuxDistribution | None:
    """The distribution of the first known name in os-release(5)'s ID and ID_LIKE."""
    found = distributions()
    return next((each for family in families for each in found if family in each.ids), None)


def here() -> LinuxDistribution | None:
    """That of this machine; None if it is not known."""
    words = _os_release()
    return named([words.get("ID", ""), *words.get("ID_LIKE", "").split()])


def release_here() -> Release | None:
    """The release that this machine has; None if it is not known."""
    words = _os_release()
    system = here()
    if system is None or words.get("ID") not in system.ids:
        return None
    return system.release([words.get("VERSION_ID", ""), words.get("VERSION_CODENAME", "")])


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
