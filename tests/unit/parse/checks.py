"""What the tests of this folder share: lists of cases, what is refused, what is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from harness.model.errors import UsageError

T = TypeVar("T")


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
