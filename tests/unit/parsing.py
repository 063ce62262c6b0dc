"""What the tests of parsers share: cases, what is told and refused, damage, and the real outputs' list."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from harness.model.errors import UsageError

T = TypeVar("T")
OUTPUTS = Path(__file__).parents[3] / "shared" / "real-outputs"
"""A collection of real outputs that may stand next to the project."""
SAMPLES = Path(__file__).parents[1] / "data" / "outputs"
"""Real outputs of the project's own (README.md there)."""


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def garbled(seed: int, wholes: list[bytes], alphabet: bytes, count: int) -> Iterator[bytes]:
    """``count`` texts made from ``wholes`` in turn, each with one to six flips, replacements or gaps."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    for number in range(count):
        text = bytearray(wholes[number % len(wholes)])
        for _ in range(chance.randint(1, 6)):
            position = chance.randrange(len(text))
            kind = chance.random()
            if kind < 0.4:
                text[position] ^= 1 << chance.randrange(8)
            elif kind < 0.7:
                text[position] = chance.choice(alphabet)
            else:
                del text[position : position + chance.randint(1, 40)]
        yield bytes(text)


@dataclass(frozen=True, eq=False)
class Says:
    """Equal to warnings or problems of which one has these words."""

    words: str

    def __eq__(self, said: object) -> bool:
        return isinstance(said, tuple) and any(self.words in each for each in said)


def has(value: object, **expected: Any) -> None:
    """The value is there and has these fields."""
    assert {name: getattr(value, name) for name in expected} == expected


def known(value: T | None) -> T:
    assert value is not None
    return value


def listed(text: str) -> list[str]:
    """What stands between the bars."""
    return [each.strip() for each in text.split("|")]


def refused(call: Callable[..., object], *given: Any, **more: Any) -> UsageError:
    """How ``call`` refuses what it is given: in one line that a terminal can show, with a hint."""
    with pytest.raises(UsageError) as refusal:
        pytest.fail(f"{given} became {call(*given, **more)}")
    assert refusal.value.hint and str(refusal.value).isprintable(), given
    return refusal.value


def real_outputs(wanted: Callable[[str], bool]) -> pytest.MarkDecorator:
    """A test of each row of the collection's MANIFEST whose file is wanted; skipped without a collection."""
    path, rows = OUTPUTS / "MANIFEST.tsv", list[dict[str, str]]()
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines, delimiter="\t") if wanted(row["file"])]
    return pytest.mark.parametrize("row", rows, ids=lambda row: Path(row["file"]).stem)
