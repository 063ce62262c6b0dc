"""Published matrices as data, ``profiles/references/*.toml``, to set beside measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import UsageError
from harness.units import shown


class ReferenceColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One column as published; ``ipsec`` is "on" where the source names no algorithm."""

    link: str
    ipsec: str
    title: str


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published matrix: for each workload one value per column, in ``unit``."""

    name: str
    title: str
    source: str
    unit: Literal["MB/s"]
    columns: tuple[ReferenceColumn, ...]
    rows: dict[str, tuple[float, ...]]


def names() -> list[str]:
    """The names that ``load_reference`` knows."""
    return sorted(file.stem for file in _folder().glob("*.toml"))


def load_reference(name: str) -> Reference:
    """The reference of that name; UsageError lists what there is, or says what is wrong with its file."""
    known = names()
    if name not in known:
        raise UsageError(f"there is no reference {shown(name)}", hint=f"there is: {', '.join(known)}")
    file = _folder() / f"{name}.toml"
    try:
        reference = msgspec.toml.decode(file.read_bytes(), type=Reference)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} is no reference that can be read: {error}", hint="compare it with document-003.toml"
        ) from error
    for workload, values in reference.rows.items():
        if len(values) != len(reference.columns):
            raise UsageError(
                f"{file}, {workload}: expected {len(reference.columns)} values, found {len(values)}",
                hint="give one value per column",
            )
    return reference


def _folder() -> Path:
    from harness.profiles import data_folder  # here: to render a table no data folder is needed

    return data_folder() / "profiles" / "references"
