"""Lines of a terminal: what belongs together is not cut."""

from __future__ import annotations

from harness.model.lines import wrapped


def test_neither_names_nor_percentages_are_cut() -> None:
    text = "Only in A: wired rand-read-4k, which lost between -21 and +29 % of it."
    assert wrapped(text, 22, "  ") == [
        "Only in A: wired",
        "  rand-read-4k, which",
        "  lost between -21 and",
        "  +29 % of it.",
    ]
