"""What the tests of all parsers of tool outputs share: damage, refusals, and the real outputs' list."""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.model.errors import UsageError

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


def assert_refused(parse: Callable[[str], object], text: str, reason: str = "") -> None:
    """``parse`` refuses ``text`` soon, in one sentence of bearable length that matches, and with a hint."""
    # What others have the processor for does not count.
    started = time.process_time()
    with pytest.raises(UsageError, match=reason or None) as refusal:
        parse(text)
    assert time.process_time() - started < 5
    assert refusal.value.hint
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


def real_outputs(wanted: Callable[[str], bool]) -> pytest.MarkDecorator:
    """A test of each row of the collection's MANIFEST whose file is wanted; skipped without a collection."""
    path, rows = OUTPUTS / "MANIFEST.tsv", list[dict[str, str]]()
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines, delimiter="\t") if wanted(row["file"])]
    return pytest.mark.parametrize("row", rows, ids=lambda row: Path(row["file"]).stem)
