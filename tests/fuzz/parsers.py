"""The readers of tools' outputs: they understand or refuse in a sentence, and tell nothing that cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from harness.cli.parse import PARSERS
from harness.model.errors import UsageError
from tests.fuzz.driver import Broken, Case, several
from tests.fuzz.mutate import Change, Edit, change, edit
from tests.unit.parsing import OUTPUTS, SAMPLES

ROUNDING = 0.005
"""What a figure with three digits may differ by from the same figure derived."""


@cache
def samples() -> dict[str, bytes]:
    """Real outputs by ``tool/folder/name``: our own, and those of a collection next to the project."""
    found = {}
    for folder in (SAMPLES, OUTPUTS):
        for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if file.is_file() and (tool := _tool(file)):
                found[f"{tool}/{folder.name}/{file.name}"] = file.read_bytes()
    return found


def _tool(file: Path) -> str | None:
    names = [tool for tool in PARSERS if tool in (file.parent.name, *file.stem.split("-"))]
    return names[0] if names else None


@dataclass(frozen=True)
class Other:
    """Another sample in the same text, behind the first or before it."""

    name: str
    before: bool

    def __call__(self, data: bytes) -> bytes:
        other = samples()[self.name]
        return other + data if self.before else data + other


class Parsers:
    name = "parsers"

    def draw(self, chance: Random) -> Case:
        names = list(samples())
        start = chance.choice(names)

        def part(chance: Random) -> object:
            kind = chance.random()
            if kind < 0.05:
                same = [name for name in names if name.split("/")[0] == start.split("/")[0]]
                return Other(chance.choice(same), chance.random() < 0.5)
            return change(chance) if kind < 0.3 and b"{" in samples()[start][:200] else edit(chance)

        return Case(start, several(chance, part))

    def check(self, case: Case) -> None:
        text = samples()[case.start]
        for part in case.parts:
            assert isinstance(part, Edit | Change | Other)
            text = part(text)[: 1 << 20]
        understood(case.start.split("/")[0], text)


def understood(tool: str, text: bytes) -> dict[str, Any] | None:
    """What the parser makes of it, as JSON; None if it is refused."""
    understand, _ = PARSERS[tool]
    try:
        output = msgspec.to_builtins(understand(text))
    except UsageError as error:
        if not error.message.isprintable() or len(error.message) > 700 or not error.hint:
            raise Broken("a refusal that is no sentence with a hint", error.message) from error
        return None
    json.dumps(output, allow_nan=False)
    for path, value in leaves(output):
        if isinstance(value, int | float) and not 0 <= value < 2**63:
            raise Broken("a figure out of range", f"{path} {value}")
        if isinstance(value, str) and path.split(".")[0] == "warnings" and not value.isprintable():
            raise Broken("a warning with control characters", value)
    for part in parts(output):
        if not part.get("invalid"):
            require_sense(part)
    return output if isinstance(output, dict) else None


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def parts(output: object) -> Iterator[dict[str, Any]]:
    """What may be valid or invalid by itself: a test, a run of ping, a job of fio."""
    if isinstance(output, dict) and "invalid" in output:
        yield output
    if isinstance(output, dict | list | tuple):
        for value in output.values() if isinstance(output, dict) else output:
            yield from parts(value)


def require_sense(part: dict[str, Any]) -> None:
    """What cannot be, however a text is damaged, without that the parser says so."""

    def ordered(what: str, *figures: object) -> None:
        known = [figure for figure in figures if isinstance(figure, int | float)]
        if len(known) == len(figures) and known != sorted(known):
            raise Broken(f"{what} are not in order", figures)

    if "transmitted" in part:
        received = part["received"]
        if received is not None and part["transmitted"] + (part["duplicates"] or 0) < received:
            raise Broken("more received than transmitted", part)
        ordered("round trips", part["rtt_min_ns"], part["rtt_avg_ns"], part["rtt_max_ns"])
    for name in ("sent", "received"):
        reported = part.get(name)
        if isinstance(reported, dict):
            ordered("lost and datagrams", reported["lost"], reported["datagrams"])
            if reported["loss_percent"] is not None and reported["loss_percent"] > 100.5:
                raise Broken("more than all was lost", reported)
    for name in ("read", "write", "trim"):
        io = part.get(name)
        if isinstance(io, dict):
            if not (io["bytes"] > 0 and io["ios"] > 0 and io["runtime_ns"] > 0):
                raise Broken("I/O without bytes, I/Os or time", io)
            if abs(io["bytes_per_s"] * io["runtime_ns"] / 1e9 - io["bytes"]) > 1e-6 * io["bytes"]:
                raise Broken("a rate that its bytes do not have", io)


class Cuts:
    """A text that ends early tells what the whole tells, or less, or is refused: no figure of its own.

    But iperf2 has the same row for its first interval as for a test that was no longer, and fio the same
    document: what covers less time may have other figures.
    """

    name = "cuts"

    def draw(self, chance: Random) -> Case:
        return Case(chance.choice(list(samples())), (Edit("cut", chance.random()),))

    def check(self, case: Case) -> None:
        tool, whole = case.start.split("/")[0], samples()[case.start]
        (cut,) = case.parts
        assert isinstance(cut, Edit)
        short, full = understood(tool, cut(whole)), understood(tool, whole)
        reported = {} if full is None else dict(figures(full))
        for where, figure in figures(short or {}, valid=True):
            holder = where.rpartition(".")[0]
            times = (f"{holder}.{name}" for name in ("seconds", "runtime_ns"))
            lasted = [name for name in times if name in reported]
            claim = dict(figures(short or {}))
            if where not in reported or any(claim.get(name) != reported[name] for name in lasted):
                continue
            if abs(figure - reported[where]) > ROUNDING * reported[where]:
                kind = ".".join(name for name in where.split(".") if not name.isdecimal())
                found = (where, figure, reported[where])
                raise Broken(f"a cut text of {tool} has another figure: {kind}", found)


def figures(output: dict[str, Any], *, valid: bool = False) -> list[tuple[str, float]]:
    """What an output has of figures, each with its place; with ``valid`` only those of valid parts."""
    found: list[tuple[str, float]] = []
    for name in ("runs", "jobs"):
        for number, part in enumerate(output.get(name, ())):
            found += [(f"{name}.{number}.{where}", value) for where, value in figures(part, valid=valid)]
    if "invalid" in output and not (valid and output["invalid"]):
        found += [(where, value) for where, value in leaves(output) if isinstance(value, int | float)]
    return found
