"""Published figures as data, ``profiles/references/*.toml``: matrices, and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from harness.model import PROTECTION_OFF
from harness.model.units import unknown_name
from harness.parse.files import TomlFile, read_text


class LinkChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="change"):
    """How a figure of the link ``of`` differs from that of the link ``compared_with``.

    ``figure`` is the key of the view's column; empty for a matrix, where all rows are asked for, and where
    ``+on`` behind a link means with IPsec.
    """

    what: str
    of: str
    compared_with: str
    figure: str = ""

    @property
    def links(self) -> tuple[str, ...]:
        return self.of, self.compared_with


class LinkSteps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="step"):
    """How much a figure rises from each link of ``along`` to the next."""

    what: str
    figure: str
    along: tuple[str, ...]

    @property
    def links(self) -> tuple[str, ...]:
        return self.along


class LinkMost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="most"):
    """The largest figure of a link."""

    what: str
    figure: str
    of: str

    @property
    def links(self) -> tuple[str, ...]:
        return (self.of,)


Ask = LinkChange | LinkSteps | LinkMost
"""The test of an article's question: which figures of which links answer it. ``what`` is its subject,
for people."""


class ReferenceColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One column as published; ``ipsec`` is "on" if the source names no algorithm."""

    link: str
    ipsec: str
    title: str

    @property
    def protection(self) -> tuple[str, ...]:
        return () if self.ipsec == PROTECTION_OFF else (self.ipsec,)


class _AnyReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an article published, and what it asks."""

    name: str
    title: str
    subject: str
    question: str
    source: str
    ask: tuple[Ask, ...]


class Reference(_AnyReference, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published matrix: for each workload one value per column, in ``unit``."""

    unit: Literal["MB/s"]
    columns: tuple[ReferenceColumn, ...]
    rows: dict[str, tuple[float, ...]]


class PublishedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One set-up as published. ``values`` are by the keys of the view's columns, in their units. ``link`` is
    the one of ours that is like it, if there is one."""

    title: str
    link: str = ""
    values: dict[str, float]


class Slower(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Links of ours that stand for others (the keys), with all rates divided by ``by``: the lab's one
    processor can forward what they carry. Their rates and losses answer for those of the others.
    """

    by: float
    links: dict[str, str]


class PathReference(_AnyReference, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Published figures of paths, for one of the views of ``harness table --view``."""

    view: str
    row: tuple[PublishedRow, ...]
    slower: Slower = Slower(by=1.0, links={})


def names() -> list[str]:
    """The names of all references."""
    return sorted(file.stem for file in _folder().glob("*.toml"))


def view_of(name: str) -> str | None:
    """The view of a reference, None for a matrix. UsageError as in ``load_reference``."""
    view = _file(name).parse().get("view")
    return view if isinstance(view, str) else None


def load_path_reference(name: str) -> PathReference:
    """The reference of that name, which has a view. UsageError as in ``load_reference``."""
    return _file(name).load(PathReference)


def load_reference(name: str) -> Reference:
    """The matrix of that name. UsageError lists the known ones, or says what is wrong with the file."""
    file = _file(name)
    reference = file.load(Reference)
    if any(len(values) != len(reference.columns) for values in reference.rows.values()):
        expected = f"expected {len(reference.columns)} values in each row, one for each column"
        raise file.refuse("rows", expected, "compare it with iscsi-ipsec.toml")
    return reference


def _file(name: str) -> TomlFile:
    if name not in names():
        raise unknown_name("reference", name, names())
    path = _folder() / f"{name}.toml"
    return TomlFile("reference", path, read_text(path, "reference"))


def _folder() -> Path:
    from harness.parse.profiles import data_folder  # here, because rendering a table needs no data folder

    return data_folder() / "profiles" / "references"
